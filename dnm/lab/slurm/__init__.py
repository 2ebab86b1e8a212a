"""A real Slurm on loopback, with hooks that play its machines.
Only demo may import it; it imports model, and the Slurm edge of the converters (slurm).
"""
