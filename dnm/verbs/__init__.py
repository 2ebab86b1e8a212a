"""The changes that administrators' commands make to the registry: each function returns a changed
registry or a refusal. Pure: facts from Kubernetes and Slurm are parameters. cli may import it; it
imports model, calendar, sizing, plan, its rules and from config the bound of events."""
