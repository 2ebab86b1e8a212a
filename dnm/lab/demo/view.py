"""How the demo looks: live on a terminal, plain lines elsewhere. Shows, decides nothing."""

from __future__ import annotations

import sys
import time
from collections import deque
from typing import TYPE_CHECKING, Any, Protocol

from dnm.model.printable import count_of

if TYPE_CHECKING:
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

State = dict[str, Any]
_LINES_SHOWN = 9
_BAR = 40
_STYLES = {  # told apart without colour too
    "running": ("█", "green"),
    "starting": ("▓", "cyan"),
    "pending": ("░", "red"),
    "ended": ("·", "dim"),
}
_PLACES = {
    "batch": ("idle", "dim"),
    "leaving": ("converting", "yellow"),
    "returning": ("returning", "yellow"),
}


class View(Protocol):
    """Where a demo is shown: its story, the lines of dnm, the state of the sandbox."""

    def narrate(self, sentence: str) -> None: ...
    def show_output(self, line: str) -> None: ...
    def show(self, state: State) -> None: ...
    def close(self) -> None: ...


def open_view(queue: str, namespace: str) -> View:
    if sys.stdout.isatty():
        return LiveView(queue, namespace)
    return PlainView(queue, namespace)


class PlainView:
    """A line for everything that changes."""

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
        lent = [f"{name} ({count_of(pods, 'pod')})" for name, pods in lent_nodes(state).items()]
        line = (
            f"sessions: {pods['pending']} pending, {pods['starting']} starting, "
            f"{pods['running']} running, {pods['ended']} ended | "
            f"queue: {amount(queue['max'])} | in Kubernetes: {', '.join(lent) or 'no lent node'}"
        )
        if line != self._last:
            self._last = line
            self._print(line)

    def close(self) -> None:
        pass

    def _print(self, text: str) -> None:
        print(f"{time.monotonic() - self._begun:5.1f} s  {text}", flush=True)


class LiveView:
    """One screen that is drawn anew several times a second."""

    def __init__(self, queue: str, namespace: str) -> None:
        from rich.live import Live

        self.queue = queue
        self.namespace = namespace
        self._begun = time.monotonic()
        self._sentence = ""
        self._lines: deque[str] = deque(maxlen=_LINES_SHOWN)
        self._state: State | None = None
        self._live = Live(auto_refresh=False, transient=False)
        self._live.start()

    def narrate(self, sentence: str) -> None:
        self._sentence = sentence
        self._lines.append(f"[{time.monotonic() - self._begun:4.0f} s] {sentence}")
        self._draw()

    def show_output(self, line: str) -> None:
        self._lines.append(f"         {line}")
        self._draw()

    def show(self, state: State) -> None:
        self._state = state
        self._draw()

    def close(self) -> None:
        self._live.stop()

    def _draw(self) -> None:
        if self._state is not None:
            self._live.update(self._screen(self._state), refresh=True)

    def _screen(self, state: State) -> Group:
        from rich.console import Group
        from rich.panel import Panel
        from rich.text import Text

        title = f"dnm demo, {time.monotonic() - self._begun:.0f} s"
        return Group(
            Panel(Text(self._sentence, style="bold"), title=title, title_align="left"),
            self._bars(state),
            Text(),
            self._machines(state),
            Panel(Text("\n".join(self._lines)), title="dnm run", title_align="left"),
        )

    def _bars(self, state: State) -> Table:
        from rich.table import Table

        queue, pods = state["queues"][self.queue], pods_of(state, self.namespace)
        table = Table.grid(padding=(0, 2))
        for resource in ("vcore", "memory"):
            limit = queue["max"].get(resource, 0)
            used = queue["used"].get(resource, 0)
            label = f"{size(resource, used)} of {size(resource, limit)}"
            table.add_row(f"queue, {resource}", _bar(((used, "running"), (limit - used, "ended"))),
                          label)  # fmt: skip
        parts = [(pods[word], word) for word in _STYLES]
        legend = (f"{pods[word]} {word} {sign}" for word, (sign, _) in _STYLES.items())
        table.add_row("sessions", _bar(tuple(parts)), ", ".join(legend))
        return table

    def _machines(self, state: State) -> Table:
        from rich.table import Table
        from rich.text import Text

        table = Table(title="Slurm's nodes", title_justify="left", title_style="bold", expand=False)
        columns = max(1, self._live.console.width // 32)
        for _ in range(columns):
            table.add_column(no_wrap=True)
        table.show_header = False
        cells = []
        for name, machine in state["machines"].items():
            words, colour = _describe(name, machine, state)
            cells.append(Text.assemble((f"{name}  ", "bold"), (f"{words:<20}", colour)))
        for start in range(0, len(cells), columns):
            table.add_row(*cells[start : start + columns])
        return table


def _describe(name: str, machine: State, state: State) -> tuple[str, str]:
    node = state["nodes"].get(name)
    if node is not None:
        words = "cordoned" if node["cordoned"] else "" if node["ready"] else "NotReady"
        return f"Kubernetes, {words or count_of(node['pods'], 'pod')}", "green"
    if machine["place"] == "kubernetes":
        return "joining", "cyan"
    if machine["jobs"]:
        return "batch job", "magenta"
    return _PLACES[machine["place"]]


def _bar(parts: tuple[tuple[int, str], ...]) -> Text:
    from rich.text import Text

    total = sum(max(0, part) for part, _ in parts) or 1
    bar, drawn, reached = Text(), 0, 0
    for part, word in parts:
        reached += max(0, part)
        width = _BAR * reached // total - drawn
        drawn += width
        sign, colour = _STYLES[word]
        bar.append(sign * width, style=colour)
    return bar.append(" " * (_BAR - drawn))


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
