"""Behaviour at the terminal that typer and rich alone do not have, and for which dnm/cli/terminal
exists. Each test compares dnm with the library alone."""

from __future__ import annotations

import io
import subprocess
import sys
from pathlib import Path

import pytest
import typer
from rich.console import Console
from rich.table import Table
from typer.testing import CliRunner

from dnm.cli.app import app
from dnm.cli.terminal.output import print_line, print_table
from tests.cli.test_screen import Terminal

NAME = "compute-rack07-row12-chassis03-blade0001"
ROWS = [[NAME, "serving", "it did not boot: fan 3 of /sys/class/hwmon is gone"]]
HEADER = ("node", "phase", "reason")


def drawn_by_rich(file: io.StringIO, width: int | None) -> str:
    table = Table(*HEADER, box=None)
    for row in ROWS:
        table.add_row(*row)
    Console(file=file, width=width, color_system=None).print(table)
    return file.getvalue()


def test_name_in_a_pipe_is_not_broken_unlike_with_rich(capsys: pytest.CaptureFixture[str]) -> None:
    assert NAME not in drawn_by_rich(io.StringIO(), None)
    print_table("", HEADER, ROWS, "")
    (_, line) = capsys.readouterr().out.splitlines()
    assert NAME in line and line.endswith("is gone")


def test_name_on_a_narrow_terminal_is_not_broken_unlike_with_rich(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert NAME not in drawn_by_rich(io.StringIO(), 50)
    out = Terminal()
    monkeypatch.setattr("sys.stdout", out)
    monkeypatch.setenv("COLUMNS", "50")
    monkeypatch.setenv("NO_COLOR", "1")
    print_table("", HEADER, ROWS, "")
    assert NAME in out.getvalue() and max(map(len, out.getvalue().splitlines())) <= 50


def test_control_characters_are_not_printed_unlike_with_rich(
    capsys: pytest.CaptureFixture[str],
) -> None:
    file = io.StringIO()
    Console(file=file).print("\u202e[bold]a001[/bold]")
    assert "\u202e" in file.getvalue() and "[bold]" not in file.getvalue()
    print_line("\u202e[bold]a001[/bold]")
    assert capsys.readouterr().out == "?[bold]a001[/bold]\n"


def test_opposite_command_is_not_suggested_unlike_with_typer() -> None:
    alone = typer.Typer(rich_markup_mode=None)
    for name in ("pause", "resume"):
        alone.command(name)(lambda: None)
    message = CliRunner().invoke(alone, ["unpause"]).output
    assert "pause" in message.replace("unpause", "")
    message = CliRunner().invoke(app, ["unpause"]).output
    assert "pause" not in message.replace("unpause", "")


PROGRAM = """
import sys
from pathlib import Path
import typer
{before}
def write():
    for number in range(100_000):
        print(number)
    Path(sys.argv[1]).touch()
app = typer.Typer()
app.command()(write)
app(args=[], standalone_mode=True)
"""
DNM = "from dnm.cli import __main__ as main\nmain._open_streams()"


@pytest.mark.parametrize(("before", "is_done"), [("", False), (DNM, True)], ids=["typer", "dnm"])
def test_closed_pipe_does_not_end_a_command_unlike_with_typer(
    tmp_path: Path, before: str, is_done: bool
) -> None:
    """`dnm run | head -1` must not end a run midway."""
    done = tmp_path / "done"
    program = tmp_path / "program.py"
    program.write_text(PROGRAM.format(before=before))
    subprocess.run(
        ["sh", "-c", '"$0" "$1" "$2" | head -1', sys.executable, str(program), str(done)],
        check=False, capture_output=True,
    )  # fmt: skip
    assert done.exists() is is_done


def test_interrupt_before_typer_is_loaded_is_a_traceback(tmp_path: Path) -> None:
    """Shows that plain Python prints a traceback; tests/cli/test_app.py shows that dnm does not."""
    program = "import os, signal\nos.kill(os.getpid(), signal.SIGINT)\nimport typer"
    done = subprocess.run(
        [sys.executable, "-c", program], check=False, capture_output=True, text=True
    )
    assert "KeyboardInterrupt" in done.stderr
