"""The cost of reading a cluster, measured by `python -m tests.bench`."""
