"""The number of nodes that each queue needs, and the lent nodes that it can release. Pure. plan,
its rules, verbs, run and cli may import it; it imports model, demand and kubelet."""
