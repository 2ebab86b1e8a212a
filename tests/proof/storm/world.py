"""The world of one episode: a sandbox in real time, a site on it, and its `dnm` commands."""

from __future__ import annotations

import base64
import gzip
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from dnm.lab.sandbox.clock import Timing
from dnm.lab.sandbox.cluster import Sandbox
from dnm.lab.sandbox.http_values import Request, ServerAnswer
from dnm.lab.sandbox.store import ApiError
from tests.proof.storm import processes
from tests.site import ini_text

COMMAND = Path(sys.executable).with_name("dnm")
BOUND = 45.0  # seconds that a run may take, with any fault: see `SETTINGS`
CAP, CAP_B, CAP_LAB = 5, 2, 3
DEV, LAB = "root.site.dev", "root.site.lab"
QUEUE_OF = {"dev": DEV, "lab": LAB}
SHARED = "dnm"  # the namespace of the registry of several hosts
SIZES = {"a": (128, 256), "b": (64, 512)}  # cores, GB
BASELINE = {DEV: {"max": (80, 320), "guaranteed": (8, 32)}, LAB: {"max": (40, 160)}}
PERMANENT = ("k001", "k002")
MOST_PODS = 60  # of tenants, at any time
BROKEN = "a006"  # drained by an administrator, from the beginning to the end
FENCED = "dynamic-node-manager/fenced"
NOTE = "site.example/owner"
QUEUES = """\
# The queues of this site.
partitions:
  - name: default
    queues:
      - name: root
        submitacl: "*"
        queues:
          - name: site
            queues:
              - name: lab
                resources:
                  max: {vcore: 40, memory: 160G}   # small
              - name: dev
                resources:
                  guaranteed: {vcore: 8, memory: 32G}
                  max:
                    vcore: 80
                    memory: 320G
"""
CONVERTER = """\
#!/bin/sh
[ "$1" = --list ] || {place}/hook || exit 1
exec {real} "$@"
"""
SETTINGS = {
    "monitored_namespaces": "dev, lab", "instance_id": "storm", "node_type": "a",
    "namespace_queue_paths": "queues.json", "state_dir": "state",
    "max_converted_nodes": CAP, "max_conversions_per_run": 3,
    "global_cooldown_seconds": 0, "pending_grace_seconds": 0, "reversion_idle_seconds": 1,
    "check_interval_seconds": 1, "join_timeout_seconds": 4, "convert_timeout_seconds": 5,
    "shutdown_grace_seconds": 1, "request_timeout_seconds": 0.6, "breaker_strikes": 3,
}  # fmt: skip
SECTIONS = f"""
[namespace:lab]
node_type = b, a
max_nodes = {CAP_LAB}
[node_type:a]
[node_type:b]
cpu = 64
memory = 512G
max_nodes = {CAP_B}
"""


class Ended(NamedTuple):
    """The end of a command; `code` is the negative signal number if a signal ended it."""

    words: tuple[str, ...]
    code: int
    seconds: float
    out: str
    err: str
    is_struck: bool  # by a signal of the storm


