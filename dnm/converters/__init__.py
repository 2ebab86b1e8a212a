"""`node-convert`, `nodeset-convert` and `bridge-convert`: the converters that dnm ships, on real
Slurm. Both ways are named, journaled stages with a time-out and a way back; the site's own work is
in hooks. A wing: cli alone may import its settings; it imports model, host, config, kube, kubelet,
slurm, the contract's words from converter, and from demand what a Node carries (`constraints`).
"""
