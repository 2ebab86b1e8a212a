"""Pods as eviction sees them."""

from __future__ import annotations

from dnm.model.printable import printable
from dnm.model.value import Value


class PodOnNode(Value, frozen=True):
    """An unfinished pod on a node."""

    namespace: str
    name: str
    uid: str
    stays: bool  # of a DaemonSet or NodeSet, or a mirror pod: never evicted
    is_terminating: bool
    loss: str = ""  # what an eviction would lose for good; empty: nothing
    is_work: bool = True  # False: of a DaemonSet, or a mirror pod; it keeps no node from being idle

    @property
    def key(self) -> str:
        """To be shown."""
        return printable(f"{self.namespace}/{self.name}")
