"""The clients of the objects of queue systems. Each is imported only with its queue system."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dnm.kube.kueue import KueueApi
    from dnm.kube.quotas import QuotaObjects
    from dnm.kube.requests import ApiRequests


class QueueClients:
    """The part of the client for objects that only some queue systems have."""

    requests: ApiRequests

    @property
    def typed_objects(self) -> QuotaObjects:
        """Returns the client of ResourceQuotas and workloads."""
        from dnm.kube.quotas import QuotaObjects

        return QuotaObjects(self.requests)

    @property
    def kueue_objects(self) -> KueueApi:
        """Returns the client of Kueue's objects."""
        from dnm.kube.kueue import KueueApi

        return KueueApi(self.requests)
