"""`python -m tests.bench`: measures dnm against the plain client and curl.

It prints the tables and writes them to docs/bench.md. Exit code 1: a ratio exceeded its limit.
`--quick` leaves the largest cluster out and writes nothing."""

from __future__ import annotations

import argparse
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

from tests.bench.cluster import Size
from tests.bench.measure import Command, MeasureError, Sample, describe_load, median, take_turns
from tests.bench.report import (
    CHANGES,
    CURL,
    PLAIN,
    PLAN,
    REAL_SERVER,
    RUN,
    SHARED,
    find_misses,
    find_part,
    put_part,
    write_ratios,
    write_report,
)
from tests.bench.site import write_site

SIZES = (Size(20, 500), Size(500, 15_000), Size(5_000, 150_000))
ROOT = Path(__file__).resolve().parents[2]
DNM = (sys.executable, "-c", "from dnm.cli.app import main; main()")
SELECTOR = "fieldSelector=status.phase%21%3DSucceeded%2Cstatus.phase%21%3DFailed"
LISTING = "watch_from_pods = 10000000\n"  # of [lab]: full lists in every run
PLAIN_BYTES_A_POD = 90_000  # of memory, with version 37 of the client


@contextmanager
def serving(size: Size) -> Iterator[tuple[str, Path]]:
    """Yields the URL of a static API server, which is another process, and its directory."""
    with tempfile.TemporaryDirectory(prefix="dnm-bench-") as name:
        command = [
            sys.executable,
            "-m",
            "tests.bench.server",
            str(size.nodes),
            str(size.pods),
            name,
        ]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT)
        try:
            assert process.stdout is not None
            port = int(process.stdout.readline())
            yield f"http://127.0.0.1:{port}", Path(name)
        finally:
            process.terminate()
            process.wait()


def make_floor(server: str, directory: Path) -> Command:
    """Returns the cheapest reader: curl, which reads the same lists and discards them."""
    home = directory / "home"
    home.mkdir()
    environment = {"PATH": os.environ["PATH"], "HOME": str(home), "PYTHONPATH": str(ROOT)}
    api = f"{server}/quiet/api/v1"
    urls = [f"{api}/nodes", f"{api}/pods?{SELECTOR}"]
    urls.append(f"{api}/namespaces/yunikorn/configmaps/yunikorn-configs")
    outputs = ["--output", os.devnull] * len(urls)
    return Command(CURL, ("curl", "--silent", "--fail", *outputs, *urls), environment)


def make_commands(size: Size, server: str, directory: Path) -> list[Command]:
    """Returns the commands to measure on this cluster; the plain client only if memory allows."""
    floor = make_floor(server, directory)
    environment = floor.environment
    quiet = write_site(directory / "quiet", f"{server}/quiet", lab=LISTING)
    shared = write_site(directory / "shared", f"{server}/quiet", "registry = kubernetes\n", LISTING)
    busy = write_site(directory / "busy", f"{server}/busy", lab=LISTING)
    kubeconfig = {**environment, "KUBECONFIG": str(quiet.parent / "kubeconfig")}
    plain = (sys.executable, str(Path(__file__).with_name("plain_client.py")))
    commands = [
        floor,
        Command(RUN, (*DNM, "run", "--config", str(quiet)), environment),
        Command(SHARED, (*DNM, "run", "--config", str(shared)), environment),
        Command(PLAN, (*DNM, "plan", "--config", str(busy)), environment),
    ]
    if free_memory() > size.pods * PLAIN_BYTES_A_POD:
        commands.append(Command(PLAIN, plain, kubeconfig))
    return commands


def free_memory() -> int:
    """Returns the available memory of the machine in bytes."""
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return 0


def setting(repeat: int, before: float) -> list[str]:
    """Returns lines about the machine and versions. `before` is the load average at the start."""
    return [
        f"{datetime.now(UTC):%Y-%m-%d}, {os.cpu_count()} cores, {platform.system()} "
        f"{platform.machine()}, medians of {repeat}, {describe_load(before)}",
        f"Python {platform.python_version()}, kubernetes {version('kubernetes')}, "
        f"msgspec {version('msgspec')}",
    ]


def measure_size(size: Size, repeat: int) -> Mapping[str, Sample]:
    with serving(size) as (server, directory):
        samples = take_turns(make_commands(size, server, directory), server, repeat)
    return {name: median(values) for name, values in samples.items()}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="two sizes, three turns, no files")
    parser.add_argument("--repeat", type=int, default=0, help="turns; 5, or 3 with --quick")
    parser.add_argument("--output", type=Path, default=ROOT / "docs")
    options = parser.parse_args()
    sizes = SIZES[:2] if options.quick else SIZES
    repeat = options.repeat or (3 if options.quick else 5)
    results: dict[Size, Mapping[str, Sample]] = {}
    before = os.getloadavg()[0]
    try:
        for size in sizes:
            print(f"measuring {size.name} ...", file=sys.stderr, flush=True)
            results[size] = measure_size(size, repeat)
    except MeasureError as error:
        print(error, file=sys.stderr)
        return 1
    misses = find_misses(results)
    page = write_report(results, setting(repeat, before))
    print(page, write_ratios(results), sep="\n")
    if not options.quick:
        options.output.mkdir(exist_ok=True)
        path = options.output / "bench.md"
        old_page = path.read_text() if path.exists() else ""
        for heading in (CHANGES, REAL_SERVER):
            if part := find_part(old_page, heading):
                page = put_part(page, heading, part)
        path.write_text(page)
    for miss in misses:
        print(f"missed: {miss}", file=sys.stderr)
    return 1 if misses else 0


if __name__ == "__main__":
    sys.exit(main())
