"""How many nodes each queue gets, for which pods, and which lent nodes may go: quota and packing.
Pure.
plan, its rules, verbs, run and cli may import it; it imports model, demand and kubelet.
"""
