"""The costs and benefits of lending, measured in days of virtual time under several policies.

`python -m tests.economy` prints the table. Nothing sleeps; everything is seeded.

    workloads.py      the users' behaviour: requests, times and durations
    public_shapes.py  more of them, with shapes that are known to be hard for autoscalers
    everyday.py       five more, of every day
    site_shapes.py    ten more, which sites describe
    building.py       the parts of a workload, and Slurm's other jobs
    policies.py       the predecessor's rule
    autoscalers.py    the rules of cluster-autoscaler and Karpenter
    dnm_policy.py     dnm at its defaults, for a workload
    bound.py          the lending of a clairvoyant for the same starts of pods
    measure.py        all of them, side by side
    recorded.py       dnm simulate on the records of these workloads, against the workloads

`dnm simulate` (dnm/simulate) provides their world."""
