"""The economy of lending, measured: days of virtual time under several policies.

`python -m tests.economy` prints the table. Nothing sleeps; everything is seeded.

    workloads.py      what the users do: who asks for what, when, for how long
    public_shapes.py  the same, of shapes that autoscalers are known to do badly with
    everyday.py       five more, written down before what a minute of a pod is worth was a key
    building.py       how a workload is put together, with the jobs that Slurm has besides
    policies.py       the predecessor's rule
    autoscalers.py    cluster-autoscaler's rules, Karpenter's
    dnm_policy.py     dnm at its defaults, for a workload
    bound.py          what a clairvoyant would have lent for the same starts of pods
    measure.py        all of them, side by side

The world they are played in is that of `dnm simulate` (dnm/simulate).
"""
