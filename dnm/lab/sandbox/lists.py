"""Lists: selectors, consistent pages, and watches.

The token of a page refers to the list at the time of the first page, like a revision of etcd. An
expired token leads to status 410."""

from __future__ import annotations

import re
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping

import msgspec

from dnm.lab.sandbox.http_values import ServerAnswer, is_asked_for
from dnm.lab.sandbox.kinds import Kind
from dnm.lab.sandbox.matching import Test, field_test, label_test
from dnm.lab.sandbox.store import ApiError, Event, Object, Objects, StoredObject

_SNAPSHOTS_KEPT = 100
_WATCH_POLL_SECONDS = 1.0


class Lists:
    """The handler of list and watch requests. Callers hold the store's lock."""

    def __init__(self, store: Objects) -> None:
        self.store = store
        self._snapshots: OrderedDict[str, tuple[int, list[StoredObject]]] = OrderedDict()
        self._counter = 0

    def page(self, kind: Kind, namespace: str, query: Mapping[str, str]) -> ServerAnswer:
        """Returns a page of a list. Raises 400 for a wrong query, 410 for an expired token."""
        limit = _limit(query)
        token = query.get("continue", "")
        snapshot, start = _read_token(token) if token else ("", 0)
        if token:
            version, entries = self._continued(snapshot, start)
        else:
            version, entries = self.store.version, self.selected(kind, namespace, query)
        end = min(start + limit, len(entries)) if limit else len(entries)
        metadata: Object = {"resourceVersion": str(version)}
        if end < len(entries):
            metadata["continue"] = self._token(snapshot, version, entries, end)
            if not _is_selective(query):
                metadata["remainingItemCount"] = len(entries) - end
        head = msgspec.json.encode(
            {"kind": f"{kind.name}List", "apiVersion": kind.api_version, "metadata": metadata}
        )
        items = b",".join(_raw(kind, entry) for entry in entries[start:end])
        return ServerAnswer(body=head[:-1] + b',"items":[' + items + b"]}\n")

    def selected(self, kind: Kind, namespace: str, query: Mapping[str, str]) -> list[StoredObject]:
        test = _test(kind, query)
        return [entry for entry in self.store.entries(kind.plural, namespace) if test(entry.data)]

    def _continued(self, snapshot: str, start: int) -> tuple[int, list[StoredObject]]:
        if snapshot not in self._snapshots:
            message = (
                "The provided continue parameter is too old to display a consistent list result."
            )
            raise ApiError(410, message)
        return self._snapshots[snapshot]

    def _token(self, snapshot: str, version: int, entries: list[StoredObject], end: int) -> str:
        if not snapshot:
            self._counter += 1
            snapshot = f"snapshot{self._counter}"
            self._snapshots[snapshot] = (version, entries)
            while len(self._snapshots) > _SNAPSHOTS_KEPT:
                self._snapshots.popitem(last=False)
        return f"{snapshot}.{end}"

    # --- watches ----------------------------------------------------------------------------

    def watch(self, kind: Kind, namespace: str, query: Mapping[str, str]) -> ServerAnswer:
        """Returns a stream of the changes after `resourceVersion`, for `timeoutSeconds` of real
        time. As in the API server, a future version is no error. Bookmarks are sent as soon as no
        change is left, since the API does not specify how often."""
        since = query.get("resourceVersion", "")
        backlog: list[tuple[str, Object]] = []
        if since in ("", "0"):
            backlog = [("ADDED", e.data) for e in self.selected(kind, namespace, query)]
            version = self.store.version
        else:
            version = int(since)
        if version < self.store.events_after and since not in ("", "0"):
            expired = ApiError(
                410, f"too old resource version: {since} ({self.store.events_after})",
                reason="Expired",
            )  # fmt: skip
            event = {"type": "ERROR", "object": expired.status()}
            return ServerAnswer(stream=iter([msgspec.json.encode(event) + b"\n"]))
        return ServerAnswer(stream=self._stream(kind, _event_test(kind, namespace, query), backlog,
                                          version, query))  # fmt: skip

    def _stream(
        self,
        kind: Kind,
        describe: Callable[[Event], tuple[str, Object] | None],
        backlog: list[tuple[str, Object]],
        version: int,
        query: Mapping[str, str],
    ) -> Iterator[bytes]:
        deadline = time.monotonic() + float(query.get("timeoutSeconds") or 300)
        wants_bookmarks = is_asked_for(query, "allowWatchBookmarks")
        sent_version = version  # an API server sends no bookmark of a version that it has sent
        while True:
            if backlog:
                yield b"".join(_watch_line(kind, name, data) for name, data in backlog)
            if wants_bookmarks and version > sent_version:
                sent_version = version
                metadata = {"resourceVersion": str(version), "creationTimestamp": None}
                yield _watch_line(kind, "BOOKMARK", {"metadata": metadata})
            with self.store.changed:
                if self.store.version <= version:
                    left = max(deadline - time.monotonic(), 0.0)
                    self.store.changed.wait(min(_WATCH_POLL_SECONDS, left))
                fresh = [event for event in self.store.events if event.version > version]
                version = max(version, self.store.version)
            mine = [event for event in fresh if event.plural == kind.plural]
            sent_version = mine[-1].version if mine else sent_version
            backlog = [line for line in map(describe, mine) if line is not None]
            if time.monotonic() >= deadline:
                return


