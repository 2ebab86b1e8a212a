"""`node-convert`: the converter that dnm ships, for sites that have none, on real Slurm. Both ways
are named, journaled stages with a time-out and a way back; the site's own work is in hooks.
It imports model, config, kube, slurm and the contract's words from converter; only the demo
imports it, and the check its settings.
"""
