"""Causes for which pods wait besides free capacity: devices of dynamic resource allocation, and
PodGroups."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeAlias

import msgspec

from dnm.model.node import Node
from dnm.model.value import Resources, Unreadable, Value

Named: TypeAlias = tuple[str, str]  # namespace, name
Minimums: TypeAlias = Mapping[Named, int]  # of PodGroups; 0: it has none

GROUPS = "scheduling.k8s.io", "scheduling.x-k8s.io", "scheduling.volcano.sh"
"""API groups with a PodGroup: Kubernetes' own, scheduler-plugins', Volcano's."""


class Device(Value):
    """A device that one pod uses alone. `attributes` are defined by its driver, by name."""

    driver: str
    pool: str
    name: str
    attributes: Mapping[str, str | bool | int] = {}

    @property
    def key(self) -> tuple[str, str, str]:
        """Returns the driver, pool and name by which an allocation names the device."""
        return self.driver, self.pool, self.name


class DeviceAsk(Value):
    """The number of devices of each class that a ResourceClaim, or its template, requests. `why` is
    set if dnm does not understand the request. `is_taken`: its devices are already allocated."""

    counts: tuple[tuple[str, int], ...] = ()
    why: str = ""
    is_taken: bool = False


class DeviceFacts(Value):
    """The objects of the API group resource.k8s.io. `classes` has the expressions of each class,
    which must all hold. `devices` are by node. `holders` are the UIDs of pods with devices."""

    classes: Mapping[str, tuple[str, ...]]
    devices: Mapping[str, tuple[Device, ...]]
    claims: Mapping[Named, DeviceAsk]
    templates: Mapping[Named, DeviceAsk]
    allocated: frozenset[tuple[str, str, str]] = frozenset()
    holders: frozenset[str] = frozenset()


class PodWaits(Value):
    """The effects of PodGroups and device claims. `unclear` explains for a "namespace/pod" what dnm
    does not understand. `offered` has each node's devices by class, `taken` the allocated ones."""

    unclear: Mapping[str, str] = {}
    offered: Mapping[str, Resources] = {}
    taken: Mapping[str, Resources] = {}

    def offering(self, nodes: Iterable[Node]) -> tuple[Node, ...]:
        """Returns the Nodes with their devices added to `allocatable`, like other resources."""
        return tuple(
            msgspec.structs.replace(node, allocatable={**node.allocatable, **offered})
            if (offered := self.offered.get(node.name))
            else node
            for node in nodes
        )


GroupFacts: TypeAlias = Mapping[str, Minimums | Unreadable]  # by API group
