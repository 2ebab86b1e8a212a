"""The converters that dnm ships: `node-convert`, `nodeset-convert` and `bridge-convert`. Each
direction is a list of journaled stages with time-outs and a rollback. Hooks do the site's own work.
Import rules: only cli may import the settings. This package imports model, host, config, kube,
kubelet, slurm, the names of the contract with dnm from converter, and demand's `constraints`."""
