"""Namespaces without a queue system: kube-scheduler, or any other scheduler, without quota. A queue
is a monitored namespace without limits, and nothing is written. queues loads it by its name, and
resource_quota imports it. It imports model and queues."""
