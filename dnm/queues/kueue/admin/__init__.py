"""The part of `dnm check` for Kueue. No package imports it: checks loads it by its name. It imports
model, kube, demand, checks and kueue."""
