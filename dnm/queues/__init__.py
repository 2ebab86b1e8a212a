"""The queue systems, one package each. No package imports it, and it imports none."""
