"""The planner: `make_plan` and its stages (phases of lent nodes, fences, limits, returns,
conversions, brakes). Pure: no clock, no client, no logger.

Only run, cli, verbs, simulate and the rules import it. It imports model, demand, sizing and the
pure part of queues.
"""
