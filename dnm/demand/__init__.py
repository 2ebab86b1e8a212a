"""What pods ask for, as YuniKorn counts it: one pod's request, queues, groups of equal pending
pods, gangs, and which nodes a pod may be on. Pure.
sizing, plan and those above may import it; it imports only model.
"""
