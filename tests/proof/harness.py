"""Worlds for these tests: a sandbox, sites on it, and `dnm` as real processes.

A `Warm` forks `dnm` processes. A `World` is a sandbox with a stopped clock and one or more sites.
Their processes use its clock. A `Checkpoint` is a copy of a world, from which a test can try many
faults at the same moment."""

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
from dnm.lab.sandbox.http_values import Request, ServerAnswer
from dnm.lab.sandbox.joining import Arrival
from dnm.lab.sandbox.store import Event
from tests.processes import PATIENCE, Child, Ended, Warm
from tests.site import Site

_START = 1_800_000_000.0  # the default instant at which a world begins
_PROCESS = re.compile(rb'"(pid|start_ticks)": ?\d+')
_WORD = re.compile(rb'"([0-9a-f]{16})\\*"')  # of a registry, in its file and its Lease
_FENCE = "dynamic-node-manager/fence"
_WRITES = ("PUT", "PATCH", "POST", "DELETE")


def wait_for_any(children: Sequence[Child], seconds: float = PATIENCE) -> Child:
    """Waits until one of the processes has ended, and returns that one."""
    poll = select.poll()
    by_descriptor = {child.descriptor: child for child in children}
    for descriptor in by_descriptor:
        poll.register(descriptor, select.POLLIN)
    ended = poll.poll(seconds * 1000)
    assert ended, f"none of {len(children)} processes ended within {seconds} s"
    return by_descriptor[ended[0][0]]


class Gate:
    """A gate that holds back requests to the sandbox until the test opens it."""

    def __init__(self, path: str) -> None:
        self.path = re.compile(path)
        self.arrivals = threading.Semaphore(0)
        self.opened = threading.Event()

    def await_arrivals(self, count: int = 1) -> None:
        for number in range(count):
            assert self.arrivals.acquire(timeout=PATIENCE), f"{number} of {count} requests arrived"

    def pass_through(self, request: Request) -> None:
        if self.path.search(request.path):
            self.arrivals.release()
            self.opened.wait(PATIENCE)


class Checkpoint(NamedTuple):
    """A copy of a world between two runs, while no process runs, to which a test can return."""

    now: float
    store: bytes
    batch: bytes
    arrivals: bytes  # machines that are joining Kubernetes
    random: Any
    events: tuple[int, list[Event]]  # events for watches, and the version before the first of them
    files: dict[str, bytes]
    modes: dict[str, int]  # file modes of the same files


class World:
    """A sandbox and its sites, which `make_site` adds. Schedulers and controllers react after each
    write, as in a real cluster. Only `tick` advances time."""

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

        def handle(request: Request) -> ServerAnswer:
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
        """Adds a site: a host with its own configuration, state and instance id. Returns it."""
        values = {"instance_id": name, "yunikorn_url": self.sandbox.url, **settings}
        site = Site(self.sandbox, self.directory / name, sections=sections, **values)
        self.sites[name] = site
        return site

    # --- processes ------------------------------------------------------------------------------

    def job(self, site: Site, *arguments: str, **details: Any) -> dict[str, Any]:
        """Returns a job for the fork server: `dnm ARGUMENTS` with a site's configuration."""
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
        """Runs a dnm command of a site to its end. It must not print a traceback."""
        ended = self.start(*arguments, site=site, **details).wait()
        assert "Traceback" not in ended.err, ended.err
        return ended

    def settle(self) -> None:
        """Waits until converters that outlived their run have ended."""
        assert self.warm.ask("settle"), f"these still run: {self.warm.ask('descendants')}"

    @contextmanager
    def gate(self, path: str) -> Any:
        """Holds back requests to `path` until the block ends or the test opens the gate."""
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
        """Returns every file of every state directory, by its path below the world's directory."""
        return {
            str(path.relative_to(self.directory)): path.read_bytes()
            for site in self.sites.values()
            for path in sorted((site.directory / "state").rglob("*"))
            if path.is_file()
        }

    def checkpoint(self) -> Checkpoint:
        """Copies the world, in which no process may be running."""
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
        """Restores a copy of the world, with the same addresses and paths."""
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
        """Returns a digest that is equal for worlds in which later runs do the same. It omits what
        no run reads: process ids, temporary paths, the last run's messages, history, spare copies,
        object versions. It replaces write ids of Leases by numbers."""
        point = self.checkpoint()
        parts = [str(point.now).encode(), _without_state(point.store), point.batch, point.arrivals]
        for name, content in sorted(point.files.items()):
            plain = content.replace(str(self.directory).encode(), b"")
            parts += [name.encode(), _read_by_runs(name, plain)]
        return hashlib.sha256(_with_plain_words(b"\0".join(parts))).digest()


def _without_state(store: bytes) -> bytes:
    """Returns the cluster's objects, and the registry in it without its writer and time."""
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
    """Returns what the Lease records: the active registry, and whether a run still holds it."""
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
    if name.endswith(".cluster"):  # how it is read, not its content: kube/test_reflector.py
        return b"kept"
    if not name.endswith("converted_nodes.json"):
        return _PROCESS.sub(b"", content)
    document = json.loads(content)
    document.pop("memory", None)
    for word in ("exit_code", "acted_at", "actions", "errors", "nodes"):
        document.get("last_run", {}).pop(word, None)
    return _PROCESS.sub(b"", json.dumps(document, indent=1).encode())


def note_figures(name: str, **figures: int) -> None:
    """Prints figures about a test, which `pytest -s` shows."""
    print(f"\n{name}: {', '.join(f'{word}={number}' for word, number in figures.items())}")
