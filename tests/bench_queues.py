"""What a large queue document costs: `python -m tests.bench_queues`.

2,000 queues, 1,000 lent nodes in 1,000 of them: read, checked, edited, read and checked again; for
the loan, at rest, and for the return. CPU seconds of this process, best of five.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from dnm.model.queue_edit import QueueEdit, QueueWants
from dnm.model.value import Resources
from dnm.queues.edit import edit_source
from dnm.queues.tree import parse_tree
from tests.queue_kit import NODE, large_document, source


def main() -> None:
    text = large_document()
    leaves = [path for path, queue in parse_tree(text).queues.items() if queue.is_leaf]
    nodes: dict[str, dict[str, Resources]] = {}
    for number in range(1000):
        size = {**NODE, "memory": 256 * 10**9 + number}
        nodes.setdefault(leaves[number * 37 % len(leaves)], {})[f"node{number:04}"] = size
    wants = QueueWants(instance_id="prod", nodes=nodes, remembered="")
    nothing = QueueWants(instance_id="prod")
    lent = edit_source(source(text), wants)
    print(f"{len(text):,} bytes, {len(lent.changes):,} limits change, ledger {len(lent.ledger):,}")
    there = source(lent.text, lent.ledger)
    measure("lend", lambda: edit_source(source(text), wants))
    measure("rest", lambda: edit_source(there, wants))
    measure("return", lambda: edit_source(there, nothing))


def measure(name: str, work: Callable[[], QueueEdit]) -> None:
    best = 1e9
    for _ in range(5):
        began = time.process_time()
        made = work()
        best = min(best, time.process_time() - began)
        assert not made.refusal
    print(f"{name}: {best:.3f} s of CPU")


if __name__ == "__main__":
    main()
