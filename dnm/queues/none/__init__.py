"""Namespaces without a queue system: kube-scheduler, or any other scheduler, without quota. A queue
is a monitored namespace without limits, and nothing is written. No package imports it: queues loads
it by its name. It imports model and queues."""
