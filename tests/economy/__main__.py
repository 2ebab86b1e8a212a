"""`python -m tests.economy [DAYS [SEEDS [POLICY ...]]]`: the tables of docs/economy.md; `rules` for
the policies stands for dnm with and without each of its rules."""

from __future__ import annotations

import sys

from dnm.simulate.values import DAY
from tests.economy.measure import POLICIES, WITHOUT, list_lines, measure_all

if __name__ == "__main__":
    days = float(sys.argv[1]) if len(sys.argv) > 1 else 2.0
    seeds = range(1, 1 + (int(sys.argv[2]) if len(sys.argv) > 2 else 5))
    named = sys.argv[3:] or list(POLICIES)
    rows = measure_all(days * DAY, seeds, ["dnm", *WITHOUT] if named == ["rules"] else named)
    print("\n".join(list_lines(rows)))
