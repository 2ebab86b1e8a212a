"""`make storm` plays episodes of faults, several at once, until so many runs had faults."""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

EPISODE_RUNS = 40
_REPOSITORY = Path(__file__).parents[3]
_LONGEST = 1800.0  # seconds of one episode


def play_episode(seed: int, number: int, runs: int, logs: Path, hosts: int = 1) -> dict[str, Any]:
    """Plays an episode in a process and returns its result; keeps its log if it failed."""
    log = logs / f"{seed}-{number}.log"
    command = [
        sys.executable, "-m", "tests.proof.storm.episode", "--seed", str(seed),
        "--number", str(number), "--runs", str(runs), "--log", str(log), "--hosts", str(hosts),
    ]  # fmt: skip
    done = subprocess.run(
        command, cwd=_REPOSITORY, capture_output=True, text=True, timeout=_LONGEST, check=False
    )
    lines = done.stdout.splitlines()
    if not lines:
        return {"number": number, "broken": f"the episode itself ended: {done.stderr[-2000:]}",
                "counts": {}, "longest": 0.0, "seconds": 0.0}  # fmt: skip
    result: dict[str, Any] = json.loads(lines[-1])
    if not result["broken"]:
        log.unlink(missing_ok=True)
    return result


def play_storm(
    seed: int, runs: int, at_once: int, episode_runs: int = EPISODE_RUNS, hosts: int = 1
) -> tuple[Counter[str], list[str], float]:
    """Plays all episodes. Returns counts of events, violations, and the longest run in seconds."""
    logs = Path(tempfile.mkdtemp(prefix="dnm-storm-logs-"))
    counts: Counter[str] = Counter()
    broken: list[str] = []
    longest, begun = 0.0, time.monotonic()
    sizes = [min(episode_runs, runs - first) for first in range(0, runs, episode_runs)]
    with ThreadPoolExecutor(at_once) as pool:
        asked = [
            pool.submit(play_episode, seed, number, size, logs, hosts)
            for number, size in enumerate(sizes)
        ]
        for done, future in enumerate(asked, start=1):
            result = future.result()
            counts.update(result["counts"])
            longest = max(longest, result["longest"])
            if result["broken"]:
                number = result["number"]
                broken.append(f"seed {seed}, episode {number}, log {logs}/{seed}-{number}.log:\n"
                              f"{result['broken']}")  # fmt: skip
            if sys.stderr.isatty():
                print(
                    f"\r{done} of {len(sizes)} episodes, {counts['runs']} runs, "
                    f"{len(broken)} broken, {time.monotonic() - begun:.0f} s",
                    end="", file=sys.stderr, flush=True,
                )  # fmt: skip
    if sys.stderr.isatty():
        print(file=sys.stderr)
    if not broken:
        logs.rmdir()
    return counts, broken, longest


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.proof.storm", description=__doc__)
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    parser.add_argument("--runs", type=int, default=1000, help="with faults; calm runs are added")
    parser.add_argument("--at-once", type=int, default=min(4, os.cpu_count() or 1))
    parser.add_argument("--hosts", type=int, default=1, help="with one registry, in Kubernetes")
    options = parser.parse_args()
    storm = f"storm of {options.runs} runs, --hosts {options.hosts} --seed {options.seed}"
    print(storm, flush=True)
    begun = time.monotonic()
    counts, broken, longest = play_storm(
        options.seed, options.runs, options.at_once, hosts=options.hosts
    )
    for kind in ("exit", "action", "strike", "blow"):
        words = [f"{name.partition(' ')[2]} {count}" for name, count in sorted(counts.items())
                 if name.startswith(kind)]  # fmt: skip
        print(f"{kind}: {', '.join(words)}")
    print(
        f"{counts['runs']} runs, {counts['calm runs']} of them calm, {counts['verbs']} verbs, "
        f"advice followed {counts['advice followed']} times, the longest run {longest} s, "
        f"{time.monotonic() - begun:.0f} s in all"
    )
    for text in broken:
        print(f"\nBROKEN: {text}")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
