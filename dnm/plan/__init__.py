"""The planner: `make_plan` and its stages. Pure: no clock, no client, no logger. Only run, cli,
verbs, simulate and the rules import it; it imports model, demand, sizing and the interface
of queues."""
