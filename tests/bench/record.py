"""The cost of dnm's history: of reading a year of it, and of a run that writes it.

    python -m tests.bench.record year    seconds and memory of `history`, `explain` and `report`
    python -m tests.bench.record run     instructions of `dnm run`, counted by valgrind
    python -m tests.bench.record simulate    `dnm simulate` over the year, two settings side by side

Instructions vary less than seconds on a machine with other load."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path

from dnm.lab.sandbox.cluster import Sandbox
from tests.bench.measure import Command, run_in_child
from tests.record.year import write_year
from tests.site import QUEUE, Site, a_workshop_site

MOST_SECONDS, MOST_MB, MOST_RATIO, MOST_SIMULATED = 2.0, 150, 1.15, 120.0
OFF = {"history_days": "0"}


def main(arguments: list[str]) -> int:
    """Measures what the first argument names and prints it. Returns 1 if a limit is exceeded."""
    with tempfile.TemporaryDirectory() as scratch:
        sandbox = Sandbox(Path(scratch) / "sandbox").start()
        try:
            site = a_workshop_site(sandbox, Path(scratch))
            site.run_until_rest()
            verbs = {"year": ask_a_year, "run": count_a_run, "simulate": simulate_a_year}
            return verbs[arguments[0]](site)
        finally:
            sandbox.stop()


# --- a year ----------------------------------------------------------------------------------


def ask_a_year(site: Site) -> int:
    for old in site.config.state_dir.glob("history*"):
        old.unlink()
    lines = write_year(site.config.converted_nodes_path, datetime.now(UTC))
    size = sum(path.stat().st_size for path in site.config.state_dir.glob("history*"))
    print(f"{lines:,} lines, {size / 1e6:.0f} MB")
    questions = (
        ("history", "--since", "400d"), ("history", "a001", "--since", "400d"),
        ("explain", "a001"), ("explain", QUEUE), ("report", "--since", "365d"),
        ("report", "--since", "365d", "-o", "json"),
    )  # fmt: skip
    return max(_ask(site, question) for question in questions)


def simulate_a_year(site: Site) -> int:
    """Times `dnm simulate` over a year in which the only queue gets twelve nodes on each day."""
    for old in site.config.state_dir.glob("history*"):
        old.unlink()
    write_year(site.config.converted_nodes_path, datetime.now(UTC))
    began = time.perf_counter()
    done = site.process("simulate", "--since", "365d", "--set", "headroom=0.9", seconds=3600)
    took = time.perf_counter() - began
    print(f"{done.stdout}{done.stderr}\n{took:.0f} s (≤ {MOST_SIMULATED:g})")
    return int(done.returncode != 0 or took > MOST_SIMULATED)


def _ask(site: Site, words: tuple[str, ...]) -> int:
    """Runs `dnm WORDS` and prints its cost. Returns 1 if it needs too much CPU time or memory."""
    name, asked = f"dnm {' '.join(words)}", (sys.executable, "-m", "dnm.cli", *words)
    cost = run_in_child(Command(name, asked, {**os.environ, "DNM_CONFIG": str(site.path)}))
    memory = cost.peak_bytes / 2**20
    print(f"{name:49} {cost.wall:5.2f} s, {cost.cpu:5.2f} s of CPU, {memory:4.0f} MB")
    return int(cost.cpu > MOST_SECONDS or memory > MOST_MB)


# --- a run -----------------------------------------------------------------------------------


def count_a_run(site: Site) -> int:
    """Compares the instructions of an idle run with and without the history, on a small cluster."""
    text = site.path.read_text()
    on = {"metrics_file": site.directory / "dnm.prom"}
    counts = {}
    for name, settings in (("off", OFF), ("on", on)):
        site.path.write_text(text + "".join(f"{key} = {to}\n" for key, to in settings.items()))
        site.command("run")
        counts[name] = count_instructions(site, "run")
        print(f"dnm run, the record {name}: {counts[name] / 1e6:,.0f} million instructions")
    ratio = counts["on"] / counts["off"]
    print(f"on / off: {ratio:.3f} (≤ {MOST_RATIO})")
    return int(ratio > MOST_RATIO)


def count_instructions(site: Site, *words: str) -> int:
    """Returns how many instructions `dnm WORDS` takes. Raises RuntimeError if valgrind fails."""
    done = subprocess.run(
        ["valgrind", "--tool=cachegrind", "--cache-sim=no", "--cachegrind-out-file=/dev/null",
         sys.executable, "-m", "dnm.cli", *words],
        env={**os.environ, "DNM_CONFIG": str(site.path), "PYTHONHASHSEED": "0"},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    result = re.search(r"I +refs: +([0-9,]+)", done.stderr)
    if result is None:
        raise RuntimeError(done.stderr)
    return int(result[1].replace(",", ""))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
