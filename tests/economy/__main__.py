"""`python -m tests.economy [DAYS [SEEDS [POLICY ...]]]`: the table of docs/economy.md."""

from __future__ import annotations

import sys

from tests.economy.measure import POLICIES, list_lines, measure_all
from tests.economy.values import DAY

if __name__ == "__main__":
    days = float(sys.argv[1]) if len(sys.argv) > 1 else 2.0
    seeds = range(1, 1 + (int(sys.argv[2]) if len(sys.argv) > 2 else 5))
    rows = measure_all(days * DAY, seeds, sys.argv[3:] or list(POLICIES))
    print("\n".join(list_lines(rows)))
