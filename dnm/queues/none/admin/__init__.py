"""The part of `dnm check` for namespaces without a queue system. No package imports it: checks
loads it by its name. It imports model, kube, demand and checks."""
