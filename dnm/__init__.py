"""dnm, the Dynamic Node Manager: docs/architecture.md is the map of its packages."""
