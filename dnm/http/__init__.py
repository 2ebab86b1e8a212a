"""Limits for urllib3: a deadline for each entire answer, and a bound in bytes. Packages with
clients (kube, queues, the converters' slurm) may import it; it imports model and host."""
