"""The part of `dnm check` for namespaces without a queue system. checks loads it by its name, and
other checks of cli may import it. It imports model, kube, demand and checks."""
