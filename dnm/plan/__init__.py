"""`make_plan` and its stages: phases of lent nodes, fences, limits, returns, conversions, brakes.
Pure: no clock, no client, no logger.
run, cli and simulate may import it; it imports model, calendar, demand, kubelet, sizing and what
of queues is pure.
"""
