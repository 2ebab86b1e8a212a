"""The execution of a run: lock, registry, snapshot, plan, actions, record.

`snapshot` reads everything, `actuator` makes all changes. Of dnm's packages, only `cli` may import
this one. It imports those with side effects (config, kube, converter, queues, record), the core
(calendar, demand, sizing, plan, kubelet, model), and host."""
