"""`python -m tests.economy [DAYS [SEEDS [POLICY ...]]]`: the tables of docs/economy.md; `rules` for
the policies stands for dnm with and without each of its rules, `slurm` for dnm with each of those
on Slurm's behalf, over the workloads where that matters."""

from __future__ import annotations

import sys

from dnm.simulate.values import DAY
from tests.economy.measure import FOR_SLURM, POLICIES, WITH_JOBS, WITHOUT, list_lines, measure_all
from tests.economy.workloads import ALL

if __name__ == "__main__":
    days = float(sys.argv[1]) if len(sys.argv) > 1 else 2.0
    seeds = range(1, 1 + (int(sys.argv[2]) if len(sys.argv) > 2 else 5))
    named = sys.argv[3:] or list(POLICIES)
    sets = {"rules": WITHOUT, "slurm": FOR_SLURM}
    policies = ["dnm", *sets[named[0]]] if named[0] in sets else named
    rows = measure_all(days * DAY, seeds, policies, WITH_JOBS if named == ["slurm"] else ALL)
    print("\n".join(list_lines(rows)))
