"""A model of an etcd, and of an API server with a watch cache. The server restarts, lags, drops
events and breaks connections. The model uses only `Watches` of dnm's code."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from dnm.kube.watching import NotProved, WatchLog, Why, Witness
from tests.fakes import WatcherFake

Object = dict[str, Any]
Document = Callable[[str, Object], Object]  # (kind, object in etcd) -> object that the API returns


@dataclass(frozen=True)
class Event:
    revision: int
    type: str
    kind: str
    data: Object


@dataclass
class Etcd:
    """The model of etcd: all objects, and every event of their history."""

    revision: int = 10
    objects: dict[tuple[str, str], Object] = field(default_factory=dict)
    events: list[Event] = field(default_factory=list)
    uids: int = 0

    def put(self, kind: str, name: str, **facts: Any) -> None:
        self.revision += 1
        old = self.objects.get((kind, name))
        if old is None:
            self.uids += 1
        uid = f"u{self.uids}" if old is None else old["uid"]
        data = {"name": name, "uid": uid, **facts, "version": self.revision}
        self.objects[kind, name] = data
        self.events.append(Event(self.revision, "MODIFIED" if old else "ADDED", kind, data))

    def drop(self, kind: str, name: str) -> None:
        self.revision += 1
        data = {**self.objects.pop((kind, name)), "version": self.revision}
        self.events.append(Event(self.revision, "DELETED", kind, data))


@dataclass
class ApiServer:
    """An API server with the events since revision `after`. Its cache is `lag` events behind."""

    after: int = 0
    lag: int = 0


class Watches(WatcherFake):
    """The watch of one kind of object by a run."""

    waited = 0.0

    def __init__(self, cluster: Cluster, kind: str) -> None:
        self.cluster, self.kind, self.since = cluster, kind, 0

    def read_barrier(self, witness: Witness) -> tuple[int, int]:
        etcd = self.cluster.etcd
        results = etcd.objects.get((self.kind, witness.name))
        return etcd.revision, results["version"] if results else 0

    def begin(self, since: int) -> None:
        self.since = since

    def follow(self, log: WatchLog) -> None:
        for count, line in enumerate(self.cluster.watch(self.kind, self.since)):
            if log.is_proved:
                return
            if count >= self.cluster.cut_after:
                break
            log.take(line)
        if not log.is_proved:
            raise NotProved(Why.UNPROVED, "it ended")


@dataclass
class Cluster:
    document: Document
    etcd: Etcd = field(default_factory=Etcd)
    server: ApiServer = field(default_factory=ApiServer)
    cut_after: int = 1000
    has_bookmarks: bool = True

    def watch(self, kind: str, since: int) -> Iterator[bytes]:
        server = self.server
        if since < server.after:
            status = {"kind": "Status", "code": 410, "reason": "Expired", "metadata": {}}
            yield json.dumps({"type": "ERROR", "object": status}).encode()
            return
        reached = self.etcd.revision - server.lag
        last = 0
        for event in self.etcd.events:
            if since < event.revision <= reached and event.kind == kind:
                last = event.revision
                item = {"kind": kind, **self.document(kind, event.data)}
                yield json.dumps({"type": event.type, "object": item}).encode()
        if self.has_bookmarks and reached > max(since, last):
            mark = {"kind": kind, "metadata": {"resourceVersion": str(reached)}}
            yield json.dumps({"type": "BOOKMARK", "object": mark}).encode()

    def page(self, kind: str) -> bytes:
        objects = [data for (of, _), data in sorted(self.etcd.objects.items()) if of == kind]
        return json.dumps({"items": [self.document(kind, data) for data in objects]}).encode()
