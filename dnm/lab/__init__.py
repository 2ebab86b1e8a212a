"""An optional package: the embedded cluster (sandbox), the demo, and a real Slurm on loopback. No
run needs it, and production hosts do not have it.
cli offers its commands if it is installed.
"""
