"""What pods ask for, as YuniKorn counts it: one pod's request, queues, groups of equal pending
pods, gangs, and which nodes a pod may be on. Pure.
sizing, plan, its rules, run and cli may import it, kube its `pod_request`, converters its
`constraints`; it imports only model.
"""
