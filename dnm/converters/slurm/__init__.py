"""The Slurm edge: what scontrol and squeue print (`text`) or slurmrestd answers (`rest_body`)
-> the same values, and asking them (`commands`, `rest`), by the same calls.
Nothing here decides; a state that is not understood is no state.
converters may import it, the real slurm of the lab too, and demo what is printed; it imports only
http, host and model.
"""
