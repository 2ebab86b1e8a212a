"""The deb and the rpm: `make packages`, docs/packages.md."""
