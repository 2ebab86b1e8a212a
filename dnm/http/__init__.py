"""One HTTP connection with a deadline for all of it, and bodies of a bounded size: what the API
server, YuniKorn's REST and slurmrestd are read with.
The edges (kube, queues.yunikorn_rest, the converters' slurm) may import it; it imports model and
host.
"""
