"""The facts of a run about Kueue."""

from __future__ import annotations

from collections.abc import Mapping

from dnm.model.cluster import QueueFacts
from dnm.model.kueue import FLAVOR, ClusterQueue, Cohort, Flavor, LocalQueue


class KueueFacts(QueueFacts):
    """The objects of a run. `paths`: queue path -> ClusterQueue. `left_out`: Workloads that lent
    nodes cannot help, with the reason. `write_errors`: queue path -> why the API
    server would refuse a write."""

    paths: Mapping[str, str] = {}
    queues: tuple[ClusterQueue, ...] = ()
    cohorts: tuple[Cohort, ...] = ()
    flavors: tuple[Flavor, ...] = ()
    local_queues: tuple[LocalQueue, ...] = ()
    left_out: tuple[tuple[str, str], ...] = ()
    write_errors: Mapping[str, str] = {}

    def queue_at(self, path: str) -> ClusterQueue | None:
        """Returns the ClusterQueue of a path, if it exists."""
        name = self.paths.get(path, path)
        return next((queue for queue in self.queues if queue.name == name), None)

    def cohort_of(self, queue: ClusterQueue) -> Cohort | None:
        """Returns the Cohort that dnm writes for a ClusterQueue, if it exists."""
        return next((item for item in self.cohorts if item.name == queue.own_cohort), None)

    @property
    def flavor(self) -> Flavor | None:
        """Returns the flavor of lent nodes, if it exists."""
        return next((flavor for flavor in self.flavors if flavor.name == FLAVOR), None)
