"""`dnm demo`: the workshop on the sandbox or on a real Slurm, with the final checks.
Only the lab's verbs import it; it imports model, host, config, the sandbox, and the real slurm
and its output.
"""
