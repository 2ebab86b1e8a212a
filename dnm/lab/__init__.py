"""What tries dnm out: an embedded cluster, the demo, a Slurm on loopback. A wing: never on a
production host, and nothing of a run needs it. `cli` offers its verbs where it is there."""
