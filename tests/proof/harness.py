"""Worlds to prove things in: a sandbox, sites on it, and `dnm` as real processes.

A `Warm` forks `dnm` processes. A `World` is a sandbox whose clock stands still, with
one site or more; its processes run on its clock. It can be put back to a `Checkpoint`, so that a
hundred different ends can be tried from one beginning.
"""

from __future__ import annotations

import base64
import hashlib
import itertools
import json
import os
import re
import select
import shutil
import threading
from collections.abc import Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from dnm.lab.sandbox.clock import Timing
from dnm.lab.sandbox.cluster import Sandbox
from dnm.lab.sandbox.http_values import Answer, Request
from dnm.lab.sandbox.joining import Arrival
from dnm.lab.sandbox.store import Event
from tests.processes import PATIENCE, Child, Ended, Warm
from tests.site import Site

_START = 1_800_000_000.0  # the instant at which a world begins if nothing else is said
_PROCESS = re.compile(rb'"(pid|start_ticks)": ?\d+')
_WORD = re.compile(rb'"([0-9a-f]{16})\\*"')  # of a registry, in its file and in its Lease
_FENCE = "dynamic-node-manager/fence"
_WRITES = ("PUT", "PATCH", "POST", "DELETE")


def wait_for_any(children: Sequence[Child], seconds: float = PATIENCE) -> Child:
    """The first of them that ends."""
    poll = select.poll()
    by_descriptor = {child.descriptor: child for child in children}
    for descriptor in by_descriptor:
        poll.register(descriptor, select.POLLIN)
    ended = poll.poll(seconds * 1000)
    assert ended, f"none of {len(children)} ended within {seconds} s"
    return by_descriptor[ended[0][0]]


class Gate:
    """Holds requests back at the sandbox's door until it is opened."""

    def __init__(self, path: str) -> None:
        self.path = re.compile(path)
        self.arrivals = threading.Semaphore(0)
        self.opened = threading.Event()

    def await_arrivals(self, count: int = 1) -> None:
        for number in range(count):
            assert self.arrivals.acquire(timeout=PATIENCE), f"{number} of {count} came"

    def pass_through(self, request: Request) -> None:
        if self.path.search(request.path):
            self.arrivals.release()
            self.opened.wait(PATIENCE)


class Checkpoint(NamedTuple):
    """A world at rest between two runs."""

    now: float
    store: bytes
    batch: bytes
    arrivals: bytes  # machines on their way into Kubernetes
    random: Any
    events: tuple[int, list[Event]]  # what watches can be told, and after which version
    files: dict[str, bytes]
    modes: dict[str, int]  # of the same files


