"""The tools of `make packages`, `make release` and `make docs`; see docs/packages.md."""
