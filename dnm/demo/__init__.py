"""`dnm demo`: the workshop played on the sandbox, or on a real Slurm, with the books at the end.
Only cli may import it; it imports the sandbox and convert's lab.
"""
