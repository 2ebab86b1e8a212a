"""`make_plan` and its stages: phases of lent nodes, fences, limits, returns, conversions, brakes.
Pure: no clock, no client, no logger.
run and cli may import it; it imports model, demand, kubelet, sizing and queues (not its writing).
"""
