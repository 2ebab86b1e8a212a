"""What the limits should become: each its baseline plus what all instances lend along the queue's
path, and which of them can't."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from dnm.model.queue_edit import QueueWants
from dnm.model.queue_path import may_edit
from dnm.model.value import Resources
from dnm.queues.baselines import Baseline, is_closed
from dnm.queues.blocked import find_stuck
from dnm.queues.ledger import Ledger, Lent, Section, lent_amounts, sum_resources
from dnm.queues.tree import DocumentTree, LimitPlace


class Aim(NamedTuple):
    """What the limits should become, and those of them that can't, with why. `fixed`: those that
    people have set so that no node raises them, the frozen ones among them."""

    sections: Mapping[str, Section]
    lent: Lent
    frozen: frozenset[LimitPlace]
    fixed: frozenset[LimitPlace]
    targets: Mapping[LimitPlace, int]
    stuck: Mapping[LimitPlace, str]


def aim_at(
    tree: DocumentTree,
    ledger: Ledger,
    known: Mapping[LimitPlace, Baseline],
    instance: str,
    own: Section,
) -> Aim:
    """Returns the aim while this instance lends `own`."""
    sections = {name: part for name, part in ledger.sections.items() if name != instance}
    if own.queues:
        sections[instance] = own
    lent = lent_amounts(sections.values())
    frozen = frozenset(
        place for place, baseline in known.items() if baseline.is_frozen and lent.at(place)
    )
    fixed = frozen.union(place for place, one in known.items() if is_closed(place, one.amount))
    targets = {
        place: baseline.amount + lent.at(place)
        for place, baseline in known.items()
        if place not in fixed
    }
    stuck = find_stuck(tree, targets)
    moving = {place: target for place, target in targets.items() if place not in stuck}
    return Aim(sections, lent, frozen, fixed, moving, stuck)


def own_section(ledger: Ledger, wants: QueueWants) -> Section:
    """Returns what this instance lends from now on; queues outside its prefixes stay as
    recorded."""
    before = ledger.sections.get(wants.instance_id, Section()).queues
    queues: dict[str, dict[str, Resources]] = {}
    for queue in {*before, *wants.nodes}:
        is_ours = may_edit(queue, wants.allowed_prefixes)
        nodes = (wants.nodes if is_ours else before).get(queue, {})
        if nodes:
            queues[queue] = {node: sum_resources([size]) for node, size in nodes.items()}
    recorded = ledger.sections.get(wants.instance_id)
    if not queues and recorded is not None:
        return Section(guaranteed=recorded.guaranteed)
    return Section(queues=queues, guaranteed=wants.adjust_guaranteed)
