"""The Slurm edge. `text` parses output of scontrol and squeue, `rest_body` answers of slurmrestd,
into the same values. `commands` and `rest` send requests by the same methods. An unknown state is
an error. Only converters may import this package. It imports only http, host and model."""
