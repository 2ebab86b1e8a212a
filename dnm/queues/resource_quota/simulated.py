"""A simulated cluster with ResourceQuotas, for `dnm simulate`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from dnm.model.config import Config
from dnm.model.quota import ResourceQuota
from dnm.model.value import Resources
from dnm.model.workload import LackingPods, PriorityClass


class SimulatedQuotas:
    """A cluster in memory with one ResourceQuota in each namespace that has limits."""

    def __init__(self, config: Config, limits: Mapping[str, Resources]) -> None:
        self.typed_objects = self
        self._quotas = {
            name: ResourceQuota(namespace=name, name="simulated", version="1", hard=_hard(limit))
            for name, limit in limits.items()
        }

    def read_quotas(self, namespace: str) -> list[ResourceQuota]:
        return [quota for name, quota in self._quotas.items() if name == namespace]

    def read_lacking(self, namespace: str) -> list[LackingPods]:
        return []

    def read_priority_classes(self) -> list[PriorityClass]:
        return []

    def patch_object(self, kind: str, namespace: str, name: str, patch: Mapping[str, Any]) -> None:
        quota = self._quotas[namespace]
        notes = {**quota.annotations, **patch["metadata"]["annotations"]}
        self._quotas[namespace] = replace(
            quota,
            version=str(int(quota.version) + 1),
            hard={**quota.hard, **patch.get("spec", {}).get("hard", {})},
            annotations={key: text for key, text in notes.items() if text is not None},
        )


SimulatedMaps = SimulatedQuotas


def _hard(limit: Resources) -> dict[str, str]:
    return {
        "requests.cpu" if name == "cpu" else name if name == "pods" else f"requests.{name}":
        f"{amount}m" if name == "cpu" else str(amount)
        for name, amount in limit.items()
    }  # fmt: skip
