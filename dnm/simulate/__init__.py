"""A simulation of dnm in virtual time. The real planner works on a workload, from the site's own
record or from a file, with a cluster and a batch side that are values. It is seeded, and changes
nothing outside. cli may import it (and the tests of the economy, which also use it); it imports
model, plan and the interface of queues."""
