"""`python -m tests.bench.kueue`: an idle run with Kueue and 2,000 Workloads, against one with
YuniKorn on the same pods and nodes. Both list all objects. Prints a table."""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping

from tests.bench.__main__ import DNM, LISTING, make_floor, serving
from tests.bench.cluster import Size
from tests.bench.measure import Command, Sample, describe_load, median, take_turns
from tests.bench.report import table
from tests.bench.site import write_site
from tests.bench.workloads import WAITING, WORKLOADS
from tests.queues.kueue.objects import NODE_TYPE

SIZE = Size(500, 15_000)
KEYS = f"queue_system = kueue\nmax_converted_nodes = 4\n{NODE_TYPE}"
YUNIKORN = "YuniKorn"
VARIANTS = {
    f"Kueue, {WORKLOADS:,} Workloads admitted": "quiet-kueue",
    f"Kueue, half of {WORKLOADS:,} Workloads waiting": f"quiet-{WAITING}",
}


def measure(repeat: int) -> Mapping[str, Sample]:
    """Measures an idle run with each queue system; omits the first run of each site."""
    with serving(SIZE) as (server, directory):
        environment = make_floor(server, directory).environment
        sites = {YUNIKORN: write_site(directory / "yunikorn", f"{server}/quiet", lab=LISTING)}
        for name, variant in VARIANTS.items():
            home = directory / variant
            sites[name] = write_site(home, f"{server}/{variant}", KEYS, LISTING)
            (home / "queues.json").write_text("{}")
        commands = [
            Command(name, (*DNM, "run", "--config", str(path)), environment)
            for name, path in sites.items()
        ]
        samples = take_turns(commands, server, repeat + 1)
    return {name: median(values[1:]) for name, values in samples.items()}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.kueue", description=__doc__)
    parser.add_argument("--repeat", type=int, default=5)
    options = parser.parse_args()
    before = os.getloadavg()[0]
    rows = [
        [name, f"{sample.wall:.2f} s", f"{sample.cpu:.2f} s", f"{sample.peak_bytes / 1e6:.0f} MB",
         f"{sample.bytes_read / 1e6:.2f} MB", str(sample.requests)]
        for name, sample in measure(options.repeat).items()
    ]  # fmt: skip
    print(f"{SIZE.name}, medians of {options.repeat}, {describe_load(before)}\n")
    print(table(["idle run", "elapsed", "CPU", "peak memory", "read", "requests"], rows))


if __name__ == "__main__":
    main()
