"""`max_lend_hours`: for how long a node may be lent. Pure.

The rule: a node that has been lent for so long is fenced, empties by itself and goes back; its
queue may be lent another.
"""

from __future__ import annotations

from dnm.model.config import Config
from dnm.model.registry import LentNode
from dnm.plan.facts import Facts


def is_overdue(config: Config, entry: LentNode, facts: Facts) -> bool:
    """Returns whether a node has been lent for as long as it may be."""
    return bool(config.max_lend) and facts.now >= entry.lent_from + config.max_lend
