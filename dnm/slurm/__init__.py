"""The Slurm edge: what scontrol and squeue print -> values (`text`), and running them (`client`).
Nothing here decides; a state that is not understood is no state.
The converters may import it; it imports only model.
"""
