"""The execution of a run: lock, registry, snapshot, plan, actions, record.

`snapshot` reads everything, `actuator` makes all changes. Only cli may import this package. It
imports the packages with side effects (config, kube, converter, queues, record), the core
(calendar, demand, sizing, plan, kubelet, model), and host."""
