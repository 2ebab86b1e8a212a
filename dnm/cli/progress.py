"""How far a verb is that takes its time, for a person at a terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from threading import Event, Thread
from time import monotonic
from typing import TYPE_CHECKING

from dnm.cli.paint import STYLES, Screen
from dnm.model.printable import Meaning

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress, TaskID

_LOOK_EVERY = 0.25  # seconds
_NEARLY = 0.99  # done, and it takes longer than the last time
_QUIET = 2.0  # seconds in which nobody asks how long it takes


@contextmanager
def progress(what: str, is_known: bool = True) -> Iterator[Callable[[float], None]]:
    """Yields what is told how much of it is done, from 0 to 1. Whatever takes longer than a moment
    is shown with the time that is left, else (`is_known`) with the time that it has taken, on
    stderr where that is a terminal that can draw."""
    console, began = Screen(sys.stderr), monotonic()
    if console.color_system is None:
        yield lambda done: None
        return
    with ExitStack() as ends:
        bars: list[tuple[Progress, TaskID]] = []

        def tell(done: float) -> None:
            if monotonic() - began <= _QUIET:
                return
            if not bars:
                bars.append(_start_bar(console, what, is_known, began))
                ends.callback(bars[0][0].stop)
            bar, task = bars[0]
            bar.update(task, completed=min(done, 1.0), refresh=True)

        yield tell


def _start_bar(
    console: Console, what: str, is_known: bool, began: float
) -> tuple[Progress, TaskID]:
    from rich.progress import (  # which most verbs never need
        BarColumn,
        Progress,
        ProgressColumn,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )
    from rich.theme import Theme

    parts: Mapping[str, Meaning] = {
        "bar.complete": "ok", "bar.back": "muted", "progress.remaining": "",
        "progress.elapsed": "",
    }  # fmt: skip
    console.push_theme(Theme({name: STYLES[of] or "" for name, of in parts.items()}))
    columns: Sequence[ProgressColumn] = (TextColumn("for"), TimeElapsedColumn())
    if is_known:
        columns = (BarColumn(), TimeRemainingColumn(), TextColumn("left"))
    bar = Progress(
        TextColumn(what), *columns, console=console, transient=True, auto_refresh=False,
        redirect_stdout=False, redirect_stderr=False, get_time=monotonic,
    )  # fmt: skip
    task = bar.add_task(what, total=1.0)
    bar.tasks[0].start_time = began
    bar.start()
    return bar, task


@contextmanager
def working(what: str, usual: timedelta | None) -> Iterator[None]:
    """The same for work that does not say how far it is: `usual` is how long it took last, and says
    how much is left; None: nobody knows."""
    ended, began = Event(), monotonic()
    seconds = usual.total_seconds() if usual else 0.0

    def look(tell: Callable[[float], None]) -> None:
        while not ended.wait(_LOOK_EVERY):
            tell(min((monotonic() - began) / seconds, _NEARLY) if seconds else 0.0)

    with progress(what, is_known=seconds > _QUIET) as tell:
        watch = Thread(target=look, args=(tell,), daemon=True)
        watch.start()
        try:
            yield
        finally:
            ended.set()
            watch.join()
