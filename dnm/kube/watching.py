"""The events of a watch, and the proof that they are complete.

Versions of one resource compare as integers, and events come in their order (KEP-5504). So a watch
from version S has sent every change up to R once it has sent an event of version R or later. The
end of a stream, a pause or a time-out proves nothing. A read, the barrier, gives R, the version of
the present moment. The barrier and the watch of a resource use one connection, so that they reach
the same API server if no proxy is in between. A server with an old cache is noticed even behind a
proxy."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from datetime import timedelta
from enum import StrEnum
from typing import TypeAlias
from urllib.parse import urlencode

import msgspec

from dnm.host.fault_points import fault_point
from dnm.kube.access import Access
from dnm.kube.errors import asking, clean
from dnm.kube.pods import UNFINISHED
from dnm.kube.requests import path_of, read_item_versions, read_list_head
from dnm.kube.session import Session
from dnm.model.config import Config

# The server sends its bookmark two seconds before the end (cacher.go), so this is the shortest time
# with a bookmark. `_PATIENCE` is the time for all of it.
_WATCH_SECONDS = 3
_PATIENCE = 10.0
_LARGEST_EVENT = 1 << 23  # bytes; etcd takes objects of 1.5 MB
_LARGEST_ANSWER = 1 << 27
_NOBODY = "dnm-barrier"  # names no object
_VERSION = re.compile(r"[1-9][0-9]{0,18}|0")


class Why(StrEnum):
    """The reason for which a run read the full list instead of the changes."""

    SMALL = "small"  # in a small cluster a list costs less than waiting
    FIRST = "first"  # there is no store
    DAMAGED = "damaged"  # the store is unreadable
    FOREIGN = "foreign"  # the store is of another cluster, another dnm, or other selectors
    DUE = "due"  # to compare the list with the store
    DISTRUSTED = "distrusted"  # a comparison has found a difference
    EXPIRED = "expired"  # 410: the server does not have such old events any more
    BACKWARDS = "backwards"  # the cluster has an older version than the store
    UNPROVED = "unproved"  # the watch ended before it was complete
    INCONSISTENT = "inconsistent"  # e.g. a change of a missing object
    UNREADABLE = "unreadable"  # a pod or node that dnm cannot reduce
    FORBIDDEN = "forbidden"  # no permission to watch, or to read the cluster's identity
    TOO_MUCH = "too-much"  # more changes than a watch is worth
    FAILED = "failed"  # no valid answer
    PARTIAL = "partial"  # only namespaces may be listed


class NotProved(Exception):
    """The error for changes that are not proved complete: the run must read the full list."""

    def __init__(self, why: Why, sentence: str) -> None:
        super().__init__(sentence)
        self.why = why


class Change(msgspec.Struct, frozen=True):
    """An event of a watch. `raw` is the object's JSON, at its last version if it was deleted."""

    type: str  # ADDED | MODIFIED | DELETED
    version: int
    namespace: str
    name: str
    uid: str
    raw: bytes


