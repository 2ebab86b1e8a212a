"""The requests of pods, as queue systems count them: requests, queues, groups of equal pods,
gangs, and constraints on nodes. Pure. sizing, plan, its rules, run and cli may import it, kube its
`pod_request`, converters its `constraints`; it imports only model."""
