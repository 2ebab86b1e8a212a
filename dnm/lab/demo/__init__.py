"""`dnm demo`: the workshop played on the sandbox, or on a real Slurm, with the books at the end.
Only cli may import it; it imports model, config, the sandbox, convert's lab and, from
slurm, what Slurm prints.
"""
