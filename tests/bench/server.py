"""Serves written clusters as an API server would, by copying files into sockets.

`/quiet` and `/busy` are the two variants. Each has the lists of pods and nodes with limit, continue
and the selector of unfinished pods, and watches with bookmarks (sent when there is nothing else to
send). It also has the ConfigMap of the queues, the objects of Kueue, and written objects such as a
Secret or a Lease.
`/quiet-NAME` is the same cluster with changes of its own: a GET of `/quiet-NAME/change?count=N`
changes N of its pods, as watches show; lists show the old state. The server counts every request by
path with the bytes of its answer: `/requests` returns and resets them.
"""

from __future__ import annotations

import json
import mmap
import os
import random
import re
import socket
import sys
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from tests.bench.cluster import Segment, Size, chunk, queue_document, write_cluster
from tests.bench.workloads import list_objects

_OK = (
    b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nDate: Fri, 01 May 2026 12:00:00 GMT\r\n"
)


_BEGIN = 2_000_000_000  # the version of the cluster before any change; objects have lower ones
_VERSION = re.compile(rb'"resourceVersion":"(\d+)"')


@dataclass(frozen=True)
class Changed:
    """A changed pod, which a watch reports: its new version, its name and its JSON."""

    version: int
    name: str
    item: bytes

    def line(self) -> bytes:
        item = b'{"kind":"Pod","apiVersion":"v1",' + self.item[1:]
        return b'{"type":"MODIFIED","object":%s}\n' % item


@dataclass
class Served:
    """The requests and the sent bytes that the server has counted since they were last queried."""

    requests: list[str] = field(default_factory=list)
    bytes_sent: int = 0


def merged(old: Any, new: Any) -> Any:
    """Returns `old` after the JSON merge patch `new` (RFC 7386)."""
    if not isinstance(new, dict):
        return new
    kept = dict(old) if isinstance(old, dict) else {}
    for key, value in new.items():
        if value is None:
            kept.pop(key, None)
        else:
            kept[key] = merged(kept.get(key), value)
    return kept


