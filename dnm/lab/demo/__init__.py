"""`dnm demo`: the workshop played on the sandbox, or on a real Slurm, with the books at the end.
Only the lab's verbs import it; it imports model, host, config, the sandbox, and the real slurm
and what it prints.
"""
