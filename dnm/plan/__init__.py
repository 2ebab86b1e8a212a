"""The planner: `make_plan` and its stages, which decide all that a run does. Pure: no clock, client
or logger. Only run, cli, verbs, simulate and the rules import it; it imports model, demand, sizing
and the interface of queues."""
