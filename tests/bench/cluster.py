"""Writes a made-up cluster in the form in which an API server sends it. Seeded: equal every time.

Pods have 3 to 5 KB, with managedFields, conditions, volumes and container statuses; nodes 6 to 8 KB
with their image lists. 70 % of the pods run, a tenth waits (or runs too, in the quiet twin of the
cluster), 2 % are bound and start, 18 % are finished. A tenth of the running ones belong to
DaemonSets. Each object lies in the file as one HTTP chunk, so that the server only copies.
"""

from __future__ import annotations

import json
import random
from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.bench.objects import HEX, TAIL, MadePod, instant, node_document, uid, word

NAMESPACES = tuple(f"team-{number:02d}" for number in range(10))
_SEED = 20240501
_SHAPES = tuple(
    (cpu, memory)
    for cpu in ("250m", "500m", "1", "2", "4")
    for memory in ("512Mi", "1Gi", "4Gi", "8Gi")
)


@dataclass(frozen=True)
class Size:
    nodes: int
    pods: int

    @property
    def name(self) -> str:
        return f"{self.nodes:,} nodes / {self.pods:,} pods"


class Segment:
    """A file of chunked objects and where each of them begins."""

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
    """`nodes`, `busy` and `quiet` (unfinished pods, with and without waiting ones), `finished`."""
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
    """The tenth evenly among the others, so that every page has its share."""
    mixed = list(plain)
    step = max(len(mixed) // max(len(tenth), 1), 1)
    for position, phase in enumerate(tenth):
        mixed.insert(position * (step + 1), phase)
    return mixed


def _pods(size: Size, phases: list[str], name: str) -> Iterator[bytes]:
    # The twins differ in nothing but the phase of their tenth.
    generator = random.Random(f"{_SEED}-{name == 'finished'}")
    return (_pod(generator, number, phase, size.nodes) for number, phase in enumerate(phases))


def _pod(generator: random.Random, number: int, phase: str, nodes: int) -> bytes:
    is_daemon = number % 10 == 3 and phase in ("Running", "Pending")
    if is_daemon:
        phase = "Running"
    namespace = "kube-system" if is_daemon else NAMESPACES[number // 20 % len(NAMESPACES)]
    application = f"app-{number // 40:05d}"
    node = "" if phase == "Pending" else f"node-{generator.randrange(nodes):05d}"
    made = MadePod(
        name=f"{application}-{word(generator, TAIL, 10)}-{word(generator, TAIL, 5)}",
        namespace=namespace,
        application=application,
        uid=uid(generator),
        created=instant(generator),
        node=node,
        phase={"Starting": "Pending"}.get(phase, phase),
        shape=_SHAPES[generator.randrange(len(_SHAPES))],
        owner="DaemonSet" if is_daemon else ("ReplicaSet" if number % 3 else "Job"),
        volume=f"kube-api-access-{word(generator, TAIL, 5)}",
        image=word(generator, HEX, 64),
        environment=generator.randint(0, 4),
    )
    return json.dumps(made.document(), separators=(",", ":")).encode()


def _nodes(count: int) -> Iterator[bytes]:
    generator = random.Random(f"{_SEED}-nodes")
    images = [word(generator, HEX, 64) for _ in range(200)]
    return (
        json.dumps(node_document(generator, number, images), separators=(",", ":")).encode()
        for number in range(count)
    )


def queue_document(size: Size) -> str:
    """A queue for every namespace, wide enough for all its pods."""
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
