"""`make storm`: episodes of the storm, several at once, until so many runs have been struck."""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

EPISODE_RUNS = 40
OFF = "stranded"  # claims of converters that died with their host: not yet dnm's to find
_REPOSITORY = Path(__file__).parents[3]
_LONGEST = 1800.0  # seconds of one episode


def play_episode(seed: int, number: int, runs: int, without: str, logs: Path) -> dict[str, Any]:
    """What came of it; its log stays where it broke."""
    log = logs / f"{seed}-{number}.log"
    command = [
        sys.executable, "-m", "tests.proof.storm.episode", "--seed", str(seed),
        "--number", str(number), "--runs", str(runs), "--without", without, "--log", str(log),
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


class Storm:
    """What has come of the episodes so far."""

    def __init__(self, seed: int, without: str) -> None:
        self.seed, self.without = seed, without
        self.logs = Path(tempfile.mkdtemp(prefix="dnm-storm-logs-"))
        self.counts: Counter[str] = Counter()
        self.broken: list[str] = []
        self.longest, self.begun = 0.0, time.monotonic()

    def play(self, runs: int, at_once: int, episode_runs: int = EPISODE_RUNS) -> None:
        """Ends early on Ctrl-C; what was played until then counts."""
        sizes = [min(episode_runs, runs - first) for first in range(0, runs, episode_runs)]
        pool = ThreadPoolExecutor(at_once)
        asked = [
            pool.submit(play_episode, self.seed, number, size, self.without, self.logs)
            for number, size in enumerate(sizes)
        ]
        try:
            for done, one in enumerate(as_completed(asked), start=1):
                self._take_up(one.result())
                self._show(done, len(sizes))
        except KeyboardInterrupt:
            self.counts["interrupted"] += 1
        finally:
            pool.shutdown(cancel_futures=True)
        if not self.broken:
            shutil.rmtree(self.logs, ignore_errors=True)

    def _take_up(self, result: dict[str, Any]) -> None:
        self.counts.update(result["counts"])
        self.counts["episodes"] += 1
        self.longest = max(self.longest, result["longest"])
        if result["broken"]:
            number = result["number"]
            log = self.logs / f"{self.seed}-{number}.log"
            self.broken.append(
                f"seed {self.seed}, episode {number}, log {log}:\n{result['broken']}"
            )

    def _show(self, done: int, episodes: int) -> None:
        is_terminal = sys.stderr.isatty()
        print(
            f"{chr(13) if is_terminal else ''}{done} of {episodes} episodes, "
            f"{self.counts['runs']} runs, {len(self.broken)} broken, "
            f"{time.monotonic() - self.begun:.0f} s",
            end="" if is_terminal and done < episodes else "\n", file=sys.stderr, flush=True,
        )  # fmt: skip

    def print_figures(self) -> None:
        counts = self.counts
        for kind in ("exit", "action", "strike", "blow"):
            words = [f"{name.partition(' ')[2]} {count}" for name, count in sorted(counts.items())
                     if name.startswith(f"{kind} ")]  # fmt: skip
            print(f"{kind}: {', '.join(words)}")
        print(
            f"{counts['runs']} runs, {counts['calm runs']} of them calm, {counts['verbs']} verbs, "
            f"in {counts['episodes']} episodes, advice followed {counts['advice followed']} times, "
            f"the longest run {self.longest} s, {time.monotonic() - self.begun:.0f} s in all"
            f"{', interrupted' if counts['interrupted'] else ''}"
        )
        for text in self.broken:
            print(f"\nBROKEN: {text}")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.proof.storm", description=__doc__)
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    parser.add_argument("--runs", type=int, default=1000, help="with blows; calm ones come beside")
    parser.add_argument("--at-once", type=int, default=min(4, os.cpu_count() or 1))
    parser.add_argument("--without", default=OFF, help="names of blows, with commas between them")
    options = parser.parse_args()
    print(f"storm of {options.runs} runs, --seed {options.seed}", flush=True)
    storm = Storm(options.seed, options.without)
    storm.play(options.runs, options.at_once)
    storm.print_figures()
    return 1 if storm.broken or not storm.counts["episodes"] else 0


if __name__ == "__main__":
    sys.exit(main())
