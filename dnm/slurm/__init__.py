"""The Slurm edge: what scontrol and squeue print (`text`) or slurmrestd answers (`rest_answers`)
-> the same values, and asking them (`client`, `rest`), behind one interface (`interface`).
Nothing here decides; a state that is not understood is no state.
The converters may import it; it imports only http and model.
"""
