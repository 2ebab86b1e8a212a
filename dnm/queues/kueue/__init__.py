"""Kueue (v1beta2). Lent nodes have a flavor of their own. Its quota is in a Cohort that dnm writes
for each ClusterQueue, in the ClusterQueue itself, or in a CapacityProvider. queues loads it by its
name, and the checks of cli import it. It imports model and queues."""
