"""ResourceQuotas as values, and their limits converted to dnm's names and units."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import TypeAlias

from dnm.model.errors import QueueError
from dnm.model.quantity import QuantityError, format_amount, parse_kubernetes
from dnm.model.value import Resources, Value

Free: TypeAlias = dict[tuple[str, str], int]
"""Free capacity by object and key."""
_PLAIN = ("cpu", "memory", "pods", "ephemeral-storage")
_ORDINARY = frozenset(("NotTerminating", "NotBestEffort"))  # scopes that pods with requests are in


class QuotaScope(Value):
    """A condition of a ResourceQuota: the quota counts only pods that meet all its conditions.
    `values` are names of PriorityClasses."""

    name: str
    operator: str = "Exists"  # In | NotIn | Exists | DoesNotExist
    values: tuple[str, ...] = ()


class ResourceQuota(Value):
    """A ResourceQuota. `hard` has the limits that count resources of nodes, `ready` those that the
    quota controller has taken over, `used` the use that it reports. `manifest` has the limits that
    a manifest set last. `changed` is the time of the last change of limits or annotations by a
    client (RFC 3339)."""

    namespace: str
    name: str
    version: str
    hard: Mapping[str, str]
    used: Mapping[str, str] = {}
    ready: Mapping[str, str] = {}
    annotations: Mapping[str, str] = {}
    manifest: Mapping[str, str] = {}
    changed: str = ""
    scopes: tuple[QuotaScope, ...] = ()

    @property
    def other_scopes(self) -> tuple[str, ...]:
        """Returns the quota's scopes that exclude ordinary pods, e.g. `Terminating`."""
        texts = {f"{scope.name} {scope.operator}".removesuffix(" Exists") for scope in self.scopes}
        return tuple(sorted(texts - _ORDINARY))

    @property
    def place(self) -> str:
        return f"{self.namespace}/{self.name}"

    @property
    def is_ready(self) -> bool:
        """Returns whether the quota controller enforces the limits in `hard` already."""
        return all(are_equal(key, text, self.ready.get(key, "")) for key, text in self.hard.items())


def resource_of(key: str) -> str:
    """Returns the resource that a limit counts, as dnm names it; empty if no node provides it."""
    name = key.removeprefix("requests.").removeprefix("limits.")
    if name in _PLAIN or name.startswith("hugepages-") or key == "count/pods":
        return "pods" if key == "count/pods" else name
    return name if key.startswith("requests.") and "/" in name else ""


def is_of_limits(key: str) -> bool:
    """Returns whether a key of a quota (`limits.cpu`) counts the limits, not requests, of pods."""
    return key.startswith("limits.")


def amount_of(key: str, text: str) -> int:
    """Returns a ResourceQuota's limit in dnm's units. Raises QueueError if it is no quantity."""
    try:
        return parse_kubernetes(resource_of(key), text)
    except QuantityError as error:
        raise QueueError(f"cannot read the limit {key} = {text}: {error}") from error


def text_of(key: str, amount: int) -> str:
    """Returns a limit in dnm's units as a Kubernetes quantity, in the largest exact unit."""
    return format_amount(resource_of(key), amount)


def are_equal(key: str, text: str, other: str) -> bool:
    """Returns whether two quantities of a limit are the same amount; invalid ones never are."""
    with suppress(QuantityError):
        return amount_of(key, text) == parse_kubernetes(resource_of(key), other)
    return False


# --- several quotas of a namespace -------------------------------------------------------------


def smallest_limits(hards: Iterable[Mapping[str, str]]) -> dict[str, int]:
    """Returns for each resource the smallest limit on pod requests that any of the quotas sets."""
    least: dict[str, int] = {}
    pairs = (pair for hard in hards for pair in hard.items() if not is_of_limits(pair[0]))
    for key, text in pairs:
        name, amount = resource_of(key), amount_of(key, text)
        least[name] = min(least.get(name, amount), amount)
    return least


def reported_use(quotas: Iterable[ResourceQuota]) -> dict[str, dict[str, int]]:
    """Returns the use of each namespace by resource, as its quotas report it (the largest)."""
    used: dict[str, dict[str, int]] = {}
    for quota in quotas:
        for key, text in quota.used.items():
            if key in quota.hard and not is_of_limits(key):
                by_resource, name = used.setdefault(quota.namespace, {}), resource_of(key)
                by_resource[name] = max(by_resource.get(name, 0), amount_of(key, text))
    return used


def free_capacity(quotas: Sequence[ResourceQuota]) -> Free:
    """Returns the unused amount of each limit, by ResourceQuota and key."""
    return {
        (quota.place, key): amount_of(key, text) - amount_of(key, quota.used.get(key, "0"))
        for quota in quotas
        for key, text in quota.hard.items()
    }


def take(
    free: Free,
    quotas: Iterable[ResourceQuota],
    count: int,
    request: Resources,
    limits: Resources,
) -> int:
    """Returns how many of `count` equal pods these quotas admit, and subtracts them from `free`."""
    sizes = {
        (quota.place, key): (limits if is_of_limits(key) else request).get(resource_of(key), 0)
        for quota in quotas
        for key in quota.hard
    }
    fitting = (max(free[at], 0) // size for at, size in sizes.items() if size)
    admitted = min([count, *fitting])
    for at, size in sizes.items():
        free[at] -= admitted * size
    return admitted
