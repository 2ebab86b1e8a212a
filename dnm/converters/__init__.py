"""The converters that dnm ships: `node-convert`, `nodeset-convert` and `bridge-convert`. Each
direction is a list of journaled stages with time-outs and a rollback; the site's own work is in
hooks. Import rules: only cli may import the settings. This package imports model, host, config,
kube, kubelet, slurm, the contract's names from converter, and `constraints` from demand."""
