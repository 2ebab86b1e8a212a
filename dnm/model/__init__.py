"""The values that all packages exchange: configuration, cluster, registry, plan, quantities, host
lists, text for people and errors. This package only holds them.
Every package may import it. It imports nothing of dnm."""
