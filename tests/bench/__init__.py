"""The cost of reading a cluster, measured: `python -m tests.bench`."""
