"""An API permission of dnm."""

from __future__ import annotations

from dnm.model.value import Value


class Permission(Value, frozen=True):
    """A permission that runs use. `is_needed` is False if a run without it has only fewer facts."""

    verb: str
    resource: str  # with its subresource: pods/eviction
    without: str  # the effect if it is missing
    namespace: str = ""  # empty: cluster-wide
    name: str = ""
    group: str = ""
    is_needed: bool = True
