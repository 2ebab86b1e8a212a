"""Draws docs/pictures/*.svg: the output of four commands for a workshop on the embedded cluster.

    python -m packages.pictures

The clocks of the cluster and of the commands do not advance, so that equal code draws equal
pictures. rich draws them, without its fonts, which a page would have to load from elsewhere."""

from __future__ import annotations

import io
import os
import re
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, redirect_stdout, suppress
from datetime import UTC, datetime, tzinfo
from html import unescape
from pathlib import Path
from typing import Self
from unittest import mock

from rich.console import Console
from rich.terminal_theme import TerminalTheme
from rich.text import Text

from dnm.lab.sandbox.cluster import Sandbox
from tests.site import QUEUE, Site, set_up_workshop

DIRECTORY = Path(__file__).parent.parent / "docs" / "pictures"
NOON = datetime(2026, 3, 2, 12, 0, tzinfo=UTC)
COLUMNS = 80
# The name of a picture -> the arguments of the command.
COMMANDS: Mapping[str, tuple[str, ...]] = {
    "status": ("status",),
    "plan": ("plan",),
    "explain": ("explain", "a001"),
    "report": ("report",),
}
# Black on white, and the colours 0 to 15; dnm's own colours are of the 256 that do not change.
LIGHT = TerminalTheme(
    (255, 255, 255), (32, 32, 32),
    [(0, 0, 0), (160, 0, 0), (0, 110, 0), (130, 90, 0), (0, 0, 160), (130, 0, 130), (0, 100, 110),
     (90, 90, 90)],
)  # fmt: skip
FORMAT = (Path(__file__).parent / "picture.svg").read_text(encoding="utf-8")


class Terminal(io.StringIO):
    """A text stream that claims to be a terminal, so that commands print colours to it."""

    def isatty(self) -> bool:
        return True


@contextmanager
def clock_at(now: datetime) -> Iterator[None]:
    """Makes `now` the current time in all modules of dnm that read the clock."""

    class Stopped(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> Self:
            return cls.fromtimestamp(now.timestamp(), tz)

    with ExitStack() as stack:
        for name, module in list(sys.modules.items()):
            if name.startswith("dnm.") and getattr(module, "datetime", None) is datetime:
                stack.enter_context(mock.patch.object(module, "datetime", Stopped))
        yield


def output_of(site: Site, words: tuple[str, ...]) -> str:
    """Returns what a command prints on a terminal, with its colours."""
    from dnm.cli import app
    from dnm.cli.look import explain, lending_report, report, status

    assert all((explain, lending_report, report, status))  # imported before the clock stops

    environment = {"COLUMNS": str(COLUMNS), "TERM": "xterm-256color", "DNM_CONFIG": str(site.path)}
    terminal = Terminal()
    with (
        mock.patch.dict(os.environ, environment),
        mock.patch.object(sys, "argv", ["dnm", *words]),
        clock_at(site.now()),
        redirect_stdout(terminal),
        suppress(SystemExit),
    ):
        app.main()
    return re.sub(r"took \d+\.\d s", "took 0.4 s", terminal.getvalue())  # the machine's own speed


def draw(name: str, output: str) -> str:
    """Returns the picture of a command's output."""
    console = Console(width=COLUMNS, record=True, file=io.StringIO(), color_system="256")
    prompt = (f"$ dnm {' '.join(COMMANDS[name])}\n", "bold")
    shown = Text.assemble(prompt, Text.from_ansi(output.rstrip("\n")))
    console.print(shown, no_wrap=True, crop=False)
    drawn = console.export_svg(title="", theme=LIGHT, code_format=FORMAT, unique_id=name)
    return re.sub(r"[ \t]+$", "", drawn, flags=re.M)


def text_of(picture: str) -> list[str]:
    """Returns the lines of text in a picture, to compare them with a command's output."""
    parts = re.findall(r"<text[^>]*>(.*?)</text>", picture, re.S)
    return "".join(unescape(part).replace("\xa0", " ") for part in parts).splitlines()


def play(directory: Path) -> dict[str, str]:
    """Runs a workshop on a sandbox, and returns name -> picture of the commands' output."""
    sandbox = Sandbox(directory / "sandbox").start()
    try:
        sandbox.clock.set(NOON.timestamp())
        set_up_workshop(sandbox, 6)
        sandbox.add_node("k1", cpu="128", memory="256G")
        sandbox.add_pods(60, "dev", queue=QUEUE, cpu="4", memory="16G")
        site = Site(sandbox, directory / "site", max_converted_nodes=3, demand_days=60)
        for _ in range(4):
            site.run()
            sandbox.tick(60)
        sandbox.finish_pods([name for name, node in site.pods().items() if node == "a001"], "dev")
        sandbox.tick(30)
        site.run()
        return {name: draw(name, output_of(site, words)) for name, words in COMMANDS.items()}
    finally:
        sandbox.stop()


def main() -> int:
    DIRECTORY.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="dnm-pictures-") as name:
        for picture, text in play(Path(name)).items():
            (DIRECTORY / f"{picture}.svg").write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
