"""`python -m tests.mutants [--every N] [--minutes M] [FOLDER ...]` tests the fast tests.

mutmut changes one place of the core at a time (a mutant) and runs the tests of the same folders
that reach it. A mutant that no test kills shows a rule without a test. Every Nth mutant is tried,
with a fixed seed: at most M minutes for writing the mutants, as many for trying them. The result is
a line for each file, then each survivor as a diff. The next run reuses the results in `mutants/`.
mutmut cannot test code that runs while modules are loaded, since it changes code after that (in
queues/yunikorn/decode.py struct_of, list_of, map_of)."""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

HOME = Path(__file__).parent.parent
RESULTS = HOME / "mutants" / "dnm"
FOLDERS = ("sizing", "demand", "plan", "queues/yunikorn")
WORDS = {0: "survived", 1: "killed", 33: "reached by no test", None: "not tried"}  # mutmut's codes
NO_SUCH_MUTANT = "dnm.none"
RUN = """
import sys
from mutmut.configuration import config
folders, names = sys.argv[1].split(","), sys.argv[2:]
config().only_mutate = [f"dnm/{folder}/*" for folder in folders]
config().pytest_add_cli_args_test_selection += [f"tests/{folder}" for folder in folders]
from mutmut.__main__ import cli
cli(["run", "--max-children", "1", *names])
"""
SEED = 20261121


def mutants(folders: list[str]) -> Iterator[tuple[str, str, int | None]]:
    """Yields file, name and result (None: not tried) of every mutant."""
    for folder in folders:
        for path in sorted((RESULTS / folder).glob("*.py.meta")):
            codes = json.loads(path.read_text())["exit_code_by_key"]
            name = f"{folder}/{path.name.removesuffix('.meta')}"
            yield from ((name, key, codes[key]) for key in sorted(codes))


def pick(folders: list[str], every: int) -> list[str]:
    """Returns every Nth mutant in an order that depends only on the code and a fixed seed."""
    names = [key for _, key, _ in mutants(folders)]
    source = random.Random(SEED)
    source.shuffle(names)
    return names[::every]


def mutmut(folders: list[str], names: list[str], minutes: float) -> None:
    """Runs mutmut on these mutants, with the tests of the same folders, and kills it and its
    processes after the time limit."""
    command = [sys.executable, "-c", RUN, ",".join(folders), *names]
    log = HOME / "mutants.log"
    with log.open("wb") as sink:
        process = subprocess.Popen(
            command, cwd=HOME, stdout=sink, stderr=subprocess.STDOUT, start_new_session=True
        )
        try:
            process.wait(timeout=minutes * 60)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            print(f"ended after {minutes:g} minutes, see {log}")


def show(key: str) -> str:
    """Returns the name of a mutant with the lines that it removes and adds."""
    command = [sys.executable, "-m", "mutmut", "show", key]
    text = subprocess.run(command, cwd=HOME, capture_output=True, text=True, check=False).stdout
    changed = [line for line in text.splitlines() if line[:1] in "-+" and line[:3] not in _HEADS]
    return "\n    ".join([key, *changed])


_HEADS = ("---", "+++")


def summary(folders: list[str], names: set[str]) -> list[str]:
    """Prints the results for each file. Returns the mutants that no test noticed."""
    counts: dict[str, Counter[str]] = {}
    survivors = []
    for file, key, code in mutants(folders):
        if key in names:
            word = WORDS.get(code, "other")
            counts.setdefault(file, Counter())[word] += 1
            survivors += [key] if word == "survived" else []
    total = Counter[str]()
    for file, count in counts.items():
        total += count
        print(f"{file:32} " + ", ".join(f"{n} {word}" for word, n in sorted(count.items())))
    print(f"{'in all':32} " + ", ".join(f"{n} {word}" for word, n in sorted(total.items())))
    return survivors


def main() -> None:
    raw = argparse.RawTextHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("folders", nargs="*", default=list(FOLDERS), metavar="FOLDER")
    parser.add_argument("--every", type=int, default=10, help="try every Nth (10)")
    parser.add_argument("--minutes", type=float, default=60, help="at most so long (60)")
    asked = parser.parse_args()
    for folder in asked.folders:
        if {path.stem for path in (HOME / "dnm" / folder).glob("*.py")} <= {"__init__"}:
            parser.error(f"dnm/{folder} has no modules")
    mutmut(asked.folders, [NO_SUCH_MUTANT], asked.minutes)  # writes the mutants, and tries none
    names = pick(asked.folders, asked.every)
    mutmut(asked.folders, names, asked.minutes)
    for key in summary(asked.folders, set(names)):
        print(show(key))


if __name__ == "__main__":
    main()