class World:
    """A sandbox, and one or several hosts with dnm. `log` has a line for each fault and each run,
    to explain a failure. Each of `hosts` has a state directory; several share a registry in
    Kubernetes. `host` is the one that runs commands now."""

    def __init__(self, directory: Path, hosts: int = 1) -> None:
        self.directory, self.hosts, self.host = directory, range(hosts), 0
        self.log: list[str] = []
        self.undo: list[Callable[[], Any]] = []  # changes that an administrator undoes in the end
        self.queues = QUEUES
        self.arrivals = 0  # requests since the last run began
        self.trigger: tuple[int, Callable[[], None]] | None = None
        self.doubled: list[str] = []  # converters that worked on one node at once
        self.verbs: list[Ended] = []  # the ends of an administrator's commands
        self.repair: Callable[[], None] | None = None  # of the registry, once it is damaged
        self.lied: set[str] = set()  # nodes whose kubelet reported something false
        self.unready: set[str] = set()
        self._pods = 0
        self._own: dict[int, subprocess.Popen[bytes]] = {}
        self._lock = threading.Lock()
        timing = Timing(convert=0.15, revert=0.15, join=0.05, ready=0.05, completing=0.3,
                        toleration=30.0, taint=0.02, orphans=0.2, take_up=0.05)  # fmt: skip
        self.sandbox = Sandbox(directory / "sandbox", manual=False, timing=timing)
        self._build_cluster()
        answer = self.sandbox.server.handle

        def handle(request: Request) -> ServerAnswer:
            self._note_arrival(request)
            return answer(request)

        self.sandbox.server.handle = handle
        self.sandbox.start()
        self._write_site()

    # --- what there is at the beginning ------------------------------------------------------

    def _build_cluster(self) -> None:
        sandbox = self.sandbox
        sandbox.set_queues(QUEUES)
        sandbox.yunikorn.restart()
        sandbox.edit(
            "configmaps", "yunikorn-configs",
            lambda item: item["metadata"].setdefault("annotations", {}).update({NOTE: "ops"}),
            "yunikorn",
        )  # fmt: skip
        for name in PERMANENT:
            sandbox.add_node(name, cpu="8", memory="32G")
        for namespace in (*QUEUE_OF, SHARED):
            sandbox.add_namespace(namespace)
        for kind, count in (("a", 6), ("b", 3)):
            cores, memory = SIZES[kind]
            sandbox.add_machine_type(kind, cpu=str(cores), memory=f"{memory}G")
            sandbox.add_machines(count, kind)
        sandbox.batch.drain(BROKEN, "bad fan")

    def _write_site(self) -> None:
        place = self.directory
        values = {
            **SETTINGS, "kubeconfig_path": self.sandbox.kubeconfig,
            "node_convert_path": self._write_converter(),
            "yunikorn_url": self.sandbox.url,
        }  # fmt: skip
        if len(self.hosts) > 1:
            values["registry"] = f"kubernetes {SHARED}"
        self._values = values
        for host in reversed(self.hosts):
            self.host = host
            self.state.mkdir(mode=0o755)
            self.write(self.config, self.right_config)
        self.write(place / "queues.json", json.dumps(QUEUE_OF))

    def _write_converter(self) -> Path:
        """Writes a script that calls the sandbox's converter: one more process to kill."""
        place, real = self.directory, self.sandbox.node_convert_path
        self.write(place / "hook", "#!/bin/sh\nsleep 0.1\n", 0o755)
        self.write(place / "node-convert", CONVERTER.format(place=place, real=real), 0o755)
        return place / "node-convert"

    def write(self, path: Path, text: str, mode: int = 0o644) -> None:
        path.write_text(text)
        path.chmod(mode)

    @property
    def state(self) -> Path:
        return self.directory / f"state{self.host or ''}"

    @property
    def config(self) -> Path:
        return self.directory / f"dnm{self.host or ''}.ini"

    @property
    def right_config(self) -> str:
        return f"{ini_text({**self._values, 'state_dir': self.state.name})}{SECTIONS}"

    @property
    def registry(self) -> Path:
        return self.state / "converted_nodes.json"

    def read_registry(self) -> Any:
        """Returns the host's registry, or the one that hosts share; empty if there is none."""
        if len(self.hosts) == 1:
            return json.loads(self.registry.read_text()) if self.registry.exists() else {}
        found = self.sandbox.get("secrets", "dnm-storm", SHARED)
        if found is None:
            return {}
        packed = {key: base64.b64decode(text) for key, text in found["data"].items()}
        if "registry.json.gz" in packed:
            return json.loads(gzip.decompress(packed["registry.json.gz"]))
        return json.loads(packed["registry.json"])

    def close(self) -> None:
        processes.reboot()
        self.sandbox.stop()
        shutil.rmtree(self.directory, ignore_errors=True)

    def log_line(self, text: str) -> None:
        self.log.append(text)

    # --- looking, and doing what people do ---------------------------------------------------

    def node_names(self) -> list[str]:
        return [node["metadata"]["name"] for node in self.sandbox.objects("nodes")]

    def pods_on(self, node: str) -> list[Any]:
        """Returns the unfinished pods of the node."""
        return [
            pod for pod in self.sandbox.objects("pods")
            if pod["spec"].get("nodeName") == node
            and pod["status"].get("phase") not in ("Succeeded", "Failed")
        ]  # fmt: skip

    def tenant_pods(self) -> list[Any]:
        return [
            pod for pod in self.sandbox.objects("pods")
            if pod["metadata"]["namespace"] in (*QUEUE_OF, "default")
        ]  # fmt: skip

    def add_pods(self, rng: random.Random, namespace: str, count: int, **details: Any) -> None:
        """Adds pods of a new application, as many as the tenant's quota of objects allows. The API
        server may refuse them."""
        free = MOST_PODS - len(self.tenant_pods())
        labels = {"yunikorn.apache.org/app-id": f"app-{self._pods}", **details.pop("labels", {})}
        self._pods += 1
        with suppress(ApiError):
            self.sandbox.add_pods(
                max(0, min(count, free)), namespace, queue=QUEUE_OF.get(namespace, ""),
                name=f"p{self._pods}", labels=labels,
                **{"cpu": "2", "memory": "4G", **details},
            )  # fmt: skip

    def set_unschedulable(self, node: str, is_on: bool) -> None:
        def change(item: Any) -> None:
            item["spec"]["unschedulable"] = True
            if not is_on:
                del item["spec"]["unschedulable"]

        with suppress(ApiError):
            self.sandbox.edit("nodes", node, change)

    def uncordon_unfenced_nodes(self) -> None:
        """Uncordons all nodes except those that dnm has fenced."""
        for node in self.sandbox.objects("nodes"):
            notes = node["metadata"].get("annotations") or {}
            if node["spec"].get("unschedulable") and not notes.get(FENCED):
                self.set_unschedulable(node["metadata"]["name"], False)

    # --- requests ------------------------------------------------------------------------------

    def _note_arrival(self, request: Request) -> None:
        """Handles a request of a run: counts it, sends a signal that is due at this number, and
        checks that a node has only one converter."""
        if request.path == "/sandbox/node-convert/begin":
            self._detect_duplicate_calls(request)
        with self._lock:
            self.arrivals += 1
            is_due = self.trigger is not None and self.arrivals == self.trigger[0]
        if is_due and self.trigger is not None:
            self.trigger[1]()

    def _detect_duplicate_calls(self, request: Request) -> None:
        arguments = request.body.decode(errors="replace").split("\0")
        if "batch" not in arguments:
            return
        node = arguments[arguments.index("--node-name") + 1]
        at_work = [
            process for process in processes.descendants()
            if process.role == "converter" and {"batch", node} <= set(process.words)
        ]  # fmt: skip
        if len(at_work) > 1:
            self.doubled.append(f"{len(at_work)} converters at work on {node}: {at_work}")

    # --- dnm -------------------------------------------------------------------------------------

    def start(self, *words: str) -> subprocess.Popen[bytes]:
        """Starts the installed command in a new process group, as cron would."""
        child = subprocess.Popen(
            [str(COMMAND), *words],
            env={**os.environ, "DNM_CONFIG": str(self.config)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        self._own[child.pid] = child
        return child

    def run(self, *words: str, strike: Strike | None = None) -> Ended:
        """Runs a command to its end. Kills it if it takes longer than BOUND seconds, which the
        judge then reports."""
        with self._lock:
            self.arrivals, self.trigger = 0, None
        begun = time.monotonic()
        child = self.start(*(words or ("run",)))
        if strike is not None:
            strike.arm(self, child)
        try:
            out, err = child.communicate(timeout=BOUND)
        except subprocess.TimeoutExpired:
            child.kill()
            out, err = child.communicate()
        seconds = time.monotonic() - begun
        if strike is not None:
            strike.disarm(self)
        self._own.pop(child.pid, None)
        processes.reap_orphans(set(self._own))
        ended = Ended(words or ("run",), child.returncode, seconds,
                      out.decode(errors="replace"), err.decode(errors="replace"),
                      strike is not None and strike.has_struck)  # fmt: skip
        self.log_line(
            f"{self.host} {' '.join(ended.words)}: {ended.code} in {seconds:.2f} s, "
            f"{self.arrivals} requests"
            + "".join(f"\n      {line[:300]}" for line in (out + err).decode(
                errors="replace").splitlines()[:12])
        )  # fmt: skip
        return ended

    def wait_for_converters(self, seconds: float = 12.0) -> bool:
        """Waits until no converter runs. Returns False if some still run after the time."""
        until = time.monotonic() + seconds
        while processes.descendants():
            if time.monotonic() > until:
                return False
            time.sleep(0.02)
            processes.reap_orphans(set(self._own))
        return True


class Strike:
    """A signal that one of dnm's processes gets at request number `at` of a run to the cluster, or
    after a time if the run sends fewer requests."""

    def __init__(self, action: str, at: int, seconds: float) -> None:
        self.action, self.at, self.seconds = action, at, seconds
        self.has_struck = False
        self._timer: threading.Timer | None = None

    def __str__(self) -> str:
        return f"{self.action} at request {self.at} or after {self.seconds:.2f} s"

    @classmethod
    def draw(cls, rng: random.Random) -> Strike:
        text = rng.choice(
            ["kill run", "kill run", "kill keeper", "kill converter", "kill hook", "kill group",
             "reboot", "reboot", "term run", "int run", "kill run and group"]
        )  # fmt: skip
        by_request = rng.random() < 0.6
        at, seconds = rng.randint(1, rng.choice((5, 24))), rng.uniform(0.1, 1.2)
        return cls(text, at if by_request else 10**9, 1.5 if by_request else seconds)

    def arm(self, world: World, child: subprocess.Popen[bytes]) -> None:
        self.child = child
        world.trigger = (self.at, self.strike)
        self._timer = threading.Timer(self.seconds, self.strike)
        self._timer.start()

    def disarm(self, world: World) -> None:
        world.trigger = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer.join()

    def strike(self) -> None:
        if self.has_struck:
            return
        self.has_struck = True
        verb, _, targets = self.action.partition(" ")
        if verb == "reboot":
            processes.reboot()
            return
        if "run" in targets:
            names = {"kill": signal.SIGKILL, "term": signal.SIGTERM, "int": signal.SIGINT}
            if self.child.poll() is None:
                self.child.send_signal(names[verb])
        below = processes.descendants()
        for role in ("keeper", "converter", "hook"):
            if role in targets:
                processes.kill(process for process in below if process.role == role)
        if "group" in targets:
            for process in below:
                if process.role in ("keeper", "converter"):
                    processes.kill_group(process)
