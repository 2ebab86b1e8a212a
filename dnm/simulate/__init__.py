"""dnm's decisions played in virtual time: the real planner over a workload, of the site's own
record or of a file, against a cluster and a batch side that are values. Seeded; nothing is asked
and nothing is changed. cli may import it (and the tests of the economy, which play it too); it
imports model, plan and the interface of queues.
"""
