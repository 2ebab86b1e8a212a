"""The edges to the objects of queue systems, each imported when its queue system is used."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dnm.kube.kueue import KueueApi
    from dnm.kube.quotas import QuotaObjects
    from dnm.kube.requests import ApiRequests


class QueueEdges:
    """A part of the client: the objects that only some queue systems have."""

    requests: ApiRequests

    @property
    def typed_objects(self) -> QuotaObjects:
        """Returns the edge to ResourceQuotas and workloads."""
        from dnm.kube.quotas import QuotaObjects

        return QuotaObjects(self.requests)

    @property
    def kueue_objects(self) -> KueueApi:
        """Returns the edge to the objects of Kueue."""
        from dnm.kube.kueue import KueueApi

        return KueueApi(self.requests)