class StaticServer:
    """A server on a free port of the loopback; one thread for each connection."""

    def __init__(self, size: Size, directory: Path) -> None:
        self._size = size
        self._segments = write_cluster(size, directory)
        self._files = {
            name: os.open(segment.path, os.O_RDONLY) for name, segment in self._segments.items()
        }
        self._lock = threading.Lock()
        self._changes: dict[str, list[Changed]] = {}
        self._parts: dict[tuple[str, str], bytes] = {}
        self._kept: dict[str, bytes] = {}  # Secrets and Leases, by their paths
        self._served = Served()
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.port: int = self._listener.getsockname()[1]

    def start(self) -> None:
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._talk, args=(connection,), daemon=True).start()

    def close(self) -> None:
        self._listener.close()
        for descriptor in self._files.values():
            os.close(descriptor)

    def take_served(self) -> Served:
        with self._lock:
            served, self._served = self._served, Served()
        return served

    def _talk(self, connection: socket.socket) -> None:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with connection, connection.makefile("rb") as stream:
            try:
                while line := stream.readline():
                    length = 0
                    while (header := stream.readline()) not in (b"\r\n", b""):
                        if header.lower().startswith(b"content-length:"):
                            length = int(header.split(b":")[1])
                    body = stream.read(length)
                    method, path = line.decode().split()[:2]
                    self._answer(connection, method, path, body)
            except (ConnectionError, ValueError):
                return

    def _answer(self, connection: socket.socket, method: str, target: str, body: bytes) -> None:
        if target == "/requests":
            served = self.take_served()
            self._send(connection, json.dumps(vars(served)).encode())
            return
        url = urlsplit(target)
        _, twin, *rest = url.path.split("/")
        path = "/" + "/".join(rest)
        query = {key: values[0] for key, values in parse_qs(url.query).items()}
        if path == "/change":
            self._change(twin, int(query["count"]))
            self._send(connection, b"{}")
            return
        if "watch" in query:
            sent = self._watch(connection, twin, "Pod" if path.endswith("pods") else "Node", query)
        elif query.get("fieldSelector", "").startswith("metadata.name="):
            sent = self._send(connection, self._list_by_name(twin, path, query))
        elif path == "/api/v1/pods":
            parts = self._pods(twin.partition("-")[0], query)
            sent = self._send_list(connection, twin, "PodList", parts, query)
        elif path == "/api/v1/nodes":
            parts = [("nodes", len(self._segments["nodes"]))]
            sent = self._send_list(connection, twin, "NodeList", parts, query)
        elif method in ("POST", "PUT") or (method == "PATCH" and url.path in self._kept):
            sent = self._send(connection, self._keep(url.path, body))
        elif url.path in self._kept:
            sent = self._send(connection, self._kept[url.path])
        elif path.startswith("/apis/kueue.x-k8s.io/") and path.count("/") == 4:  # a list
            sent = self._send(connection, list_objects(twin, path.rpartition("/")[2]))
        else:
            sent = self._send(connection, *self._small(path))
        with self._lock:
            self._served.requests.append(f"{method} {unquote(target)}")
            self._served.bytes_sent += sent

    def _keep(self, path: str, body: bytes) -> bytes:
        """Stores a written object, merged into any existing one. Returns the stored object."""
        document = merged(json.loads(self._kept.get(path, b"{}")), json.loads(body))
        metadata = document["metadata"]
        metadata["resourceVersion"] = str(int(metadata.get("resourceVersion", _BEGIN)) + 1)
        name = f"/{metadata['name']}"
        kept = json.dumps(document).encode()
        self._kept[path if path.endswith(name) else path + name] = kept
        return kept

    def _version(self, twin: str) -> int:
        changes = self._changes.get(twin)
        return changes[-1].version if changes else _BEGIN

    def _change(self, twin: str, count: int) -> None:
        """Gives `count` pods a new resourceVersion, as if a client had changed them."""
        segment = self._segments[twin.partition("-")[0]]
        version = self._version(twin)
        changes = self._changes.setdefault(twin, [])
        for place in sorted(random.Random(version).sample(range(1, len(segment)), count)):
            version += 1
            item = self._item(segment, place)
            name = re.search(rb'"name":"([^"]+)"', item)
            assert name is not None
            item = _VERSION.sub(b'"resourceVersion":"%d"' % version, item, count=1)
            changes.append(Changed(version, name[1].decode(), item))

    def _item(self, segment: Segment, place: int) -> bytes:
        start, stop = segment.offsets[place], segment.offsets[place + 1]
        piece = os.pread(self._files[segment.path.stem], stop - start, start)
        return piece.partition(b"\r\n")[2][:-2].lstrip(b",")

    def _watch(self, connection: socket.socket, twin: str, kind: str, query: dict[str, str]) -> int:
        """Answers a watch: sends the changes since the requested version, or a bookmark."""
        since, version = int(query["resourceVersion"]), self._version(twin)
        changes = self._changes.get(twin, []) if kind == "Pod" else []
        lines = [change.line() for change in changes if change.version > since]
        metadata = {"resourceVersion": str(version), "creationTimestamp": None}
        mark = {"kind": kind, "apiVersion": "v1", "metadata": metadata}
        if version > since and not lines:
            lines.append(json.dumps({"type": "BOOKMARK", "object": mark}).encode() + b"\n")
        body = b"".join(map(chunk, lines))
        connection.sendall(_OK + b"Transfer-Encoding: chunked\r\n\r\n" + body)
        return len(body)

    def _list_by_name(self, twin: str, path: str, query: dict[str, str]) -> bytes:
        """Returns a list with only the object that the field selector names."""
        name = query["fieldSelector"].partition(",")[0].partition("=")[2]
        kind = "Pod" if path.endswith("pods") else "Node"
        changed = [changed.item for changed in self._changes.get(twin, []) if changed.name == name]
        item = changed[-1] if changed else self._find_item(twin, kind, name)
        metadata = json.dumps({"resourceVersion": str(self._version(twin))}).encode()
        return b'{"kind":"%sList","metadata":%s,"items":[%s]}' % (kind.encode(), metadata, item)

    def _find_item(self, twin: str, kind: str, name: str) -> bytes:
        segment = self._segments[twin.partition("-")[0] if kind == "Pod" else "nodes"]
        key = segment.path.stem, name
        if key not in self._parts:
            with mmap.mmap(self._files[key[0]], 0, prot=mmap.PROT_READ) as content:
                position = content.find(b'{"metadata":{"name":"%s"' % name.encode())
                end = content.find(b"\r\n", position)
                self._parts[key] = content[position:end] if position >= 0 else b""
        return self._parts[key]

    def _pods(self, twin: str, query: dict[str, str]) -> list[tuple[str, int]]:
        parts = [(twin, len(self._segments[twin]))]
        if "status.phase!=Succeeded" not in query.get("fieldSelector", ""):
            parts.append(("finished", len(self._segments["finished"])))
        return parts

    def _small(self, path: str) -> tuple[bytes, int]:
        if path == "/api/v1/namespaces/yunikorn/configmaps/yunikorn-configs":
            config_map = {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": {
                    "name": "yunikorn-configs",
                    "namespace": "yunikorn",
                    "resourceVersion": "4711",
                },
                "data": {"queues.yaml": queue_document(self._size)},
            }
            return json.dumps(config_map).encode(), 200
        if path == "/api/v1/namespaces/kube-system":
            return b'{"kind":"Namespace","metadata":{"name":"kube-system","uid":"bench"}}', 200
        if path == "/apis/apps/v1/daemonsets":
            return b'{"kind":"DaemonSetList","metadata":{"resourceVersion":"1"},"items":[]}', 200
        if path == "/version":
            return b'{"major":"1","minor":"34","gitVersion":"v1.34.4"}', 200
        return b'{"kind":"Status","status":"Failure","reason":"NotFound","code":404}', 404

    def _send(self, connection: socket.socket, body: bytes, status: int = 200) -> int:
        head = _OK if status == 200 else _OK.replace(b"200 OK", b"404 Not Found")
        connection.sendall(b"%sContent-Length: %d\r\n\r\n%s" % (head, len(body), body))
        return len(body)

    def _send_list(
        self,
        connection: socket.socket,
        twin: str,
        kind: str,
        parts: list[tuple[str, int]],
        query: dict[str, str],
    ) -> int:
        total = sum(length for _, length in parts)
        start = int(query.get("continue", "0"))
        end = min(start + (int(query.get("limit", "0")) or total), total)
        metadata = {"resourceVersion": str(_BEGIN)}  # the moment that it shows
        if end < total:
            metadata |= {"continue": str(end), "remainingItemCount": str(total - end)}
        head = json.dumps({"kind": kind, "apiVersion": "v1", "metadata": metadata})[:-1]
        first = chunk(f'{head},"items":['.encode())
        connection.sendall(_OK + b"Transfer-Encoding: chunked\r\n\r\n" + first)
        sent, before = len(first), 0
        for name, length in parts:
            low, high = max(start - before, 0), min(end - before, length)
            if low < high:
                sent += self._copy(connection, self._segments[name], low, high, before > 0)
            before += length
        last = chunk(b"]}\n") + b"0\r\n\r\n"
        connection.sendall(last)
        return sent + len(last)

    def _copy(
        self, connection: socket.socket, segment: Segment, low: int, high: int, follows: bool
    ) -> int:
        """Copies objects `low` to `high` of a file; all but its first have a comma before them."""
        name = segment.path.stem
        position, stop = segment.offsets[low], segment.offsets[high]
        total = stop - position
        if low > 0:
            # The object begins with a comma, which may not begin the page: blank it out.
            size, _, _ = os.pread(self._files[name], 16, position).partition(b"\r\n")
            body = os.pread(self._files[name], int(size, 16), position + len(size) + 2)
            connection.sendall(chunk(b" " + body[1:]))
            position = segment.offsets[low + 1]
        elif follows:
            connection.sendall(chunk(b","))
        while position < stop:
            position += os.sendfile(
                connection.fileno(), self._files[name], position, stop - position
            )
        return total


def main() -> None:
    """Serves the cluster of the arguments NODES PODS DIRECTORY; prints the server's port."""
    nodes, pods, directory = sys.argv[1:]
    server = StaticServer(Size(nodes=int(nodes), pods=int(pods)), Path(directory))
    print(server.port, flush=True)
    server.serve()


if __name__ == "__main__":
    main()
