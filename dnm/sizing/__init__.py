"""The number of nodes for each queue, and lent nodes that can be released: quota and packing. Pure.
plan, its rules, verbs, run and cli may import it; it imports model, demand and kubelet."""
