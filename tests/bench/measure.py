"""Functions that run a command and return its cost. The measuring process must stay small.

Linux includes a process's size before its exec in its peak memory, so this process's size is the
least measurable one. `python -m tests.bench.measure COMMAND ...` is a small process for large
callers."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path


@dataclass(frozen=True)
class Sample:
    """The cost of one run: elapsed and CPU seconds, peak memory, and its requests to the server."""

    wall: float
    cpu: float
    peak_bytes: int
    requests: int = 0
    bytes_read: int = 0


@dataclass(frozen=True)
class Command:
    """A command to measure."""

    name: str
    arguments: Sequence[str]
    environment: Mapping[str, str]
    exit_codes: tuple[int, ...] = (0,)
    before: str = ""  # an uncounted path, requested before each run


_SLOW, _ONCE = 5.0, 60.0  # seconds


class MeasureError(Exception):
    """A command failed."""


def run_once(command: Command, server: str) -> Sample:
    """Runs a command; returns its cost with the server's count of requests. Raises MeasureError."""
    if command.before:
        _ask(f"{server}{command.before}")
    _served(server)
    sample = run_command(command)
    requests, bytes_read = _served(server)
    return replace(sample, requests=requests, bytes_read=bytes_read)


def run_command(command: Command) -> Sample:
    """Measures time, CPU and peak memory of a command by wait4. Raises MeasureError if it fails."""
    start = time.perf_counter()
    process = subprocess.Popen(
        list(command.arguments),
        env=dict(command.environment),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    assert process.stderr is not None
    complaint = process.stderr.read()
    _, status, usage = os.wait4(process.pid, 0)
    wall = time.perf_counter() - start
    process.returncode = os.waitstatus_to_exitcode(status)
    process.stderr.close()
    if process.returncode not in command.exit_codes:
        text = complaint.decode(errors="replace")[-2000:]
        raise MeasureError(f"{command.name} ended with {process.returncode}: {text}")
    return Sample(wall=wall, cpu=usage.ru_utime + usage.ru_stime, peak_bytes=usage.ru_maxrss * 1024)


def run_in_child(command: Command) -> Sample:
    """Measures a command like `run_command`, but from a new small process."""
    measure = (sys.executable, "-m", "tests.bench.measure", *command.arguments)
    environment = {"PYTHONPATH": str(Path(__file__).parents[2]), **command.environment}
    done = subprocess.run(measure, env=environment, capture_output=True, text=True)
    if done.returncode:
        raise MeasureError(f"{command.name}: {done.stderr}")
    return Sample(**json.loads(done.stdout))


def _served(server: str) -> tuple[int, int]:
    """Returns how many requests and bytes the server has counted since the last call."""
    served = json.loads(_ask(f"{server}/requests"))
    return len(served["requests"]), int(served["bytes_sent"])


def _ask(url: str) -> bytes:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(url, timeout=30) as answer:
        content: bytes = answer.read()
    return content


def describe_load(before: float) -> str:
    """Reports the load of the machine before and during the measurement."""
    return f"load {before:.1f} before and {os.getloadavg()[0]:.1f} at the end"


def take_turns(commands: Sequence[Command], server: str, repeat: int) -> dict[str, list[Sample]]:
    """Runs the commands in turns and returns their samples; the first turn is for warming up. A
    command that takes a minute runs only once, since all turns would take half an hour."""
    samples: dict[str, list[Sample]] = {}
    for command in commands:
        sample = run_once(command, server)
        samples[command.name] = [sample] if sample.wall > _SLOW else []
    for _ in range(repeat):
        for command in commands:
            done = samples[command.name]
            if len(done) < repeat and not (done and done[0].wall > _ONCE):
                done.append(run_once(command, server))
    return samples


def median(samples: Sequence[Sample]) -> Sample:
    """Returns a sample with the median of each figure, which may be of different runs."""
    return Sample(
        wall=statistics.median(sample.wall for sample in samples),
        cpu=statistics.median(sample.cpu for sample in samples),
        peak_bytes=int(statistics.median(sample.peak_bytes for sample in samples)),
        requests=int(statistics.median(sample.requests for sample in samples)),
        bytes_read=int(statistics.median(sample.bytes_read for sample in samples)),
    )


def least(samples: Sequence[Sample]) -> Sample:
    """Returns a sample with the least of each cost, which may be of different runs."""
    return Sample(
        wall=min(sample.wall for sample in samples),
        cpu=min(sample.cpu for sample in samples),
        peak_bytes=min(sample.peak_bytes for sample in samples),
        requests=min(sample.requests for sample in samples),
        bytes_read=min(sample.bytes_read for sample in samples),
    )


def main() -> int:
    try:
        sample = run_command(Command(sys.argv[1], sys.argv[1:], os.environ))
    except MeasureError as error:
        print(error, file=sys.stderr)
        return 1
    print(json.dumps(asdict(sample)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
