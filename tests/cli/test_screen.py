"""Tests of what commands print in terminals of three widths and into a pipe, and of tables with
arbitrary content."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Sequence

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from dnm.cli.terminal import paint
from dnm.cli.terminal.commands import show_activity
from dnm.cli.terminal.output import print_line, print_table
from dnm.lab.sandbox.cluster import Sandbox
from dnm.model.lent_state import Failed
from dnm.run.registry import save_registry
from tests.site import QUEUE, Site, a_workshop_site

PREFIX = "compute-rack07-row12-chassis03-blade"
NAMES = [f"{PREFIX}{number:04}" for number in range(4)]
HELD = "lecture of [red]Mr. Ü[/] at noon, and [/nothing] may be moved until it is over"
FAILED = "it did not boot: \x1b[31mBMC\x1b[0m says [bold]fan 3[/bold] of /sys/class/hwmon is gone"
ERASED = "\x1b[2K"
ESCAPE = re.compile("\x1b\\[[0-9;]*m")

pytestmark = pytest.mark.xdist_group("screen")  # one worker builds the fixture once


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Builds a site: two lent nodes with long names (one held, one failed), and two idle ones."""
    directory = tmp_path_factory.mktemp("screen")
    sandbox = Sandbox(directory / "sandbox").start()
    made = a_workshop_site(sandbox, directory)
    with sandbox.lock:
        for name in list(sandbox.batch.machines):
            del sandbox.batch.machines[name]
        sandbox.batch.add_machines("a", NAMES)
    with made.path.open("a") as ini:
        ini.write(f"\n[node_type:a]\nname_prefix = {PREFIX}\n")
    made.run_until_rest()
    first, second = made.lent()
    assert made.command("hold", first, "--reason", HELD).returncode == 0
    nodes = dict(made.registry.nodes)
    failed = Failed(since=nodes[second].since, error=FAILED)
    nodes[second] = msgspec.structs.replace(nodes[second], state=failed)
    save_registry(made.config, msgspec.structs.replace(made.registry, nodes=nodes))
    yield made
    sandbox.stop()


SHOWN = {
    "status": ("serving", "failed", "(held)", QUEUE, "336", "is gone", *NAMES[:2]),
    "status --wide": ("serving", "failed", QUEUE, "is gone", *NAMES[:2]),
    "nodes": ("IDLE", "[red]Mr. Ü[/]", "[/nothing]", *NAMES),
    "plan": ("keep", QUEUE, "0 to lend", *NAMES[:2]),
    "history": ("lent", "joined", "hold", "[red]Mr. Ü[/]", QUEUE, *NAMES[:2]),
    "queues show": ("baseline", "notebook", "336", "832G", QUEUE, *NAMES[:2]),
    "report": ("Node-hours lent, by week", QUEUE, "joined"),
    "check": ("configuration", "converter", "permission", "with warnings"),
    f"explain {NAMES[0]} --wide": ("keep", "[red]Mr. Ü[/]", "joined", NAMES[0]),
}


@pytest.mark.parametrize("width", [60, 80, 160])
@pytest.mark.parametrize("verb", SHOWN)
def test_terminal_output_has_every_fact_within_its_width(site: Site, verb: str, width: int) -> None:
    coloured = site.at_a_terminal(*verb.split(), width=width)
    coloured = coloured.rpartition(ERASED)[2]  # a slow command has shown progress before
    plain = site.at_a_terminal(*verb.split(), width=width, NO_COLOR="1")
    assert ESCAPE.search(coloured) and "\x1b" not in ESCAPE.sub("", coloured)
    assert "\x1b" not in plain
    for text in (ESCAPE.sub("", coloured), plain):
        lines = text.splitlines()
        assert max(map(cell_len, lines)) <= width
        assert not [line for line in lines if line != line.rstrip()]
        words = " ".join(text.split())
        assert not [fact for fact in SHOWN[verb] if fact not in words]


@pytest.mark.parametrize("verb", SHOWN)
def test_piped_output_has_a_line_per_row(site: Site, verb: str) -> None:
    done = site.command(*verb.split(), COLUMNS="60")
    lines = done.stdout.splitlines()
    assert not done.stderr and "\x1b" not in done.stdout
    assert not [line for line in lines if line != line.rstrip()]
    facts = [fact for fact in SHOWN[verb] if fact != QUEUE]
    assert not [fact for fact in facts if not any(fact in line for line in lines)]
    if verb == "nodes":
        assert [line.split()[0] for line in lines[2:]] == [*NAMES[2:], *NAMES[:2]]
        assert lines[1].split() == ["node", "type", "state", "verdict", "reason"]


def test_wide_terminal_gets_more_columns(site: Site) -> None:
    narrow, wide = (site.at_a_terminal("status", width=width) for width in (110, 200))
    assert "reason" not in narrow.split("Queues")[0] and "type" in narrow
    (line,) = [line for line in wide.splitlines() if line.startswith(f"  {NAMES[0]}")]
    assert QUEUE in line and line.endswith("pods are running on it")


