"""ResourceQuotas as a queue system: each monitored namespace is a queue, and its limits are the
smallest ones of its ResourceQuotas. queues loads it by its name, and the checks of cli import it.
It imports model and queues."""
