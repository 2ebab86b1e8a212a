"""One resource over one connection: what version is now, and what came after an older one.

Barrier and watch go over the same connection, so that they meet the same API server where nobody
stands between (a server whose cache is behind is noticed even then: `watch_log.py`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from datetime import timedelta
from typing import Protocol, TypeAlias
from urllib.parse import quote, urlencode

import msgspec

from dnm.host.fault_points import fault_point
from dnm.kube.access import Access
from dnm.kube.errors import asking
from dnm.kube.lists import read_item_versions, read_list_head
from dnm.kube.pods import UNFINISHED
from dnm.kube.session import Session
from dnm.kube.watch_log import NotProved, WatchLog, Why, Witness, read_version
from dnm.model.config import Config

# The server sends its bookmark two seconds before the end (cacher.go), so this is the least that
# gets one; and how long it may take to send all that.
_WATCH_SECONDS = 3
_PATIENCE = 10.0
_LARGEST_EVENT = 1 << 23  # bytes; etcd takes objects of 1.5 MB
_LARGEST_ANSWER = 1 << 27
_NOBODY = "dnm-barrier"  # names no object


class Watched(msgspec.Struct, frozen=True):
    """A resource that is watched: the `kind` of its objects, its path and field selector, and the
    path within a namespace, where it has namespaces. `rule`: the permission that it takes."""

    kind: str
    path: str
    rule: str
    selector: str = ""
    path_in_namespace: str = "{0}"  # {0}: the path; {1}: the namespace


PODS = Watched("Pod", "/api/v1/pods", "watch pods", UNFINISHED, "/api/v1/namespaces/{1}/pods")
NODES = Watched("Node", "/api/v1/nodes", "watch nodes")


class Watcher:
    """The barrier and the watch of one resource, over a session of its own, for it ends in the
    middle of an answer. Everything but NotProved is a KubeError."""

    def __init__(self, access: Access, timeout: timedelta, what: Watched) -> None:
        self._access = access
        self._session = Session(access, timeout)
        self._what = what
        self.waited = 0.0  # seconds for what the server had not yet to say
        self.bytes_read = 0

    def close(self) -> None:
        self._session.close()

    def read_barrier(self, witness: Witness) -> tuple[int, int]:
        """Returns a version at least as new as this moment, and that of the witness then (0: it is
        not there). It is a consistent list of one name in one namespace, which costs the server one
        look-up and one seat."""
        what = self._what
        named = f"metadata.name={witness.name or _NOBODY}"
        query = urlencode({"fieldSelector": ",".join(filter(None, (named, what.selector)))})
        namespace = quote(witness.namespace or "kube-system", safe="")
        path = what.path_in_namespace.format(what.path, namespace)
        with self._asking(), fault_point("kube.barrier"):
            body = self._session.read(f"{path}?{query}").body
            now = read_version(read_list_head(body, f"{what.kind}List").version)
            found = [read_version(text) for text in read_item_versions(body)]
            if len(found) > 1:
                raise ValueError("a list of one name has two objects")
            return now, sum(found)

    def _asking(self) -> AbstractContextManager[None]:
        return asking(self._access, f"watch {self._what.path}", self._what.rule)

    def begin(self, since: int) -> None:
        """Sends the request for what came after a version."""
        selectors = {"fieldSelector": self._what.selector} if self._what.selector else {}
        query = {
            **selectors,
            "watch": "true",
            "resourceVersion": str(since),
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(_WATCH_SECONDS),
        }
        with self._asking(), fault_point("kube.watch"):
            self._session.begin_lines(f"{self._what.path}?{urlencode(query)}", _PATIENCE)

    def follow(self, log: WatchLog) -> None:
        """Reads until the log is proved. Raises NotProved where the server ends before."""
        began = time.monotonic()
        with self._asking(), fault_point("kube.follow"):
            self._follow(log)
        self.waited = time.monotonic() - began

    def _follow(self, log: WatchLog) -> None:
        lines = self._session.read_lines(_LARGEST_EVENT)
        while not log.is_proved:
            line = next(lines, b"")
            if not line:
                raise NotProved(
                    Why.UNPROVED,
                    f"the watch of {self._what.path} ended before it had told everything",
                )
            self.bytes_read += len(line)
            if self.bytes_read > _LARGEST_ANSWER:
                raise NotProved(Why.TOO_MUCH, f"more than {_LARGEST_ANSWER} bytes have changed")
            log.take(line)


class Watches(Protocol):
    """One resource of a server, as `watching.Watcher` reads it."""

    waited: float

    def read_barrier(self, witness: Witness) -> tuple[int, int]: ...
    def begin(self, since: int) -> None: ...
    def follow(self, log: WatchLog) -> None: ...


OpenWatchers: TypeAlias = Callable[
    [Access, Config], AbstractContextManager[tuple[Watches, Watches]]
]


@contextmanager
def watch_over_http(access: Access, config: Config) -> Iterator[tuple[Watches, Watches]]:
    """Each over a connection of its own, so that both wait at the same time."""
    timeout = config.request_timeout
    watchers = Watcher(access, timeout, NODES), Watcher(access, timeout, PODS)
    try:
        yield watchers
    finally:
        for watcher in watchers:
            watcher.close()
