"""The economy of lending, measured: a week of virtual time under several policies.

`python -m tests.economy` prints the table. Nothing sleeps; everything is seeded.

    workloads.py   what the users do: who asks for what, when, for how long
    world.py       the cluster: nodes, a scheduler with quotas, conversions that take minutes
    policies.py    the predecessor's rule, and one node per pending pod
    dnm_policy.py  the real planner, its plan carried out in the world
    bound.py       what a clairvoyant would have lent for the same waiting
"""
