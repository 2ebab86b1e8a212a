"""The host: runs of its programs within bounds of bytes and time, trust in its files, its identity,
and the points at which tests inject faults. Packages with side effects (config, http, kube, slurm,
converter, converters, queues, record, run, cli, sandbox, demo) may import it; it imports only
model."""
