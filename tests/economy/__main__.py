"""`python -m tests.economy [DAYS]`: the table of docs/decisions.md."""

from __future__ import annotations

import sys

from tests.economy.measure import print_table
from tests.economy.world import DAY

if __name__ == "__main__":
    days = float(sys.argv[1]) if len(sys.argv) > 1 else 7.0
    print_table(days * DAY)
