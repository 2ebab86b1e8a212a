"""`make_plan` and its stages: phases of lent nodes, fences, limits, returns, conversions, brakes.
Pure: no clock, no client, no logger.
run, cli, verbs, simulate and its rules may import it; it imports model, demand, sizing and what of
queues is pure.
"""
