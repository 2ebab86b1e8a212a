"""The Slurm edge. It parses what scontrol and squeue print (`text`) or slurmrestd answers
(`rest_body`) into the same values. `commands` and `rest` send the requests, with the same methods.
It decides nothing, and an unknown state is an error. Import rules: converters, the lab's real Slurm
and the demo may import this package. It imports only http, host and model."""
