"""The output of the demo as plain lines."""

from __future__ import annotations

import shutil
import textwrap
import time
from typing import Any

State = dict[str, Any]


class View:
    """A printer of a demo's state: it prints a line for each change."""

    def __init__(self, queue: str, namespace: str) -> None:
        self.queue = queue
        self.namespace = namespace
        self._begun = time.monotonic()
        self._last = ""
        self._wrapper = textwrap.TextWrapper(
            shutil.get_terminal_size().columns, subsequent_indent=" " * 11, break_long_words=False,
            break_on_hyphens=False,
        )  # fmt: skip

    def narrate(self, sentence: str) -> None:
        self._print(f"== {sentence}")

    def show_output(self, line: str) -> None:
        self._print(f"dnm run: {line}")

    def show(self, state: State) -> None:
        pods, most = pods_of(state, self.namespace), state["queues"][self.queue]["max"]
        sessions = ", ".join(f"{count} {word}" for word, count in pods.items())
        lent = ", ".join(f"{name} {count}" for name, count in lent_nodes(state).items())
        line = f"{sessions}; queue {most['vcore'] // 1000} vcore, {most['memory'] / 10**9:.0f} GB"
        line += f"\n{'':9}pods on lent nodes: {lent}" if lent else ""
        if line != self._last:
            self._last = line
            self._print(line)

    def _print(self, text: str) -> None:
        for part in f"{time.monotonic() - self._begun:5.1f} s  {text}".splitlines():
            print(self._wrapper.fill(part), flush=True)


# --- reading the state -----------------------------------------------------------------------


def pods_of(state: State, namespace: str) -> dict[str, int]:
    """Returns the number of a namespace's pods by state. `ended` includes pods of deleted Nodes."""
    pods = state["pods"].get(namespace, {})
    counts = {word: pods.get(word, 0) for word in ("pending", "starting", "running")}
    return {**counts, "ended": state["ended"].get(namespace, 0)}


def lent_nodes(state: State) -> dict[str, int]:
    """Returns the batch nodes that are in Kubernetes, each with the number of its pods."""
    nodes = state["nodes"]
    return {name: nodes[name]["pods"] for name in state["machines"] if name in nodes}
