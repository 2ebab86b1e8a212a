"""ResourceQuotas as values, and their limits in dnm's names and units."""

from __future__ import annotations

from collections.abc import Mapping

from dnm.model.errors import QueueError
from dnm.model.quantity import QuantityError, format_amount, parse_kubernetes
from dnm.model.value import Value

_PLAIN = ("cpu", "memory", "pods", "ephemeral-storage")


class ResourceQuota(Value):
    """A ResourceQuota. `hard`: the limits that nodes raise. `ready`: the limits that
    its controller has taken over. `used`: as
    its controller reports it. `manifest`: the limits that a manifest has set last. `changed`: when
    a client wrote limits or annotations last (RFC 3339). `other_scopes`: its scopes that ordinary
    pods are not in."""

    namespace: str
    name: str
    version: str
    hard: Mapping[str, str]
    used: Mapping[str, str] = {}
    ready: Mapping[str, str] = {}
    annotations: Mapping[str, str] = {}
    manifest: Mapping[str, str] = {}
    changed: str = ""
    other_scopes: tuple[str, ...] = ()

    @property
    def place(self) -> str:
        return f"{self.namespace}/{self.name}"

    @property
    def is_ready(self) -> bool:
        """Returns whether its controller has taken over these limits."""
        return all(are_equal(key, text, self.ready.get(key, "")) for key, text in self.hard.items())


def resource_of(key: str) -> str:
    """Returns dnm's name of the resource that a limit counts; empty if no node raises it."""
    name = key.removeprefix("requests.").removeprefix("limits.")
    if name in _PLAIN or name.startswith("hugepages-") or key == "count/pods":
        return {"cpu": "vcore", "count/pods": "pods"}.get(name, name)
    return name if key.startswith("requests.") and "/" in name else ""


def is_of_limits(key: str) -> bool:
    """Returns whether a quota counts the limits of pods under this key, instead of requests."""
    return key.startswith("limits.")


def amount_of(key: str, text: str) -> int:
    """Returns an amount in dnm's units. Raises QueueError if it is no quantity."""
    try:
        return parse_kubernetes(resource_of(key), text)
    except QuantityError as error:
        raise QueueError(f"cannot read the limit {key} = {text}: {error}") from error


def text_of(key: str, amount: int) -> str:
    """Returns a quantity of Kubernetes, in the largest exact unit."""
    return format_amount(resource_of(key), amount)


def are_equal(key: str, text: str, other: str) -> bool:
    """Returns whether two quantities are equal; False if the other is missing."""
    return bool(other) and amount_of(key, text) == amount_of(key, other)
