"""How the demo looks: plain lines. Shows, decides nothing."""

from __future__ import annotations

import shutil
import textwrap
import time
from typing import Any

State = dict[str, Any]


class View:
    """Where a demo is shown: a line for everything that changes."""

    def __init__(self, queue: str, namespace: str) -> None:
        self.queue = queue
        self.namespace = namespace
        self._begun = time.monotonic()
        self._last = ""

    def narrate(self, sentence: str) -> None:
        self._print(f"== {sentence}")

    def show_output(self, line: str) -> None:
        self._print(f"dnm run: {line}")

    def show(self, state: State) -> None:
        pods, queue = pods_of(state, self.namespace), state["queues"][self.queue]
        sessions = ", ".join(f"{count} {word}" for word, count in pods.items())
        lent = ", ".join(f"{name} {count}" for name, count in lent_nodes(state).items())
        line = f"{sessions}; queue {amount(queue['max'])}"
        line += f"\npods on lent nodes: {lent}" if lent else ""
        if line != self._last:
            self._last = line
            self._print(line)

    def _print(self, text: str) -> None:
        before = f"{time.monotonic() - self._begun:5.1f} s  "
        width = shutil.get_terminal_size().columns
        for part in text.splitlines():
            timed = textwrap.fill(
                before + part, width, subsequent_indent=" " * 11, break_long_words=False,
                break_on_hyphens=False,
            )  # fmt: skip
            print(timed, flush=True)
            before = " " * 9


# --- reading the state -----------------------------------------------------------------------


def pods_of(state: State, namespace: str) -> dict[str, int]:
    """pending, starting, running; and ended, which are counted when their Node has gone too."""
    found = state["pods"].get(namespace, {})
    counts = {word: found.get(word, 0) for word in ("pending", "starting", "running")}
    return {**counts, "ended": state["ended"].get(namespace, 0)}


def lent_nodes(state: State) -> dict[str, int]:
    """Slurm's nodes that are in Kubernetes, with their pods."""
    nodes = state["nodes"]
    return {name: nodes[name]["pods"] for name in state["machines"] if name in nodes}


def size(resource: str, value: int) -> str:
    return f"{value // 1000} vcore" if resource == "vcore" else f"{value / 10**9:.0f} GB"


def amount(resources: dict[str, int]) -> str:
    shown = [size(name, resources[name]) for name in ("vcore", "memory") if name in resources]
    return ", ".join(shown) or "no limit"
