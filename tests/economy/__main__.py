"""`python -m tests.economy [DAYS [SEEDS [POLICY ...]]]` prints the tables of docs/economy.md. The
policy `rules` is dnm with and without each of its rules; `moves` is dnm with and without moves in
place, on workloads with few nodes for several queues. `prices` compares the cost of dnm and three
others if a minute of a waiting pod costs 0.1, 0.3 or 1 node-minute. `caps` shows the effect of a
cap on jobs, by their size and the load."""

from __future__ import annotations

import sys

from dnm.simulate.values import DAY
from tests.economy.caps import list_caps, measure_caps
from tests.economy.measure import (
    COMPARED,
    POLICIES,
    WITH_FEW_NODES,
    WITH_MOVES,
    WITHOUT,
    list_lines,
    list_prices,
    measure_all,
)
from tests.economy.workloads import ALL

if __name__ == "__main__":
    days = float(sys.argv[1]) if len(sys.argv) > 1 else 2.0
    seeds = range(1, 1 + (int(sys.argv[2]) if len(sys.argv) > 2 else 5))
    named = sys.argv[3:] or list(POLICIES)
    if named[0] == "caps":
        print("\n".join(list_caps(measure_caps(days * DAY, seeds))))
        sys.exit()
    sets = {"rules": WITHOUT, "moves": WITH_MOVES}
    some = {"moves": WITH_FEW_NODES}
    policies = ["dnm", *sets[named[0]]] if named[0] in sets else named
    lines_of = list_prices if named[0] == "prices" else list_lines
    policies = list(COMPARED) if named[0] == "prices" else policies
    rows = measure_all(days * DAY, seeds, policies, some.get(named[0], ALL))
    print("\n".join(lines_of(rows)))
