"""Generates a cluster and writes it as an API server would send it. A fixed seed repeats it.

Pods have 3 to 14 kB and differ from application to application (`pods.py`); nodes have 6 to 8 kB
with their image lists. 70 % of the pods run, 2 % are bound and start, 18 % are finished. The last
tenth waits in the variant `busy` of the cluster and runs in `quiet`. A tenth of the running pods
belong to DaemonSets. Each object is one HTTP chunk in the file, so that the server only copies."""

from __future__ import annotations

import random
from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec

from tests.bench.objects import HEX, node_document, word
from tests.bench.pods import PODS_AN_APPLICATION, Application, Place

NAMESPACES = tuple(f"team-{number:02d}" for number in range(10))
_SEED = 20240501
_DAEMONS = 8


@dataclass(frozen=True)
class Size:
    nodes: int
    pods: int

    @property
    def name(self) -> str:
        return f"{self.nodes:,} nodes / {self.pods:,} pods"


class Segment:
    """A file of objects, each in one HTTP chunk, and the offset of each object in the file."""

    def __init__(self, path: Path, objects: Iterator[bytes]) -> None:
        self.path = path
        self.offsets = array("Q", [0])
        with path.open("wb") as file:
            for position, body in enumerate(objects):
                piece = body if position == 0 else b"," + body
                self.offsets.append(self.offsets[-1] + file.write(chunk(piece)))

    def __len__(self) -> int:
        return len(self.offsets) - 1


def chunk(body: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(body), body)


def write_cluster(size: Size, directory: Path) -> dict[str, Segment]:
    """Writes files of nodes, finished pods, and unfinished pods with and without waiting ones."""
    waiting, finished = size.pods // 10, size.pods * 18 // 100
    starting = size.pods // 50
    running = size.pods - waiting - finished - starting
    plain = ["Running"] * running + ["Starting"] * starting
    random.Random(_SEED).shuffle(plain)
    kinds = {
        "busy": _mixed(plain, ["Pending"] * waiting),
        "quiet": _mixed(plain, ["Running"] * waiting),
        "finished": ["Succeeded"] * finished,
    }
    segments = {
        name: Segment(directory / f"{name}.chunks", _pods(size, phases, name))
        for name, phases in kinds.items()
    }
    segments["nodes"] = Segment(directory / "nodes.chunks", _nodes(size.nodes))
    return segments


def _mixed(plain: list[str], tenth: list[str]) -> list[str]:
    """Returns `plain` with the phases in `tenth` spread evenly, so that each page has some."""
    mixed = list(plain)
    step = max(len(mixed) // max(len(tenth), 1), 1)
    for position, phase in enumerate(tenth):
        mixed.insert(position * (step + 1), phase)
    return mixed


def _pods(size: Size, phases: list[str], name: str) -> Iterator[bytes]:
    """Yields the pods of one application after the other. A pod is equal in the variants `busy` and
    `quiet` except for its phase and its node."""
    total = size.pods // PODS_AN_APPLICATION + 1
    seed = f"{_SEED}-{name == 'finished'}"
    daemons = [Application(seed, number, "kube-system", True) for number in range(_DAEMONS)]
    last = -1
    for number, phase in enumerate(phases):
        if number // PODS_AN_APPLICATION != last:
            last = number // PODS_AN_APPLICATION
            namespace = NAMESPACES[last * len(NAMESPACES) // total]
            application = Application(seed, last, namespace)
        is_daemon = number % 10 == 3 and phase in ("Running", "Pending")
        chance = random.Random(number if name != "finished" else -1 - number)
        node = f"node-{chance.randrange(size.nodes):05d}"
        place = Place(number, node, {"Starting": "Pending"}.get(phase, phase))
        if is_daemon:
            place, owner = Place(number, node, "Running"), daemons[number // 10 % _DAEMONS]
        else:
            owner = application
            if phase == "Pending":
                place = Place(number, "", phase)
        yield msgspec.json.encode(owner.document(chance, place))


def _nodes(count: int) -> Iterator[bytes]:
    generator = random.Random(f"{_SEED}-nodes")
    images = [word(generator, HEX, 64) for _ in range(200)]
    return (
        msgspec.json.encode(node_document(generator, number, images)) for number in range(count)
    )


def queue_document(size: Size) -> str:
    """Returns a queue for every namespace, large enough for all its pods."""
    lines = [
        "partitions:",
        "  - name: default",
        "    queues:",
        "      - name: root",
        "        queues:",
    ]
    lines += ["          - name: site", "            queues:"]
    for name in NAMESPACES:
        lines += [
            f"              - name: {name}",
            "                resources:",
            "                  max:",
            f"                    vcore: {size.nodes * 128}",
            f"                    memory: {size.nodes * 256}G",
        ]
    return "\n".join(lines) + "\n"
