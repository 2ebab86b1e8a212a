"""A site on the real cluster: dnm's files, a converter, and the installed `dnm` command."""

from __future__ import annotations

import json
import secrets
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.real.cluster import REST
from tests.real.converter import Machines, write_converter
from tests.real.http_api import Json
from tests.real.programs import HUNG
from tests.real.rig import Rig
from tests.site import ini_text

DEV, NOTEBOOK = "root.research.services.dev", "root.research.services.notebook"
QUEUE_MAP = {"dev": DEV, "notebook": NOTEBOOK}
PODS = "/api/v1/namespaces/dev/pods"
CONTROLLERS = "/apis/apps/v1/namespaces/dev"
Answer = subprocess.CompletedProcess[str]


def edit_file(path: Path, old: str, new: str) -> None:
    """Replaces a part of a file; fails if the file does not contain it."""
    text = path.read_text()
    assert old in text, f"{path} has no {old!r}"
    path.write_text(text.replace(old, new))


class Site:
    """A site. `settings` are keys of [settings], `sections` further sections of the ini, `server`
    the address of the API server for the site's host."""

    def __init__(
        self, rig: Rig, directory: Path, kubeconfig: Path, *, machines: Sequence[str] = (),
        sections: str = "", server: str = "", queue_map: Mapping[str, str] = QUEUE_MAP,
        **settings: object,
    ) -> None:  # fmt: skip
        self.rig = rig
        self.directory = directory
        directory.mkdir(parents=True, mode=0o755)
        self.machines = Machines(directory)
        names = machines or [f"a{number:03}" for number in range(1, 9)]
        self.converter = write_converter(directory, server or rig.api.url, rig.keys, names)
        values = {
            "monitored_namespaces": ", ".join(queue_map),
            "namespace_queue_paths": directory / "map.json",
            "kubeconfig_path": kubeconfig,
            "yunikorn_url": REST,
            "node_convert_path": self.converter,
            "state_dir": directory / "state",
            "instance_id": "real",
            "max_converted_nodes": 8,
            "global_cooldown_seconds": 0,
            "pending_grace_seconds": 0,
            "reversion_idle_seconds": 2,
            **settings,
        }
        if "registry" not in settings:  # else hosts share it; another story has left its Lease
            lease = f"dnm-{values['instance_id']}"
            rig.shell(f"kubectl delete lease --namespace dnm --ignore-not-found {lease}")
        (directory / "state").mkdir(mode=0o700)
        (directory / "map.json").write_text(json.dumps(dict(queue_map)))
        arguments = {key: value for key, value in values.items() if value is not None}
        self.config = directory / "dnm.ini"
        own = "" if "[node_type:" in sections else "[node_type:a]\nmemory = 256Gi\n"
        self.config.write_text(f"{ini_text(arguments)}{own}{sections}")
        self.command: list[str] = ["dnm"]  # the prefix of the command's arguments
        self.variables: dict[str, str] = {}  # of its environment, beside those of cron

    def use_kubeconfig(self, path: Path) -> None:
        """Uses another kubeconfig from the next run on."""
        lines = self.config.read_text().splitlines(keepends=True)
        key = "kubeconfig_path"
        changed = [f"{key} = {path}\n" if line.startswith(key) else line for line in lines]
        self.config.write_text("".join(changed))

    # --- dnm -------------------------------------------------------------------------------------

    @property
    def environment(self) -> dict[str, str]:
        """Returns the environment that cron would give dnm: with PATH, without KUBECONFIG."""
        environment = {**self.rig.environment, "DNM_CONFIG": str(self.config), "COLUMNS": "200"}
        del environment["KUBECONFIG"]
        return environment | self.variables

    def start(self, *arguments: str, **variables: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [*self.command, *arguments], env={**self.environment, **variables},
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            cwd=self.directory,
        )  # fmt: skip

    def dnm(self, *arguments: str, code: int | None = 0, **variables: str) -> Answer:
        """Runs a dnm command. Fails unless its exit code is `code` (None accepts any)."""
        process = self.start(*arguments, **variables)
        stdout, stderr = process.communicate(timeout=HUNG)
        answer = Answer(process.args, process.returncode, stdout, stderr)
        message = f"dnm {' '.join(arguments)}: exit code {process.returncode}\n{stdout}{stderr}"
        assert code is None or answer.returncode == code, message
        assert "Traceback" not in stderr, message
        return answer

    def json(self, *arguments: str, code: int | None = 0) -> Any:
        return json.loads(self.dnm(*arguments, "-o", "json", code=code).stdout)

    def run_until(
        self, is_so: Callable[[], Any], condition: str, seconds: float = 90.0, code: int | None = 0
    ) -> list[Answer]:
        """Plays runs, one each second, until `is_so`; each must have the exit code `code`. Fails
        after `seconds` without progress."""
        patience, runs = self.rig.patience(seconds), []
        while not is_so():
            runs.append(self.dnm("run", code=code))
            message = "".join(f"{run.stdout}{run.stderr}" for run in runs[-3:])
            assert not patience.is_over(), f"no progress for {seconds} s: {condition}\n{message}"
            time.sleep(0.5)
        return runs

    # --- what there is ---------------------------------------------------------------------------

    @property
    def calls(self) -> list[str]:
        path = self.directory / "calls"
        return path.read_text().splitlines() if path.exists() else []

    @property
    def lent(self) -> list[str]:
        """Returns the lent nodes, by `dnm status`."""
        return [node["node"] for node in self.json("status")["nodes"]]

    def queue(self, path: str) -> Json:
        """Returns what `dnm plan` reports about a queue."""
        queues = self.json("plan", code=None)["queues"]
        return next(dict(queue) for queue in queues if queue["queue"] == path)

    def has_returned_nodes(self) -> bool:
        places = set(self.machines.places().values())
        return places == {"batch"} and not self.lent

    def seconds(self, pause: float) -> None:
        """Sets how many seconds the converter takes for each conversion."""
        (self.directory / "seconds").write_text(str(pause))

    @property
    def state(self) -> dict[str, bytes]:
        root = self.directory / "state"
        return {
            str(path.relative_to(root)): path.read_bytes()
            for path in sorted(root.rglob("*"))
            if path.is_file()
        }


