"""What a watch has said so far, and whether that is all there was to say.

The rule (KEP-5504: versions of one resource compare as integers; events come in their order): a
watch from version S has told every change up to R once it has told anything of R or later. The end
of a stream, a pause and a time that is up prove nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from enum import StrEnum

import msgspec

from dnm.kube.errors import clean

_VERSION = re.compile(r"[1-9][0-9]{0,18}|0")


class Why(StrEnum):
    """Why a run read the full list."""

    OFF = "off"  # the configuration wants it so
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
    """

    def __init__(
        self,
        kind: str,
        since: int,
        goal: int,
        witness: Witness,
        last: int | None = None,
        listed: int = 0,
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
        else:
            self._before[change.namespace, change.name, change.uid] = change


def _as_witness(change: Change) -> Witness:
    version = 0 if change.type == "DELETED" else change.version
    return Witness(change.namespace, change.name, version)


def _as_lost(status: _Status) -> NotProved:
    is_old = status.code == 410 or status.reason in ("Expired", "Gone")
    what = clean(status.message) or f"{status.code} {clean(status.reason, 40)}"
    return NotProved(Why.EXPIRED if is_old else Why.FAILED, f"the server said: {what}")