class World:
    """One sandbox and its sites; `make_site` adds one. The cluster moves on after every write, as a
    real one does, and time only by `tick`."""

    def __init__(self, directory: Path, warm: Warm, now: float = _START) -> None:
        self.directory, self.warm, self._began = directory, warm, now
        self.timing = Timing()
        self.sites: dict[str, Site] = {}
        self.gates: list[Gate] = []
        self.log = directory / "fault-points"
        self.strays = directory / "strays"
        self.runs = 0
        self.sandbox = self._make_sandbox(0)

    def _make_sandbox(self, port: int) -> Sandbox:
        sandbox = Sandbox(self.directory / "sandbox", port=port, timing=self.timing)
        sandbox.clock.set(self._began)
        answer = sandbox.server.handle

        def handle(request: Request) -> Answer:
            for gate in list(self.gates):
                gate.pass_through(request)
            answered = answer(request)
            if request.method in _WRITES:
                sandbox.tick()
            return answered

        sandbox.server.handle = handle
        return sandbox.start()

    def close(self) -> None:
        for gate in self.gates:
            gate.opened.set()
        self.warm.ask("kill_all")
        self.sandbox.stop()

    def make_site(self, name: str = "prod", *, sections: str = "", **settings: Any) -> Site:
        """A host with its own configuration, state and instance id."""
        values = {"instance_id": name, "yunikorn_url": self.sandbox.url, **settings}
        site = Site(self.sandbox, self.directory / name, sections=sections, **values)
        self.sites[name] = site
        return site

    # --- processes ------------------------------------------------------------------------------

    def job(self, site: Site, *arguments: str, **details: Any) -> dict[str, Any]:
        """`dnm ARGUMENTS` on a site's configuration and the sandbox's time."""
        return {
            "arguments": arguments or ("run",),
            "now": site.now().isoformat(),
            "environment": {**os.environ, "DNM_CONFIG": str(site.path)},
            **details,
        }

    def start(self, *arguments: str, site: Site | None = None, **details: Any) -> Child:
        self.runs += 1
        return self.warm.start(self.job(site or self.site, *arguments, **details))[0]

    def run(self, *arguments: str, site: Site | None = None, **details: Any) -> Ended:
        """From start to end; never a traceback."""
        ended = self.start(*arguments, site=site, **details).wait()
        assert "Traceback" not in ended.err, ended.err
        return ended

    def settle(self) -> None:
        """Converters that outlived their run come to their end."""
        assert self.warm.ask("settle"), f"still at work: {self.warm.ask('descendants')}"

    @contextmanager
    def gate(self, path: str) -> Any:
        """Requests to `path` wait until the block ends or the gate is opened."""
        gate = Gate(path)
        self.gates.append(gate)
        try:
            yield gate
        finally:
            self.gates.remove(gate)
            gate.opened.set()

    def tick(self, seconds: float = 0.0) -> None:
        self.sandbox.tick(seconds)

    # --- putting back ---------------------------------------------------------------------------

    @property
    def site(self) -> Site:
        return next(iter(self.sites.values()))

    def state_files(self) -> dict[str, bytes]:
        """Every file of every state directory, by its path below the world's directory."""
        return {
            str(path.relative_to(self.directory)): path.read_bytes()
            for site in self.sites.values()
            for path in sorted((site.directory / "state").rglob("*"))
            if path.is_file()
        }

    def checkpoint(self) -> Checkpoint:
        """Nothing may be under way."""
        sandbox = self.sandbox
        with sandbox.lock:
            assert not sandbox.conversion._operations
            return Checkpoint(
                now=sandbox.clock.now(),
                store=msgspec.json.encode(sandbox.store.dump()),
                batch=msgspec.json.encode(sandbox.batch.dump()),
                arrivals=msgspec.json.encode(sandbox.conversion.joining._arrivals),
                random=sandbox.store._random.getstate(),
                events=(sandbox.store.events_after, list(sandbox.store.events)),
                files=(files := self.state_files()),
                modes={name: (self.directory / name).stat().st_mode & 0o777 for name in files},
            )

    def restore(self, point: Checkpoint) -> None:
        """The world as it was then, with the same addresses and paths."""
        self.sandbox.stop()
        self.sandbox = sandbox = self._make_sandbox(self.sandbox.server.port)
        with sandbox.lock:
            sandbox.clock.set(point.now)
            sandbox.store.load(msgspec.json.decode(point.store))
            sandbox.batch.load(msgspec.json.decode(point.batch))
            arrivals = msgspec.json.decode(point.arrivals, type=list[Arrival])
            sandbox.conversion.joining._arrivals = arrivals
            sandbox.store._random.setstate(point.random)
            sandbox.store.events_after = point.events[0]
            sandbox.store.events.extend(point.events[1])
            sandbox.yunikorn.restart()
        for site in self.sites.values():
            site.sandbox = sandbox
            shutil.rmtree(site.directory / "state")
            (site.directory / "state").mkdir(mode=0o755)
        for name, content in point.files.items():
            path = self.directory / name
            path.parent.mkdir(mode=0o700, exist_ok=True)
            path.write_bytes(content)
            path.chmod(point.modes[name])
        sandbox.tick()

    def digest(self) -> bytes:
        """Equal for worlds that go on alike. Left out is what no run reads: numbers of processes,
        temporary paths, what the last run said of itself, the history, what spare copies hold, the
        versions of objects. Of the words of Leases it counts which are the same."""
        point = self.checkpoint()
        parts = [str(point.now).encode(), _without_state(point.store), point.batch, point.arrivals]
        for name, content in sorted(point.files.items()):
            plain = content.replace(str(self.directory).encode(), b"")
            parts += [name.encode(), _read_by_runs(name, plain)]
        return hashlib.sha256(_with_plain_words(b"\0".join(parts))).digest()


def _without_state(store: bytes) -> bytes:
    """What a cluster holds, with a registry in it as it is read: not who wrote it, and when."""
    document = json.loads(store)
    objects = document["objects"]
    document["version"] = 0
    for item in itertools.chain.from_iterable(objects.values()):
        item["metadata"].pop("resourceVersion", None)
        (item["metadata"].get("annotations") or {}).pop(_FENCE, None)
    held = [secret.get("data") or {} for secret in objects["secrets"]]
    registries = [
        base64.b64decode(entry["registry.json"]) for entry in held if "registry.json" in entry
    ]
    objects["secrets"] = [
        _read_by_runs("converted_nodes.json", content).decode() for content in registries
    ]
    objects["leases"] = [_read_of_lease(lease) for lease in objects["leases"]]
    return msgspec.json.encode(document)


def _read_of_lease(lease: dict[str, Any]) -> list[object]:
    """The registry that acts, what is kept of it, and whether a run left the Lease held."""
    result = lease["metadata"].get("annotations") or {}
    kept = [result.get(f"dynamic-node-manager/{word}") for word in ("registry", "kept")]
    return [*kept, bool(lease["spec"].get("holderIdentity"))]


def _with_plain_words(content: bytes) -> bytes:
    numbers: dict[bytes, int] = {}

    def number(found: re.Match[bytes]) -> bytes:
        return b"word %d" % numbers.setdefault(found[1], len(numbers))

    return _WORD.sub(number, content)


def _read_by_runs(name: str, content: bytes) -> bytes:
    if name.endswith((".new", ".previous", ".jsonl")):
        return b""
    if name.endswith(".cluster"):  # how it is read, and not what is seen: kube/test_reflector.py
        return b"kept"
    if not name.endswith("converted_nodes.json"):
        return _PROCESS.sub(b"", content)
    document = json.loads(content)
    document.pop("memory", None)
    for word in ("exit_code", "acted_at", "actions", "errors", "nodes"):
        document.get("last_run", {}).pop(word, None)
    return _PROCESS.sub(b"", json.dumps(document, indent=1).encode())


def note_figures(name: str, **figures: int) -> None:
    """Printed with `pytest -s`."""
    print(f"\n{name}: {', '.join(f'{word}={number}' for word, number in figures.items())}")
