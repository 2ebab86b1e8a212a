"""Random queue trees that YuniKorn accepts, in random styles. The seed makes them repeatable."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

from dnm.queues.yunikorn.quantities import parse_yunikorn

_UNITS = {
    "vcore": ("", "m", "000m", "k"),
    "memory": ("", "G", "Gi", "M", "Ti", "Ki"),
    "pods": ("", "k"),
    "nvidia.com/gpu": ("",),
}
_CLUSTER = {"vcore": 4_000_000, "memory": 2**44, "pods": 9000, "nvidia.com/gpu": 512}


def random_tree(rng: random.Random) -> str:
    """Returns a valid queue document: no `max` exceeds that of an ancestor, and the children's
    guarantees fit into the parent's."""
    return _write(_queue(rng, "root", (_CLUSTER, _CLUSTER), depth=0), rng)


def _queue(
    rng: random.Random, name: str, share: tuple[Mapping[str, int], Mapping[str, int]], depth: int
) -> dict[str, Any]:
    queue: dict[str, Any] = {"name": rng.choice((name, name.upper())) if depth else name}
    bounds, budget = dict(share[0]), dict(share[1])
    if depth and rng.random() < 0.7:
        maximum = _limits(rng, bounds, 0.6)
        bounds |= {name: parse_yunikorn(name, text) for name, text in maximum.items()}
        budget = {name: min(amount, bounds[name]) for name, amount in budget.items()}
        guaranteed = _limits(rng, budget, 0.3)
        budget |= {name: parse_yunikorn(name, text) for name, text in guaranteed.items()}
        limits = {"max": maximum, "guaranteed": guaranteed}
        queue["resources"] = {kind: results for kind, results in limits.items() if results}
        if maximum.get("vcore", "1") != "0" and bounds["vcore"] and rng.random() < 0.15:
            queue["limits"] = [{"limit": "x", "maxresources": {"vcore": "1m"}}]
    if depth < 4 and rng.random() < (1, 0.8, 0.45, 0.3)[depth]:
        names = rng.sample(("a", "b", "c"), rng.choice((1, 2, 2, 3)))
        settings = {name: amount // len(names) for name, amount in budget.items()}
        queue["queues"] = [_queue(rng, child, (bounds, settings), depth + 1) for child in names]
    return queue


def _limits(rng: random.Random, most: Mapping[str, int], chance: float) -> dict[str, str]:
    limits = {}
    for resource, bound in most.items():
        if rng.random() < chance:
            unit = rng.choice(_UNITS[resource])
            number = bound // parse_yunikorn(resource, f"1{unit}")
            if rng.random() < 0.92:
                number = rng.randint(number // 3, number)
            else:
                number = rng.choice((0, number))
            zeros = "0" * (rng.random() < 0.05)
            limits[resource] = f"{zeros}{number}{unit}"
    return limits


def _write(root: dict[str, Any], rng: random.Random) -> str:
    newline = rng.choice(("\n", "\n", "\n", "\r\n"))
    lines = ["partitions:", "- name: default", "  queues:"]
    _write_queue(root, rng, "  ", lines)
    text = newline.join(lines) + rng.choice(("", newline))
    return rng.choice(("", "", "\ufeff")) + text


def _write_queue(queue: dict[str, Any], rng: random.Random, indent: str, lines: list[str]) -> None:
    lines.append(f"{indent}- name: {_quoted(rng, queue['name'])}{_comment(rng)}")
    inner = indent + "  "
    if queue.get("resources"):
        lines.append(f"{inner}resources:{_comment(rng)}")
        for kind, limits in queue["resources"].items():
            pairs = [f"{key}:{' ' * rng.randint(1, 3)}{_quoted(rng, value)}"
                     for key, value in limits.items()]  # fmt: skip
            if rng.random() < 0.5:
                lines.append(f"{inner}  {kind}: {{{', '.join(pairs)}}}{_comment(rng)}")
            else:
                lines.append(f"{inner}  {kind}:{_comment(rng)}")
                lines += [f"{inner}    {pair}{_comment(rng)}" for pair in pairs]
    for limit in queue.get("limits", ()):
        lines.append(f"{inner}limits: [{{limit: {limit['limit']}, users: [u], "
                     f"maxresources: {{vcore: {limit['maxresources']['vcore']}}}}}]")  # fmt: skip
    if queue.get("queues"):
        lines.append(f"{inner}queues:")
        for child in queue["queues"]:
            _write_queue(child, rng, inner, lines)


def _quoted(rng: random.Random, text: str) -> str:
    mark = rng.choice(("", "", "'", '"'))
    return f"{mark}{text}{mark}"


def _comment(rng: random.Random) -> str:
    return rng.choice(("", "", "", "  # 80 cores, 320G", "\t# x: 5"))
