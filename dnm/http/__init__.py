"""What dnm adds to urllib3: every answer has a deadline for all of it and a bound in bytes.
The edges (kube, queues.yunikorn_rest, the converters' slurm) may import it; it imports model and
host.
"""
