"""`python -m tests.economy [DAYS [SEEDS [POLICY ...]]]`: the tables of docs/economy.md; `rules` for
the policies stands for dnm with and without each of its rules, `moves` for dnm with and without
moves in place, over those where queues share few nodes; `prices` for what dnm and three others cost
where a minute of a waiting pod is worth a tenth of a node-minute, three tenths, or one; `caps` for
what jobs feel of a cap, by their size and the load."""

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
    tell = list_prices if named[0] == "prices" else list_lines
    policies = list(COMPARED) if named[0] == "prices" else policies
    rows = measure_all(days * DAY, seeds, policies, some.get(named[0], ALL))
    print("\n".join(tell(rows)))
