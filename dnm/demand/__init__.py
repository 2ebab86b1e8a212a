"""The demand of pods: their requests as queue systems count them, their queues, groups of equal
pods, gangs, and constraints on nodes. Pure. sizing, plan, its rules, run and cli may import it,
kube its `pod_request`, converters its `constraints`; it imports only model."""
