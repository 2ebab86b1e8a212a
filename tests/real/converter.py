"""A site's `node-convert` that keeps the contract: it creates and deletes Nodes as kubelets do.

`DIRECTORY/machines/NAME` holds the place of each machine, `batch` or `kubernetes`;
`DIRECTORY/calls` has a line for each call. `DIRECTORY/seconds` is the duration of a conversion,
`DIRECTORY/memory` the memory of a machine, part of which its kubelet reserves. `DIRECTORY/dress`
has further labels and taints of a lent node, with NAMESPACE in them. The converter does not check
for pods on a node that it takes away, as many a site's script does not: dnm must."""

from __future__ import annotations

import argparse
import fcntl
import json
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.real.http_api import Api, ApiError

AMOUNTS = {"cpu": "128", "memory": "256Gi", "pods": "250"}
WRAPPER = """\
#!{python}
import sys
sys.path.insert(0, {repository!r})
from tests.real.converter import main
sys.exit(main({directory!r}, {url!r}, {keys!r}))
"""


def write_converter(directory: Path, url: str, keys: Path, machines: Sequence[str]) -> Path:
    """Writes the converter of a site, and its files with all machines in `batch`."""
    (directory / "machines").mkdir(parents=True)
    for name in machines:
        (directory / "machines" / name).write_text("batch")
    path = directory / "node-convert"
    path.write_text(
        WRAPPER.format(
            python=sys.executable,
            repository=str(Path(__file__).parent.parent.parent),
            directory=str(directory),
            url=url,
            keys=str(keys),
        )
    )
    path.chmod(0o755)
    return path


class Machines:
    """The files with the place of each machine, changed under a lock."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory / "machines"

    def places(self) -> dict[str, str]:
        return {path.name: path.read_text() for path in sorted(self.directory.glob("[a-z]*"))}

    def move(self, name: str, place: str) -> None:
        (self.directory / name).write_text(place)

    @contextmanager
    def locked(self) -> Iterator[None]:
        with (self.directory / ".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield


def main(directory: str, url: str, keys: str) -> int:
    parser = argparse.ArgumentParser(prog="node-convert")
    subject = parser.add_mutually_exclusive_group(required=True)
    subject.add_argument("--set", choices=("k8s", "batch"))
    subject.add_argument("--list", action="store_true")
    parser.add_argument("--node-type", default="")
    parser.add_argument("--node-name", default="")
    parser.add_argument("--num-nodes", type=int, default=1)
    parser.add_argument("--namespace", default="")
    parser.add_argument("--allow-preempt", action="store_true")
    options = parser.parse_args()
    place = Path(directory)
    with (place / "calls").open("a") as calls:
        calls.write(" ".join(sys.argv[1:]) + "\n")
    machines = Machines(place)
    if options.list:
        return show(machines, options)
    api = Api(url, Path(keys))
    if options.set == "k8s":
        return lend(machines, api, options, seconds(place))
    return return_nodes(machines, api, options.node_name, seconds(place))


def seconds(place: Path) -> float:
    path = place / "seconds"
    return float(path.read_text()) if path.exists() else 0.0


def show(machines: Machines, options: argparse.Namespace) -> int:
    print(f"{'NODE':<12} {'STATE':<22} {'IDLE':>8} {'VERDICT':<8} REASON")
    good = total = 0
    for name, place in machines.places().items():
        if name.startswith(options.node_type) and options.node_name in ("", name):
            total, is_free = total + 1, place == "batch"
            good += is_free
            state, verdict = ("IDLE", "OK") if is_free else ("IDLE+DRAIN+RESERVED", "SKIP")
            reason = "-" if is_free else f"reservation k8s-{name}"
            print(f"{name:<12} {state:<22} {9999:>8} {verdict:<8} {reason}")
    print(f"\n{good} of {total} nodes could be converted now")
    return 0


def lend(machines: Machines, api: Api, options: argparse.Namespace, pause: float) -> int:
    with machines.locked():
        free = [
            name
            for name, place in machines.places().items()
            if place == "batch"
            and name.startswith(options.node_type)
            and options.node_name in ("", name)
        ][: options.num_nodes]
        for name in free:
            machines.move(name, "claimed")
    for name in free:
        print(f"{name}: converting", file=sys.stderr, flush=True)
        time.sleep(pause)
        machines.move(name, "kubernetes")
        place = machines.directory.parent
        join(api, name, options.namespace, memory(place), dress(place, options.namespace))
        print(name, flush=True)
    return 0 if len(free) == options.num_nodes else 1


def memory(place: Path) -> str:
    path = place / "memory"
    return path.read_text() if path.exists() else AMOUNTS["memory"]


def dress(place: Path, namespace: str) -> dict[str, str]:
    """Returns the further labels of a lent node, each of which is also a taint."""
    path = place / "dress"
    text = path.read_text() if path.exists() else "{}"
    return dict(json.loads(text.replace("NAMESPACE", namespace)))


def join(
    api: Api,
    name: str,
    namespace: str,
    memory: str = AMOUNTS["memory"],
    dress: Mapping[str, str] = {},
) -> None:
    """Registers the Node as a kubelet does; kwok's heartbeat makes it Ready."""
    labels = {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux", namespace: "true"}
    labels |= dress
    taints = [{"key": k, "value": v, "effect": "NoSchedule"} for k, v in dress.items()]
    try:
        api.post(
            "/api/v1/nodes",
            {
                "metadata": {"name": name, "labels": {k: v for k, v in labels.items() if k}},
                "spec": {"taints": taints},
                "status": {"allocatable": AMOUNTS, "capacity": {**AMOUNTS, "memory": memory}},
            },
        )
    except ApiError as error:
        if error.reason != "AlreadyExists":
            raise


def return_nodes(machines: Machines, api: Api, name: str, pause: float) -> int:
    with machines.locked():
        if name not in machines.places():
            print(f"node-convert: {name}: no such machine", file=sys.stderr)
            return 1
        api.delete(f"/api/v1/nodes/{name}")
    time.sleep(pause)
    machines.move(name, "batch")
    print(name, flush=True)
    return 0
