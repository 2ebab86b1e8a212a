"""The requests of pods, as YuniKorn counts them: one pod's request, queues, groups of equal pending
pods, gangs, and the nodes that a pod may be on. Pure. sizing, plan, its rules, run and cli may
import it, kube its `pod_request`, converters its `constraints`; it imports only model."""
