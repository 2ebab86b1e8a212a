"""What a watch says, and whether that is all there was to say.

The rule (KEP-5504: versions of one resource compare as integers; events come in their order): a
watch from version S has told every change up to R once it has told anything of R or later. The end
of a stream, a pause and a time that is up prove nothing.

Barrier and watch of a resource go over one connection, so that they meet the same API server where
nobody stands between; one whose cache is behind is noticed even then.
"""

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
from dnm.kube.objects import path_of
from dnm.kube.pods import UNFINISHED
from dnm.kube.requests import read_item_versions, read_list_head
from dnm.kube.session import Session
from dnm.model.config import Config

# The server sends its bookmark two seconds before the end (cacher.go), so this is the least that
# gets one; and how long it may take to send all that.
_WATCH_SECONDS = 3
_PATIENCE = 10.0
_LARGEST_EVENT = 1 << 23  # bytes; etcd takes objects of 1.5 MB
_LARGEST_ANSWER = 1 << 27
_NOBODY = "dnm-barrier"  # names no object
_VERSION = re.compile(r"[1-9][0-9]{0,18}|0")


class Why(StrEnum):
    """Why a run read the full list."""

    SMALL = "small"  # a cluster of which a list costs less than a wait
    FIRST = "first"  # nothing is kept
    DAMAGED = "damaged"  # what is kept can't be read
    FOREIGN = "foreign"  # it is another cluster's, another dnm's, or of other selectors
    DUE = "due"  # to compare with what is kept
    DISTRUSTED = "distrusted"  # a comparison has found a difference
    EXPIRED = "expired"  # 410: the server has no such old events any more
    BACKWARDS = "backwards"  # the cluster is at an older version than what is kept
    UNPROVED = "unproved"  # the watch ended before it had told everything
    INCONSISTENT = "inconsistent"  # a change of something that isn't there, or the like
    UNREADABLE = "unreadable"  # a pod or node that can't be reduced
    FORBIDDEN = "forbidden"  # no permission to watch, or to read the cluster's identity
    TOO_MUCH = "too-much"  # more has changed than a watch is read for
    FAILED = "failed"  # no answer, or none that is one
    PARTIAL = "partial"  # only namespaces may be listed


class NotProved(Exception):
    """What changed can't be told for sure: the full list must be read."""

    def __init__(self, why: Why, sentence: str) -> None:
        super().__init__(sentence)
        self.why = why


class Change(msgspec.Struct, frozen=True):
    """One event of a watch. `raw` is the object, of a deleted one as it was before."""

    type: str  # ADDED | MODIFIED | DELETED
    version: int
    namespace: str
    name: str
    uid: str
    raw: bytes


class Witness(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The thing that changed last, as it was then; `version` 0: it was no more. If it is another
    now, and nobody has told why, then this is not the history that was watched: a cluster restored
    from a backup counts its versions once more."""

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
    """Returns a resourceVersion as the number that it is compared by. Raises ValueError."""
    if not _VERSION.fullmatch(text):
        raise ValueError(f"{clean(text, 40)!r} is no resourceVersion that can be compared")
    return int(text)


class WatchLog:
    """The changes of one resource after version `since`; proved once it has reached `goal`.

    `witness` is looked up at the goal. What is kept was listed at version `listed`, which may be
    later than the last change in it: what is told of up to there must have ended by then. A change
    later than `last` is left out of `changes`: it belongs to a moment after the one that is wanted.
    `most`: the largest number of changes that is worth following; None: no limit.
    """

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
        self.reached = since  # the greatest version that was told
        self.witness = witness
        self._kind, self._goal = kind, goal
        self._last = last
        self._most = most

    @property
    def changes(self) -> list[Change]:
        """All changes up to the moment that is wanted."""
        if self._last is None:
            return self._told
        return [change for change in self._told if change.version <= self._last]

    @property
    def is_proved(self) -> bool:
        """Whether every change up to the goal has been told."""
        return self.reached >= self._goal

    @property
    def version(self) -> int:
        """The version of the last change: what a bookmark adds is nothing to go on from."""
        return self.changes[-1].version if self.changes else self._since

    @property
    def last_witness(self) -> Witness:
        """What changed last of all."""
        return _as_witness(self.changes[-1]) if self.changes else self.witness

    def check_ends(self, kept: Iterable[str], key: Callable[[Change], str]) -> None:
        """Raises NotProved unless all that was told of up to the list had ended by then, and is not
        among what the list had: its keys."""
        if not self._before:
            return
        known = set(kept)
        for change in self._before.values():
            if change.type != "DELETED" or key(change) in known:
                raise NotProved(
                    Why.BACKWARDS,
                    f"{change.type} of {change.name} at version {change.version} is not what was "
                    f"listed at {self._listed}: was the cluster restored from a backup?",
                )

    def check_witness(self, found: int) -> None:
        """Raises NotProved unless the witness was at version `found` (0: it was not there) when the
        goal was read, as it must have been by all that was told."""
        known = self.witness
        name = (known.namespace, known.name)
        for change in self._told:
            if change.version <= self._goal and (change.namespace, change.name) == name:
                known = _as_witness(change)
        if known.version != found:
            raise NotProved(
                Why.BACKWARDS,
                f"{'/'.join(filter(None, name))} is at version {found}, and was last told of at "
                f"{known.version}: was the cluster restored from a backup?",
            )

    def take(self, line: bytes | memoryview) -> None:
        """Takes one event of the stream; raises NotProved where it says that the others are lost,
        or is none."""
        try:
            event = _decode_event(line)
            if event.type == "ERROR":
                raise _as_lost(_decode_status(event.object))
            found = _decode_object(event.object)
            version = read_version(found.metadata.resource_version)
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            raise NotProved(Why.FAILED, f"an event can't be understood: {clean(str(error))}") from (
                error
            )
        if found.kind != self._kind:
            raise NotProved(Why.FAILED, f"an event is of a {clean(found.kind, 40)!r}")
        is_bookmark = event.type == "BOOKMARK"
        if version < self.reached or (version == self.reached and not is_bookmark):
            raise NotProved(Why.INCONSISTENT, f"version {version} came after {self.reached}")
        self.reached = version
        if is_bookmark:
            return
        if event.type not in ("ADDED", "MODIFIED", "DELETED"):
            raise NotProved(Why.FAILED, f"an event is {clean(event.type, 40)!r}")
        metadata = found.metadata
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
    what = clean(status.message) or f"{status.code} {clean(status.reason, 40)}"
    return NotProved(Why.EXPIRED if is_old else Why.FAILED, f"the server said: {what}")


# --- over HTTP -----------------------------------------------------------------------------------


class Watched(msgspec.Struct, frozen=True):
    """A resource that is watched, by which field selector; `rule`: the permission that it takes."""

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
        namespace = witness.namespace or "kube-system" if what.is_namespaced else None
        path = path_of(what.plural, namespace=namespace)
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


Watchers: TypeAlias = tuple[Watcher, Watcher]  # of nodes and pods
OpenWatchers: TypeAlias = Callable[[Access, Config], AbstractContextManager[Watchers]]


@contextmanager
def watch_over_http(access: Access, config: Config) -> Iterator[Watchers]:
    """Each over a connection of its own, so that both wait at the same time."""
    timeout = config.request_timeout
    watchers = Watcher(access, timeout, NODES), Watcher(access, timeout, PODS)
    try:
        yield watchers
    finally:
        for watcher in watchers:
            watcher.close()