def _raw(kind: Kind, entry: StoredObject) -> bytes:
    is_renamed = kind.group == EVENTS
    return msgspec.json.encode(event_from_core(entry.data)) if is_renamed else entry.raw


def _event_test(
    kind: Kind, namespace: str, query: Mapping[str, str]
) -> Callable[[Event], tuple[str, Object] | None]:
    """Returns a function that makes a watch event of a change. With selectors, an object that
    begins to match is ADDED, one that stops is DELETED (convertToWatchEvent, watch_cache.go)."""
    test = _test(kind, query)

    def matches(entry: StoredObject | None) -> bool:
        if entry is None:
            return False
        in_namespace = namespace in ("", entry.data["metadata"].get("namespace", ""))
        return in_namespace and test(entry.data)

    def tell(event: Event) -> tuple[str, Object] | None:
        is_now = event.type != "DELETED" and matches(event.entry)
        was = matches(event.before)
        if not (is_now or was):
            return None
        if is_now:
            return ("MODIFIED" if was else "ADDED"), event.entry.data
        assert event.before is not None
        data = event.before.copy()
        data["metadata"]["resourceVersion"] = str(event.version)
        return "DELETED", data

    return tell


def document(kind: Kind, data: Object) -> Object:
    """Returns an object with kind and apiVersion, which lists omit but a single object has."""
    if kind.group == EVENTS:
        data = event_from_core(data)
    return {"kind": kind.name, "apiVersion": kind.api_version, **data}


def _watch_line(kind: Kind, name: str, data: Object) -> bytes:
    return msgspec.json.encode({"type": name, "object": document(kind, data)}) + b"\n"


def _read_token(token: str) -> tuple[str, int]:
    """Returns the list that a page's token names, and how many entries precede. Raises 400."""
    snapshot, _, start = token.partition(".")
    if not snapshot or not start.isdecimal():
        raise ApiError(400, "continue key is not valid")
    return snapshot, int(start)


def _test(kind: Kind, query: Mapping[str, str]) -> Test:
    by_label = label_test(query.get("labelSelector", ""))
    by_field = field_test(kind.plural, query.get("fieldSelector", ""))
    return lambda item: by_field(item) and by_label(item)


def _is_selective(query: Mapping[str, str]) -> bool:
    return bool(query.get("labelSelector") or query.get("fieldSelector"))


def _limit(query: Mapping[str, str]) -> int:
    text = query.get("limit") or "0"
    if not text.isdecimal():
        raise ApiError(400, f'strconv.ParseInt: parsing "{text}": invalid syntax')
    return int(text)


# --- events --------------------------------------------------------------------------------------
#
# An event is stored once, in core's form, and served in two groups. The rules of
# events.k8s.io/v1 are from kubernetes pkg/apis/core/validation/events.go (1.34).

_NAMES = {"regarding": "involvedObject", "note": "message", "reportingController":
          "reportingComponent", "deprecatedFirstTimestamp": "firstTimestamp",
          "deprecatedLastTimestamp": "lastTimestamp", "deprecatedCount": "count",
          "deprecatedSource": "source"}  # fmt: skip
_MICRO_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z")
_QUALIFIED = re.compile(r"([a-z0-9.-]{1,253}/)?[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")
EVENTS = "events.k8s.io"


def event_to_core(manifest: Object) -> Object:
    """Converts an Event of events.k8s.io/v1 to the stored form. Raises 422 if it is invalid."""
    wrong = list(_violations(manifest))
    if wrong:
        name = manifest.get("metadata", {}).get("name", "")
        raise ApiError(422, f'Event.events.k8s.io "{name}" is invalid: {"; ".join(wrong)}')
    return {_NAMES.get(field, field): value for field, value in manifest.items()}


def event_from_core(data: Object) -> Object:
    """Converts a stored Event to the form of events.k8s.io/v1."""
    back = {core: field for field, core in _NAMES.items()}
    return {back.get(field, field): value for field, value in data.items()}


def _violations(event: Object) -> Iterator[str]:
    regarding = event.get("regarding") or {}
    namespace = event["metadata"].get("namespace", "")
    if regarding.get("namespace", "") != namespace and not (
        not regarding.get("namespace") and namespace in ("default", "kube-system")
    ):
        yield "involvedObject.namespace: Invalid value: does not match event.namespace"
    if not _MICRO_TIME.fullmatch(event.get("eventTime") or ""):
        yield "eventTime: Required value"
    if event.get("type") not in ("Normal", "Warning"):
        yield f"type: Invalid value: {event.get('type')!r}"
    if not _QUALIFIED.fullmatch(event.get("reportingController") or ""):
        yield "reportingController: Invalid value"
    for field in ("reportingInstance", "action", "reason"):
        if not 0 < len((event.get(field) or "").encode()) <= 128:
            yield f"{field}: can have at most 128 characters"
    if len((event.get("note") or "").encode()) > 1024:
        yield "message: can have at most 1024 characters"
    yield from (f"{f}: needs to be unset" for f in _NAMES if f.startswith("dep") and event.get(f))
