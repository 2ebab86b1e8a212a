"""The one pass: lock, registry, snapshot, plan, actions, record.
What is read is read in `snapshot`, what is done is done in `actuator`.
Only cli may import it; it imports the edges (config, kube, converter, queues, record), and the
core (calendar, demand, sizing, plan, kubelet, model), and host.
"""