def pod(name: str, queue: str, cpu: str, memory: str, **spec: Any) -> Json:
    """Returns a Pod for YuniKorn in a new application. `spec`, `labels` and `annotations` add to
    it. No application id is used twice, because YuniKorn remembers it for a while, in any
    namespace."""
    labels = {
        "applicationId": f"{name}-{secrets.token_hex(4)}",
        "queue": queue,
        **spec.pop("labels", {}),
    }
    return plain_pod(name, cpu, memory, **{"labels": labels, "schedulerName": "yunikorn", **spec})


def plain_pod(name: str, cpu: str, memory: str, **spec: Any) -> Json:
    """Returns a Pod for kube-scheduler; `spec` adds to its spec."""
    metadata: Json = {"name": name}
    for key in ("labels", "annotations"):
        if value := spec.pop(key, None):
            metadata[key] = value
    requests = {"cpu": cpu, "memory": memory}
    containers = [{"name": "main", "image": "none", "resources": {"requests": requests}}]
    return {"metadata": metadata, "spec": {"containers": containers, **spec}}


def add_pods(rig: Rig, count: int, cpu: str = "4", memory: str = "16Gi") -> list[Json]:
    """Adds `count` pods in dev. With the default 4 cores and 16 GiB, 25 fit into the queue and 16
    more on each lent node."""
    return [rig.api.post(PODS, pod(f"p{n:02}", DEV, cpu, memory)) for n in range(count)]


def add_controller(
    rig: Rig, name: str, manifest: Json, replicas: int = 1, kind: str = "replicasets"
) -> None:
    """Adds a controller that creates such pods and replaces evicted ones."""
    labels = manifest["metadata"]["labels"] | {"app": name}
    spec = {
        "replicas": replicas, "selector": {"matchLabels": {"app": name}},
        "template": {"metadata": {"labels": labels}, "spec": manifest["spec"]},
    }  # fmt: skip
    rig.api.post(f"{CONTROLLERS}/{kind}", {"metadata": {"name": name}, "spec": spec})


def request_one_node(rig: Rig) -> None:
    """Adds twelve pods of 16 cores, 192 in all. The queue has 100 cores, and a node adds 128."""
    add_pods(rig, 12, "16", "8Gi")


def with_nodes(count: int) -> dict[str, int]:
    """Returns the limit that dev's queue must have with this number of lent nodes."""
    return {"vcore": (100 + count * 128) * 1000, "memory": (400 + count * 256) * 2**30}