def test_dumb_terminal_gets_no_colour(site: Site) -> None:
    assert "\x1b[1mQueues\x1b[0m" in site.at_a_terminal("status")
    assert "\x1b" not in site.at_a_terminal("status", TERM="dumb")


# --- any table -------------------------------------------------------------------------------


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def drawn(rows: Sequence[Sequence[str]], out: io.StringIO, width: int) -> list[str]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.stdout", out)
        patch.setenv("COLUMNS", str(width))
        patch.setenv("NO_COLOR", "1")
        print_table("", ["node", "lent", "reason"], rows, "none", indent=0)
    return out.getvalue().splitlines()


TEXT = st.text("ab-[]/1漢é\x1b\n ", max_size=30).map(lambda text: " ".join(text.split()))
ROWS = st.lists(
    st.tuples(TEXT.map(lambda text: f"n{text}"), st.integers(0, 9999).map(str), TEXT),
    min_size=1, max_size=4,
)  # fmt: skip


@given(ROWS, st.integers(40, 120))
def test_any_table_fits_its_width_and_keeps_every_word(
    rows: list[tuple[str, str, str]], width: int
) -> None:
    lines = drawn(rows, Terminal(), width)
    assert max(map(cell_len, lines)) <= width
    assert not [line for line in lines if line != line.rstrip()]
    words = {word for line in lines for word in line.split()}
    cells = [cell.replace("\x1b", "?") for row in rows for cell in row]
    assert not [word for cell in cells for word in cell.split() if word not in words]


@given(ROWS)
def test_any_piped_table_has_a_line_per_row(rows: list[tuple[str, str, str]]) -> None:
    header, *lines = drawn(rows, io.StringIO(), 40)
    assert header.split() == ["node", "lent", "reason"]
    assert [line.split() for line in lines] == [
        " ".join(row).replace("\x1b", "?").split() for row in rows
    ]


def test_table_wider_than_the_terminal_becomes_blocks() -> None:
    rows = [
        ["  root", "", "none"],
        ["    a", "80", "where " * 9],
        ["    b", "7", "short"],
        ["", "7", "c" * 47],
    ]
    assert drawn(rows, Terminal(), 60) == [
        "  root", "    reason: none",
        "    a", "      lent: 80", "      reason: " + "where " * 6 + "where", "        where where",
        "    b", "      lent: 7  reason: short",
        "      lent: 7", "      reason:", "        " + "c" * 47,
    ]  # fmt: skip


def test_empty_column_is_left_out_if_the_width_is_short() -> None:
    rows = [["a001", "", "c" * 33], ["2 coming", "", "short"]]
    assert drawn(rows, Terminal(), 44) == [
        "node      reason", "a001      " + "c" * 33, "2 coming  short",
    ]  # fmt: skip
    assert drawn(rows, Terminal(), 60)[0].split() == ["node", "lent", "reason"]


def test_word_longer_than_the_terminal_is_broken_but_complete(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    out = Terminal()
    monkeypatch.setattr("sys.stdout", out)
    monkeypatch.setenv("COLUMNS", "40")
    print_line(("error: ", "error"), "/" + "x" * 100, indent=2)
    lines = ESCAPE.sub("", out.getvalue()).splitlines()
    assert max(map(len, lines)) <= 40 and "x" * 100 in "".join(line.strip() for line in lines)


@pytest.mark.parametrize(
    ("err", "environment", "is_shown"),
    [
        pytest.param(Terminal(), {"TERM": "xterm"}, True, id="terminal"),
        pytest.param(Terminal(), {"TERM": "xterm", "NO_COLOR": "1"}, False, id="no-colour"),
        pytest.param(Terminal(), {"TERM": "dumb"}, False, id="dumb"),
        pytest.param(io.StringIO(), {"TERM": "xterm"}, False, id="pipe"),
    ],
)
def test_progress_shows_the_remaining_time_and_is_erased(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
    err: io.StringIO, environment: dict[str, str], is_shown: bool,
) -> None:  # fmt: skip
    monkeypatch.delenv("NO_COLOR", raising=False)
    for name, value in {**environment, "COLUMNS": "80"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("sys.stderr", err)
    with paint.progress("playing") as report:
        report(0.25)
        report(0.5)
        print("what is said meanwhile")
    message = err.getvalue()
    assert ("playing" in message and "left" in message) is is_shown
    assert message == "" or message.endswith("\x1b[1A\x1b[2K"), "the line is empty again"
    assert capsys.readouterr().out == "what is said meanwhile\n"


def test_silent_work_is_shown_with_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    err = Terminal()
    monkeypatch.setattr("sys.stderr", err)
    with show_activity("running"):
        pass
    assert "running" in err.getvalue() and err.getvalue().endswith("\x1b[1A\x1b[2K")
