"""Objects with resourceVersions, as the Kubernetes API keeps them.

A write replaces the stored object. A write without a change keeps the object and its
resourceVersion. Readers share objects and must not modify them; `fetch` returns a copy. One lock
protects all objects; each caller acquires it."""

from __future__ import annotations

import random
import threading
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import msgspec

from dnm.lab.sandbox.clock import Clock
from dnm.lab.sandbox.kinds import KINDS, Kind

Object = dict[str, Any]
_REASONS = {
    400: "BadRequest", 401: "Unauthorized", 403: "Forbidden", 404: "NotFound", 409: "Conflict",
    405: "MethodNotAllowed", 410: "Expired", 415: "UnsupportedMediaType", 422: "Invalid",
    429: "TooManyRequests", 500: "InternalError", 503: "ServiceUnavailable",
}  # fmt: skip
_EVENTS_KEPT = 20_000
_KEPT_FIELDS = (
    "uid", "creationTimestamp", "generation", "deletionTimestamp", "deletionGracePeriodSeconds",
    "resourceVersion",
)  # fmt: skip


class ApiError(Exception):
    """The error for an answer that is not 2xx, with the fields of a Kubernetes Status."""

    def __init__(
        self,
        code: int,
        message: str,
        *,
        reason: str = "",
        retry_after: int | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.reason = reason or _REASONS.get(code, "Unknown")
        self.retry_after = retry_after

    def status(self) -> Object:
        details = {} if self.retry_after is None else {"retryAfterSeconds": self.retry_after}
        return {
            "kind": "Status", "apiVersion": "v1", "status": "Failure",
            "metadata": {}, "message": self.message,
            "reason": self.reason, "details": details, "code": self.code,
        }  # fmt: skip


class StoredObject:
    """A stored object, without `kind` and `apiVersion`. Its JSON is encoded when first needed."""

    __slots__ = ("_raw", "data")

    def __init__(self, data: Object) -> None:
        self.data = data
        self._raw: bytes | None = None

    @property
    def raw(self) -> bytes:
        if self._raw is None:
            self._raw = msgspec.json.encode(self.data)
        return self._raw

    def copy(self) -> Object:
        return copied(self.raw)


class Event(NamedTuple):
    """A change of an object, which watches report."""

    version: int
    type: str  # ADDED | MODIFIED | DELETED
    plural: str
    entry: StoredObject
    before: StoredObject | None = None


def copied(raw: bytes) -> Object:
    value: Object = msgspec.json.decode(raw)
    return value


def copy_of(value: Object) -> Object:
    return copied(msgspec.json.encode(value))


class Objects:
    """All objects of the cluster. Every method is called with `lock` held."""

    def __init__(self, clock: Clock, seed: int = 0) -> None:
        self.clock = clock
        self.lock = threading.RLock()
        self.changed = threading.Condition(self.lock)
        self.version = 1
        self.events: deque[Event] = deque(maxlen=_EVENTS_KEPT)
        self.events_after = 0  # every later one is there: a watch from before it is told 410
        self.observers: list[Callable[[Event], None]] = []
        self._random = random.Random(seed)
        self._objects: dict[str, dict[tuple[str, str], StoredObject]] = {
            plural: {} for plural in KINDS
        }

    # --- reading ----------------------------------------------------------------------------

    def entry(self, plural: str, namespace: str, name: str) -> StoredObject | None:
        return self._objects[plural].get((namespace, name))

    def get(self, plural: str, namespace: str, name: str) -> Object | None:
        """Returns the stored object, which the caller must not change."""
        entry = self.entry(plural, namespace, name)
        return entry.data if entry else None

    def require(self, plural: str, namespace: str, name: str) -> StoredObject:
        entry = self.entry(plural, namespace, name)
        if entry is None:
            raise ApiError(404, f'{_qualified(KINDS[plural])} "{name}" not found')
        return entry

    def fetch(self, plural: str, namespace: str, name: str) -> Object:
        return self.require(plural, namespace, name).copy()

    def entries(self, plural: str, namespace: str = "") -> list[StoredObject]:
        """Returns the stored objects sorted by namespace and name, as the API lists them."""
        objects = self._objects[plural]
        keys = sorted(key for key in objects if not namespace or key[0] == namespace)
        return [objects[key] for key in keys]

    def objects(self, plural: str, namespace: str = "") -> Iterator[Object]:
        """Yields the stored objects, unsorted. Other writes may happen during the iteration."""
        for key, entry in list(self._objects[plural].items()):
            if not namespace or key[0] == namespace:
                yield entry.data

    # --- writing ----------------------------------------------------------------------------

    def create(self, plural: str, manifest: Object, *, dry_run: bool = False) -> Object:
        """Stores a new object. Raises 409 AlreadyExists, and 404 for an unknown namespace."""
        kind = KINDS[plural]
        fresh = copy_of(manifest)
        meta = fresh.setdefault("metadata", {})
        if not meta.get("name") and meta.get("generateName"):
            meta["name"] = meta["generateName"] + self.suffix()
        key = (meta.get("namespace", "") if kind.namespaced else "", meta["name"])
        if key in self._objects[plural]:
            message = f'{_qualified(kind)} "{meta["name"]}" already exists'
            raise ApiError(409, message, reason="AlreadyExists")
        if kind.namespaced and self.get("namespaces", "", key[0]) is None:
            raise ApiError(404, f'namespaces "{key[0]}" not found')
        _strip_type(fresh)
        meta["uid"] = self._uid()
        meta["creationTimestamp"] = self.clock.stamp()
        meta.pop("deletionTimestamp", None)
        if kind.has_generation:
            meta["generation"] = 1
        if dry_run:
            return fresh
        return self._put(plural, key, fresh, "ADDED")

    def update(self, plural: str, changed: Object, *, dry_run: bool = False) -> Object:
        """Replaces an object. Raises 409 if `changed` has an outdated resourceVersion."""
        kind = KINDS[plural]
        meta = changed["metadata"]
        key = (meta.get("namespace", "") if kind.namespaced else "", meta["name"])
        old = self.require(plural, *key).data
        self.check_version(kind, old, meta.get("resourceVersion"), meta.get("uid"))
        for field in _KEPT_FIELDS:
            meta.pop(field, None)
            if field in old["metadata"]:
                meta[field] = old["metadata"][field]
        _strip_type(changed)
        if changed == old:
            return old
        if kind.has_generation and changed.get("spec") != old.get("spec"):
            meta["generation"] = meta.get("generation", 1) + 1
        if dry_run:
            return changed
        return self._put(plural, key, changed, "MODIFIED")

    def edit(
        self, plural: str, namespace: str, name: str, change: Callable[[Object], None]
    ) -> Object:
        """Calls `change`, which modifies a copy of the object in place, and stores the copy."""
        own = self.fetch(plural, namespace, name)
        change(own)
        return self.update(plural, own)

    def remove(self, plural: str, namespace: str, name: str) -> Object:
        """Deletes an object at once, whatever its finalizers."""
        self.require(plural, namespace, name)
        return self._drop(plural, (namespace, name))

    def mark_deleted(self, plural: str, namespace: str, name: str, grace: int = 0) -> Object:
        own = self.fetch(plural, namespace, name)
        if own["metadata"].get("deletionTimestamp"):
            return own
        own["metadata"]["deletionTimestamp"] = self.clock.stamp()
        own["metadata"]["deletionGracePeriodSeconds"] = grace
        return self._put(plural, (namespace, name), own, "MODIFIED")

    def check_version(self, kind: Kind, old: Object, version: Any, uid: Any) -> None:
        meta = old["metadata"]
        if (version and version != meta["resourceVersion"]) or (uid and uid != meta["uid"]):
            raise ApiError(
                409,
                f'Operation cannot be fulfilled on {_qualified(kind)} "{meta["name"]}": the object '
                "has been modified; please apply your changes to the latest version and try again",
            )

    # --- keeping ----------------------------------------------------------------------------

    def dump(self) -> Object:
        return {
            "version": self.version,
            "objects": {
                plural: [entry.data for entry in kept.values()]
                for plural, kept in self._objects.items()
            },
        }

    def load(self, document: Object) -> None:
        self.version = document["version"]
        self.events.clear()  # as a server that was restarted
        self.events_after = self.version
        for plural, kept in document["objects"].items():
            for data in kept:
                meta = data["metadata"]
                key = (meta.get("namespace", ""), meta["name"])
                self._objects[plural][key] = StoredObject(data)

    # --- inner ------------------------------------------------------------------------------

    def _put(self, plural: str, key: tuple[str, str], data: Object, event: str) -> Object:
        self.version += 1
        data["metadata"]["resourceVersion"] = str(self.version)
        before = self._objects[plural].get(key)
        entry = self._objects[plural][key] = StoredObject(data)
        self._notify(Event(self.version, event, plural, entry, before))
        return data

    def _drop(self, plural: str, key: tuple[str, str]) -> Object:
        before = self._objects[plural].pop(key)
        data = before.copy()
        self.version += 1
        data["metadata"]["resourceVersion"] = str(self.version)
        self._notify(Event(self.version, "DELETED", plural, StoredObject(data), before))
        return data

    def _notify(self, event: Event) -> None:
        if len(self.events) == self.events.maxlen:
            self.events_after = self.events[0].version
        self.events.append(event)
        for observer in self.observers:
            observer(event)
        self.changed.notify_all()

    def _uid(self) -> str:
        bits = f"{self._random.getrandbits(128):032x}"
        return "-".join((bits[:8], bits[8:12], bits[12:16], bits[16:20], bits[20:]))

    def suffix(self) -> str:
        """Returns five random letters for a generated name."""
        return "".join(self._random.choices("bcdfghjklmnpqrstvwxz2456789", k=5))


def _strip_type(data: Object) -> None:
    """Removes `apiVersion` and `kind`, which the API does not print within lists."""
    data.pop("apiVersion", None)
    data.pop("kind", None)


def _qualified(kind: Kind) -> str:
    return f"{kind.plural}.{kind.group}" if kind.group else kind.plural
