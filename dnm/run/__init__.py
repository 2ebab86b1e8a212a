"""The execution of a run: lock, registry, snapshot, plan, actions, record.

`snapshot` reads everything, `actuator` makes all changes. Only cli may import it; it imports the
packages with side effects (config, kube, converter, queues, record), and the core (calendar,
demand, sizing, plan, kubelet, model), and host."""
