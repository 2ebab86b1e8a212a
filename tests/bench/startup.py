"""The time of `dnm status` and `dnm --help`, divided by the time to import typer and rich.

    python -m tests.bench.startup

The commands run in turns, and medians count. Python files are compiled before."""

from __future__ import annotations

import compileall
import os
import sys
import tempfile
from pathlib import Path
from statistics import median

import dnm
from dnm.model.registry import Registry, RunRecord
from tests.bench.measure import Command, run_command
from tests.bench.site import write_site
from tests.builders import a_lent_node, write_registry

FLOOR = "import typer, rich.table, rich.console"
LENT = 12
TURNS = 15
LIMIT = 1.6


def make_site(directory: Path) -> Path:
    """Writes a site with lent nodes in its registry. Returns the path of its configuration."""
    ini = write_site(directory / "site", "http://127.0.0.1:9")
    names = [f"a{number:04}" for number in range(LENT)]
    registry = Registry(
        nodes={name: a_lent_node() for name in names},
        last_run=RunRecord(nodes=dict.fromkeys(names, "pods are running on it")),
    )
    write_registry(ini.with_name("converted_nodes.json"), registry)
    return ini


def main() -> int:
    """Prints the time and ratio of each command. Returns 1 if a ratio exceeds its limit."""
    compileall.compile_dir(str(Path(dnm.__file__).parent), quiet=2)
    with tempfile.TemporaryDirectory() as scratch:
        environment = {**os.environ, "DNM_CONFIG": str(make_site(Path(scratch)))}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        command = Path(sys.executable).with_name("dnm")
        commands = {
            FLOOR: [sys.executable, "-c", FLOOR],
            f"dnm status, {LENT} lent nodes": [str(command), "status"],
            "dnm --help": [str(command), "--help"],
        }
        times: dict[str, list[float]] = {name: [] for name in commands}
        for _ in range(TURNS):
            for name, words in commands.items():
                times[name].append(run_command(Command(name, words, environment)).wall)
    floor = median(times[FLOOR])
    missed = 0
    for name, taken in times.items():
        ratio = median(taken) / floor
        missed += ratio > LIMIT
        print(f"{name:<40} {median(taken) * 1000:6.0f} ms  {ratio:4.2f}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
