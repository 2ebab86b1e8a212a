"""The lab of dnm: an embedded cluster (sandbox), the demo, a real Slurm on loopback. A wing:
nothing of a run needs it, and a production host has none of it.
cli offers its commands if it is installed.
"""
