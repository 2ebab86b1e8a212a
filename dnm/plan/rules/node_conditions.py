"""`node_conditions`: what Slurm says of lent nodes, as their Nodes show it. Pure.

Nothing is decided by it: a Node's own kubelet can write the same. What the batch side does not say
stays as it was, and a Node that shows what is so already is not written to.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from dnm.model.batch import BatchNode, SlurmReason
from dnm.model.config import Config
from dnm.model.lent import LentNode
from dnm.model.node import Node, ShownState
from dnm.model.plan import ShowState
from dnm.model.reason import OTHERS_DRAIN
from dnm.model.registry import Registry
from dnm.model.slurm_state import condition_names, parse_state
from dnm.plan.facts import Facts, NodeTransition, with_words
from dnm.plan.hooks import Additions, Rule
from dnm.plan.inputs import Inputs


def list_shown(config: Config, registry: Registry, facts: Facts) -> list[ShowState]:
    """Returns what is to be written on Nodes that don't show what is so: the states of those that
    this instance has lent. Those that are nobody's any more, and Slurm's again, show none."""
    concerned = [
        node
        for node in (*(facts.nodes or {}).values(), *facts.with_batch.values())
        if (node.shown is not None or node.name in registry.nodes) and not node.unreadable
    ]
    return [
        action
        for node in sorted(concerned, key=lambda node: node.name)
        if (action := _show(config, registry.nodes.get(node.name), node, facts.batch)) is not None
    ]


def others_drains(
    config: Config, nodes: Mapping[str, LentNode], batch: Mapping[str, BatchNode] | None
) -> Iterator[tuple[str, str]]:
    """Yields a lent node with a sentence, where somebody who is no dnm has drained it in Slurm.
    Only with `node_conditions` is that looked at in every run."""
    if not config.node_conditions:
        return
    for name in sorted(nodes):
        row = (batch or {}).get(name)
        if row is not None and (drain := row.others_drain) is not None:
            yield name, f"{OTHERS_DRAIN}: {drain.line}"


def _show(
    config: Config,
    entry: LentNode | None,
    node: Node,
    batch: Mapping[str, BatchNode] | None,
) -> ShowState | None:
    standing = node.shown.states if node.shown else ()
    none = ShowState(node=node.name, wanted=None, standing=standing) if node.shown else None
    if entry is None:  # another instance's, or its converter still takes the mark off
        return none if config.node_conditions and node.mark is None else None
    marked = node.mark.instance if node.mark else ""
    if entry.owner != config.instance_id or marked not in ("", entry.owner):
        return None
    if not config.node_conditions:
        return none
    row = (batch or {}).get(node.name)
    if row is None:
        return None
    state = parse_state(row.state)
    names, said = condition_names(state), row.slurm_reason
    if not names:
        return None
    text = f"{state.text}: {said.line}" if said else state.text
    wanted = ShownState(states=names, text=text)
    if wanted == node.shown:
        return None
    return ShowState(
        node=node.name,
        wanted=wanted,
        message=said.line if said else "",
        drain_reason=_drain_reason(said) if said else "",
        standing=standing,
    )


def _drain_reason(said: SlurmReason) -> str:
    return "DrainedByDnm" if said.instance else "DrainedByAnother"


def _with_drains(inputs: Inputs, after: Mapping[str, NodeTransition]) -> dict[str, NodeTransition]:
    """Somebody else's drain in Slurm changes no decision on a lent node, and is no dnm's to lift:
    the verdict says so as long as it stands."""
    entries = {name: one.entry for name, one in after.items() if one.entry is not None}
    said = dict(after)
    for name, sentence in others_drains(inputs.config, entries, inputs.facts.batch):
        said[name] = with_words(after[name], sentence, f"{name} is {sentence}")
    return said


def _add_shown(inputs: Inputs, registry: Registry, noted: Registry) -> Additions:
    return Additions(
        registry=noted, actions=tuple(list_shown(inputs.config, registry, inputs.facts))
    )


RULE = Rule(tells=_with_drains, adds=_add_shown)
