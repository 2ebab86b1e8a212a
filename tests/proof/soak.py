"""The soak test, in virtual time: `python -m tests.proof.soak [--runs 10000] [--seed N]`.

It plays random histories as `test_machine.py` does, until dnm has run so often. It prints its seed
first; the same seed plays the same histories again."""

from __future__ import annotations

import argparse
import secrets
import sys
import time

from tests.proof.machine import FIGURES, Machine, play_machine

_BATCH = 100  # histories between two lines of progress


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.proof.soak", description=__doc__)
    parser.add_argument("--runs", type=int, default=10_000, help="runs of dnm, at least")
    parser.add_argument("--seed", type=int, default=secrets.randbits(32))
    options = parser.parse_args()
    print(f"seed={options.seed}", flush=True)
    began, batch = time.monotonic(), 0
    while FIGURES["runs"] < options.runs:
        play_machine(Machine, options.seed + batch, _BATCH, steps=100)
        batch += 1
        output = " ".join(f"{name}={count}" for name, count in FIGURES.items())
        print(f"{output} seconds={time.monotonic() - began:.0f}", flush=True)
    print("every invariant held after every step, and every history ended well")
    return 0


if __name__ == "__main__":
    sys.exit(main())
