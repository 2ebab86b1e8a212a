"""`python -m tests.bench.changes`: a run that follows changes, against one that lists.

Before each run, a share of the pods changes: none, a hundred pods, and 0.1 to 30 %. After a run
with too many changes, dnm does not try a watch for ten minutes. Here each run tries, so that the
figures include what a useless watch costs. The static server sends its bookmark at once. A real one
takes a second or two, in which dnm waits. The module writes its part of docs/bench.md. Exit code 1:
a ratio exceeded its limit.

With --instructions, callgrind also counts the instructions of each run. Other programs on the
machine do not change this count, unlike CPU time. It takes half an hour."""

from __future__ import annotations

import argparse
import os
import re
import shutil
import sys
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from tests.bench.__main__ import DNM, LISTING, ROOT, SIZES, make_floor, serving
from tests.bench.cluster import Size
from tests.bench.measure import Command, Sample, describe_load, least, run_once
from tests.bench.report import CHANGES, CURL, put_part, table
from tests.bench.site import write_site

LIST, PAGES = "full list", "full list in pages"
AS_BEFORE = (
    "import dnm.kube.requests as lists; lists._STREAMS_FROM = (99, 0)"  # as from older servers
)
NONE, HUNDRED = "0 changed", "100 changed"
SHARES = {f"{percent:g} % changed": percent for percent in (0.1, 1, 3, 10, 30)}
ROWS = (LIST, NONE, *SHARES)
Results = dict[Size, Mapping[str, Sample]]
Counts = dict[Size, Mapping[str, int]]  # instructions by run


def make_commands(size: Size, server: str, directory: Path) -> list[Command]:
    """Returns the runs to compare: some list all pods, the others read a number of changes."""
    floor = make_floor(server, directory)
    environment = floor.environment
    listing = write_site(directory / "list", f"{server}/quiet", lab=LISTING)
    paging = (*DNM[:2], f"{AS_BEFORE}; {DNM[2]}")
    commands = [
        floor,
        Command(LIST, (*DNM, "run", "--config", str(listing)), environment),
        Command(PAGES, (*paging, "run", "--config", str(listing)), environment),
    ]
    for name, count in count_changes(size).items():
        twin = f"quiet-{count}"
        config = write_site(directory / twin, f"{server}/{twin}")
        run = (*DNM, "run", "--config", str(config))
        commands.append(Command(name, run, environment, before=f"/{twin}/change?count={count}"))
    return commands


def count_changes(size: Size) -> dict[str, int]:
    """Returns run name -> the number of pods that the server changes before that run."""
    unfinished = size.pods * 82 // 100
    shares = {name: int(unfinished * percent / 100) for name, percent in SHARES.items()}
    return {NONE: 0, HUNDRED: 100, **shares}


def measure_size(size: Size, repeat: int) -> Mapping[str, Sample]:
    """Returns the least cost of each command, over `repeat` turns of all commands. Noise of the
    machine only adds to CPU time, so the least is the best estimate."""
    with serving(size) as (server, directory):
        commands = make_commands(size, server, directory)
        for command in commands:
            run_once(replace(command, before=""), server)
        for store in directory.glob("*/*.cluster"):
            shutil.copy(store, store.with_suffix(".first"))
        samples: dict[str, list[Sample]] = {command.name: [] for command in commands}
        for _ in range(repeat):
            for command in commands:
                samples[command.name].append(run_once(command, server))
                _restore_stores(directory)
    return {name: least(values) for name, values in samples.items()}


def count_instructions(size: Size) -> Mapping[str, int]:
    """Returns the instructions of the runs, as callgrind counts them, without child processes."""
    with serving(size) as (server, directory):
        commands = [item for item in make_commands(size, server, directory) if item.name in ROWS]
        counts = {}
        output = directory / "callgrind.out"
        for command in commands:
            for store in directory.glob("*/*.cluster"):
                store.unlink()  # an old one would be compared with a list
            run_once(replace(command, before=""), server)
            tool = ("valgrind", "--tool=callgrind", f"--callgrind-out-file={output}")
            run_once(replace(command, arguments=(*tool, *command.arguments)), server)
            total = re.search(r"^totals: (\d+)$", output.read_text(), re.MULTILINE)
            assert total, f"{output} has no total"
            counts[command.name] = int(total[1])
    return counts


