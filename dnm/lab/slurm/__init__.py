"""A real Slurm of eight nodes on loopback, with the hooks that play its machines.
Only the demo may import it; it imports model, and from converters the Slurm edge.
"""
