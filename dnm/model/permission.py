"""A permission that dnm needs in the Kubernetes API."""

from __future__ import annotations

from dnm.model.value import Value


class Permission(Value, frozen=True):
    """A permission in Kubernetes. `is_needed` is False if runs without it only lack some facts."""

    verb: str
    resource: str  # with its subresource: pods/eviction
    without: str  # the effect if it is missing
    namespace: str = ""  # empty: cluster-wide
    name: str = ""
    group: str = ""
    is_needed: bool = True
    role: str = "rbac.yaml"  # the file in etc/ that grants it