class Witness(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The object that changed last before the watch, and its version, 0 if it was deleted. It shows
    whether the cluster was restored from a backup and assigns versions a second time: then its
    version is another one, but the watch has sent no event about it."""

    namespace: str = ""
    name: str = ""
    version: int = 0


class _Event(msgspec.Struct, frozen=True):
    type: str
    object: msgspec.Raw


class _Metadata(msgspec.Struct, frozen=True, rename="camel"):
    resource_version: str
    name: str = ""
    namespace: str = ""
    uid: str = ""


class _Object(msgspec.Struct, frozen=True):
    kind: str
    metadata: _Metadata


class _Status(msgspec.Struct, frozen=True):
    code: int = 0
    reason: str = ""
    message: str = ""


_decode_event = msgspec.json.Decoder(_Event).decode
_decode_object = msgspec.json.Decoder(_Object).decode
_decode_status = msgspec.json.Decoder(_Status).decode


def read_version(text: str) -> int:
    """Returns a resourceVersion as a number for comparisons. Raises ValueError."""
    if not _VERSION.fullmatch(text):
        raise ValueError(f"{clean(text, 40)!r} is not a resourceVersion that dnm can compare")
    return int(text)


class WatchLog:
    """The changes of a resource after version `since`. They are complete once an event of version
    `goal` or later has arrived.

    `witness` is the object that changed last. The stored objects were listed at version `listed`,
    which may be later than `since`. An object that changed between the two must have been deleted
    before the list. `changes` ends at version `last`, if that is given. `most` is the largest
    number of changes that is worth following, or None."""

    def __init__(
        self,
        kind: str,
        since: int,
        goal: int,
        witness: Witness,
        last: int | None = None,
        listed: int = 0,
        most: int | None = None,
    ) -> None:
        kept = max(since, listed)
        if goal < kept:
            raise NotProved(
                Why.BACKWARDS,
                f"the server is at version {goal}, what is kept at {kept}: was it restored from a "
                "backup?",
            )
        self._before: dict[tuple[str, str, str], Change] = {}  # the last of each, up to the list
        self._told: list[Change] = []
        self._listed = listed
        self._since = since
        self.reached = since  # the highest version so far
        self.witness = witness
        self._kind, self._goal = kind, goal
        self._last = last
        self._most = most

    @property
    def changes(self) -> list[Change]:
        """Returns all changes up to `last`."""
        if self._last is None:
            return self._told
        return [change for change in self._told if change.version <= self._last]

    @property
    def is_proved(self) -> bool:
        """Returns whether every change up to version `goal` has arrived."""
        return self.reached >= self._goal

    @property
    def version(self) -> int:
        """Returns the version of the last change. Bookmarks do not count."""
        return self.changes[-1].version if self.changes else self._since

    @property
    def last_witness(self) -> Witness:
        """Returns the object that changed last, which is the witness for the next run."""
        return _as_witness(self.changes[-1]) if self.changes else self.witness

    def check_ends(self, kept: Iterable[str], key: Callable[[Change], str]) -> None:
        """Raises NotProved if the watch contradicts the full list, which has the keys `kept`. An
        object that changed between the newest listed one and the list must have been deleted."""
        if not self._before:
            return
        listed_keys = set(kept)
        for change in self._before.values():
            if change.type != "DELETED" or key(change) in listed_keys:
                raise NotProved(
                    Why.BACKWARDS,
                    f"{change.type} of {change.name} at version {change.version} contradicts the "
                    f"list at version {self._listed}: was the cluster restored from a backup?",
                )

    def check_witness(self, version: int) -> None:
        """Raises NotProved if the witness's last event does not agree with `version`, which the
        witness had when the goal was read (0 if it did not exist)."""
        expected = self.witness
        name = (expected.namespace, expected.name)
        for change in self._told:
            if change.version <= self._goal and (change.namespace, change.name) == name:
                expected = _as_witness(change)
        if expected.version != version:
            raise NotProved(
                Why.BACKWARDS,
                f"{'/'.join(filter(None, name))} is at version {version}, but its last event "
                f"was at {expected.version}: was the cluster restored from a backup?",
            )

    def take(self, line: bytes | memoryview) -> None:
        """Adds one line of the watch. Raises NotProved if it is invalid or reports lost events."""
        try:
            event = _decode_event(line)
            if event.type == "ERROR":
                raise _as_lost(_decode_status(event.object))
            document = _decode_object(event.object)
            version = read_version(document.metadata.resource_version)
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            raise NotProved(Why.FAILED, f"an event can't be understood: {clean(str(error))}") from (
                error
            )
        if document.kind != self._kind:
            raise NotProved(Why.FAILED, f"an event is of a {clean(document.kind, 40)!r}")
        is_bookmark = event.type == "BOOKMARK"
        if version < self.reached or (version == self.reached and not is_bookmark):
            raise NotProved(Why.INCONSISTENT, f"version {version} came after {self.reached}")
        self.reached = version
        if is_bookmark:
            return
        if event.type not in ("ADDED", "MODIFIED", "DELETED"):
            raise NotProved(Why.FAILED, f"an event is {clean(event.type, 40)!r}")
        metadata = document.metadata
        change = Change(
            event.type, version, metadata.namespace, metadata.name, metadata.uid,
            bytes(event.object),
        )  # fmt: skip
        if version > self._listed:
            self._told.append(change)
            if self._most is not None and len(self._told) > self._most:
                raise NotProved(
                    Why.TOO_MUCH, f"more than {self._most:,} changes of a {self._kind} since then"
                )
        else:
            self._before[change.namespace, change.name, change.uid] = change


def _as_witness(change: Change) -> Witness:
    version = 0 if change.type == "DELETED" else change.version
    return Witness(change.namespace, change.name, version)


def _as_lost(status: _Status) -> NotProved:
    is_old = status.code == 410 or status.reason in ("Expired", "Gone")
    message = clean(status.message) or f"{status.code} {clean(status.reason, 40)}"
    return NotProved(Why.EXPIRED if is_old else Why.FAILED, f"the server answered: {message}")


# --- over HTTP -----------------------------------------------------------------------------------


class Watched(msgspec.Struct, frozen=True):
    """A resource to watch, with its field selector. `rule` is the permission for that."""

    kind: str
    plural: str
    rule: str
    selector: str = ""
    is_namespaced: bool = False

    @property
    def path(self) -> str:
        return path_of(self.plural)


PODS = Watched("Pod", "pods", "watch pods", UNFINISHED, is_namespaced=True)
NODES = Watched("Node", "nodes", "watch nodes")


class Watcher:
    """The watch of one resource, and the read of the version that it must reach. It has its own
    session, as a watch ends in the middle of an answer. Methods raise NotProved or KubeError."""

    def __init__(self, access: Access, timeout: timedelta, resource: Watched) -> None:
        self._access = access
        self._session = Session(access, timeout)
        self._what = resource
        self.waited = 0.0  # seconds of waiting for new events
        self.bytes_read = 0

    def close(self) -> None:
        self._session.close()

    def read_barrier(self, witness: Witness) -> tuple[int, int]:
        """Returns the server's present version, which a watch must reach, and that of the object in
        `witness` (0 if it is missing). Lists one name, so that this costs the server one look-up
        and one seat of priority and fairness."""
        resource = self._what
        named = f"metadata.name={witness.name or _NOBODY}"
        query = urlencode({"fieldSelector": ",".join(filter(None, (named, resource.selector)))})
        namespace = witness.namespace or "kube-system" if resource.is_namespaced else None
        path = path_of(resource.plural, namespace=namespace)
        with self._asking(), fault_point("kube.barrier"):
            body = self._session.read(f"{path}?{query}").body
            now = read_version(read_list_head(body, f"{resource.kind}List").version)
            versions = [read_version(text) for text in read_item_versions(body)]
            if len(versions) > 1:
                raise ValueError("a list of one name has two objects")
            return now, sum(versions)

    def _asking(self) -> AbstractContextManager[None]:
        return asking(self._access, f"watch {self._what.path}", self._what.rule)

    def begin(self, since: int) -> None:
        """Requests the watch's events after version `since`."""
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
        """Reads until the log has all changes. Raises NotProved if the watch ends before that."""
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
                    f"the watch of {self._what.path} ended before it was complete",
                )
            self.bytes_read += len(line)
            if self.bytes_read > _LARGEST_ANSWER:
                raise NotProved(Why.TOO_MUCH, f"more than {_LARGEST_ANSWER} bytes have changed")
            log.take(line)


Watchers: TypeAlias = tuple[Watcher, Watcher]  # of nodes and pods
OpenWatchers: TypeAlias = Callable[[Access, Config], AbstractContextManager[Watchers]]


@contextmanager
def watch_over_http(access: Access, config: Config) -> Iterator[Watchers]:
    """Yields the watchers of nodes and pods. Each has its own connection, so both wait at once."""
    timeout = config.request_timeout
    watchers = Watcher(access, timeout, NODES), Watcher(access, timeout, PODS)
    try:
        yield watchers
    finally:
        for watcher in watchers:
            watcher.close()