def _restore_stores(directory: Path) -> None:
    """Restores each store whose objects were removed after too many changes."""
    for first in directory.glob("*/*.first"):
        store = first.with_suffix(".cluster")
        if store.stat().st_size < first.stat().st_size // 2:
            shutil.copy(first, store)


def find_misses(results: Results, counts: Counts) -> list[str]:
    """Returns a message for each ratio that exceeds its limit. Some limits are for the largest
    cluster only. Instructions replace the CPU time of the shares, if they were counted."""
    size = max(results, key=lambda result: result.pods)
    listed, changed, curl = (results[size][name] for name in (LIST, HUNDRED, CURL))
    goals = (  # half of the first and of the last is the import of the client
        ("processor time against the list", changed.cpu / listed.cpu, 1 / 3),
        ("bytes against the list", changed.bytes_read / listed.bytes_read, 1 / 1000),
        ("wall clock against curl", changed.wall / curl.wall, 2.0),
    )
    misses = [
        f"{size.name}: {HUNDRED}: {text} is {measured:.4f}, should be {limit:.4f} or less"
        for text, measured, limit in goals
        if measured > limit
    ]
    figure = "instructions" if counts else "processor time"
    costs: Mapping[Size, Mapping[str, float]] = counts or {
        of: {name: sample.cpu for name, sample in samples.items()}
        for of, samples in results.items()
    }
    misses += [
        f"{of.name}: {name}: {figure} against the list is {ratio:.3f}, should be 1.05 or less"
        for of, cost in costs.items()
        for name in SHARES
        if (ratio := cost[name] / cost[LIST]) > 1.05
    ]
    return misses


def make_part(results: Results, counts: Counts, repeat: int, before: float) -> str:
    """Returns the part of the page, without the smallest cluster, where dnm follows no changes."""
    shown = list(results)[1:]
    rows = []
    for name in ROWS:
        row = [name]
        for size in shown:
            sample, count = results[size][name], counts.get(size, {})
            ratio = f", {count[name] / count[LIST]:.3f}" if count else ""
            row.append(f"{sample.cpu:.2f} s, {sample.bytes_read / 1e6:.2f} MB{ratio}")
        rows.append(row)
    lines = [
        CHANGES,
        "",
        "A run with nothing to do, once so many pods have changed since the last one "
        "([how](reading.md)): processor time, bytes read"
        f"{', instructions against the full list (callgrind)' if counts else ''}. The static "
        "server sends its bookmark at once, a real one after a second.",
        "",
        f"{datetime.now(UTC):%Y-%m-%d}, {os.cpu_count()} cores, the least of {repeat}, "
        f"{describe_load(before)}:",
        "",
        table(["", *(size.name for size in shown)], rows),
    ]
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.changes", description=__doc__)
    parser.add_argument("--repeat", type=int, default=7)
    parser.add_argument("--quick", action="store_true", help="two sizes, no files")
    parser.add_argument("--instructions", action="store_true", help="count them; needs valgrind")
    options = parser.parse_args()
    results: Results = {}
    counts: Counts = {}
    before = os.getloadavg()[0]
    for size in SIZES[:2] if options.quick else SIZES:
        print(f"measuring {size.name} ...", file=sys.stderr, flush=True)
        results[size] = measure_size(size, options.repeat)
        if options.instructions:
            counts[size] = count_instructions(size)
    part = make_part(results, counts, options.repeat, before)
    print(part)
    if options.quick:
        return 0
    page = ROOT / "docs" / "bench.md"
    page.write_text(put_part(page.read_text(), CHANGES, part))
    misses = find_misses(results, counts)
    for miss in misses:
        print(f"missed: {miss}", file=sys.stderr)
    return 1 if misses else 0


if __name__ == "__main__":
    sys.exit(main())
