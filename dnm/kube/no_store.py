"""The first run, and every run of a small cluster: it pays nothing for what large ones need."""

from __future__ import annotations

from datetime import datetime
from typing import Protocol

from dnm.kube.access import Access
from dnm.kube.pods import PodReducer
from dnm.kube.requests import ApiRequests
from dnm.model.config import Config
from dnm.model.node import Node
from dnm.model.pod import PodList
from dnm.model.reading import Reading


class Reflects(Protocol):
    """What an earlier run has kept, as `reflector.Reflector` has it."""

    nodes: tuple[Node, ...]
    pods: PodList

    def look(self, access: Access, requests: ApiRequests) -> bool: ...
    def learn_nodes(self, nodes: tuple[Node, ...], version: str) -> None: ...
    def learn_pods(self, reducer: PodReducer, version: str) -> None: ...
    def keep(self, access: Access, requests: ApiRequests) -> Reading: ...


def open_reflector(config: Config, now: datetime) -> Reflects:
    """Returns what an earlier run has kept; its code is loaded where there is something."""
    if not config.store_path.exists():
        return NothingKept(config, now)
    from dnm.kube.reflector import Reflector

    return Reflector(config, now)


class NothingKept:
    """Lists are read; whether they are kept for the next run is asked when they are known."""

    def __init__(self, config: Config, now: datetime) -> None:
        self._config, self._now = config, now
        self._nodes: tuple[tuple[Node, ...], str] | None = None
        self._pods: tuple[PodReducer, str] | None = None
        self._count = -1  # of pods; none was listed
        self.nodes: tuple[Node, ...] = ()
        self.pods = PodList(pods=())

    def look(self, access: Access, requests: ApiRequests) -> bool:
        """Knows nothing."""
        return False

    def learn_nodes(self, nodes: tuple[Node, ...], version: str) -> None:
        """Takes the full list of nodes."""
        self._nodes = nodes, version

    def learn_pods(self, reducer: PodReducer, version: str) -> None:
        """Takes the full list of the whole cluster's pods, if a run may ask for it again."""
        self._count = len(reducer.pods)
        if self._config.relist_interval and self._count >= self._config.watch_from_pods:
            self._pods = reducer, version

    def keep(self, access: Access, requests: ApiRequests) -> Reading:
        """Writes the store where it will be of use; returns how this run has read."""
        if not self._config.relist_interval:
            return Reading(reason="off", sentence="relist_minutes is 0")
        if self._nodes is None or self._count < 0:
            return Reading(reason="partial", sentence="not all of the cluster was listed")
        if self._pods is None:
            return Reading(
                reason="small",
                sentence=f"there are fewer than {self._config.watch_from_pods:,} pods",
            )
        from dnm.kube.reflector import Reflector

        reflector = Reflector(self._config, self._now)
        reflector.look(access, requests)
        reflector.learn_nodes(*self._nodes)
        reflector.learn_pods(*self._pods)
        return reflector.keep(access, requests)
