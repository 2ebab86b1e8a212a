"""Nodes that are excluded from lending, and why: by the configuration, or by an administrator.
Pure.

The rule: an excluded node does not count as available, and the converter must not choose it. If it
joins all the same, it is fenced and returned as soon as it is empty. A node's partitions, features
and reservations are not always known. If a rule needs them, the node is not lent, and a node that
has joined is judged once they are known. A lent node keeps serving when it is excluded, and is not
lent again. A hold keeps a node where it is, so it returns none.

Every recorded node is judged once, as soon as all facts for the rules are known. If a call excluded
the node and brought it, the conversion counts as failed: else the next run would try again. A node
that was excluded while it was joining is no failure: the next call gets the new list."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime

import msgspec

from dnm.model.batch import BatchNode
from dnm.model.config import Config
from dnm.model.departure import Leaving
from dnm.model.hostlist_parser import expand_hostlist
from dnm.model.lent import ConversionRequest, LentNode, Phase
from dnm.model.orders import Keeping
from dnm.model.printable import printable
from dnm.model.registry import Registry
from dnm.plan.breaker import ConversionResult
from dnm.plan.facts import Facts
from dnm.plan.findings import Findings
from dnm.plan.hooks import Exclusion, Leave, Rule
from dnm.plan.inputs import Inputs
from dnm.plan.rule import nodes_to_return

_LONGEST_REASON = 120


def exclusions(
    config: Config, registry: Registry, batch: Mapping[str, BatchNode] | None, now: datetime
) -> dict[str, Exclusion]:
    """Returns the nodes excluded from lending, with the reasons. `batch` is None if Slurm was not
    read. A lent node is returned only if its exclusion is certain and is not a hold."""
    unsure = {
        name: f"exclude_nodes names a {kinds[0]}, and the converter does not report them"
        for name, row in (batch or {}).items()
        if (kinds := _not_listed(config, row))
    }
    for name in registry.held:
        hold = registry.holds.get(name)
        if hold is None or hold.is_in_force(now):
            unsure[name] = f"{describe_keeping(hold, 'holds')}: dnm unhold {name}"
    sure = {
        name: matches[0]
        for name, row in (batch or {}).items()
        if (matches := list(_by_configuration(config, row)))
    }
    sure |= dict.fromkeys(sorted(config.exclude_nodes), "exclude_nodes names it")
    for name, kept in registry.excluded.items():
        if kept.is_in_force(now):
            sure[name] = f"{describe_keeping(kept, 'excluded')}: dnm unexclude {name}"
    return {
        name: Exclusion(why=text, must_return=name in sure)
        for name, text in {**unsure, **sure}.items()
    }


def describe_keeping(keeping: Keeping | None, verb: str) -> str:
    """Returns a clause: who holds or excludes a node, until when and why, if that was recorded."""
    if keeping is None:
        return f"an administrator {verb} it"
    until = f" until {keeping.until:%Y-%m-%d %H:%M} UTC" if keeping.until else ""
    reason = f" ({printable(keeping.reason, _LONGEST_REASON)})" if keeping.reason else ""
    return f"{printable(keeping.requester, 80) or 'an administrator'} {verb} it{until}{reason}"


def can_be_judged(config: Config, batch: Mapping[str, BatchNode] | None, name: str) -> bool:
    """Returns whether all facts about the node are known that the configured exclusions need."""
    row = (batch or {}).get(name)
    return not _not_listed(config, row or BatchNode(name=name, state="", verdict=""))


def _rules(
    config: Config, row: BatchNode
) -> tuple[tuple[str, tuple[str, ...], tuple[str, ...] | None], ...]:
    """Returns the exclusions by partition, feature and reservation that are configured. Each has
    the configured names, and those that Slurm reports for the node (None if it reports none)."""
    rules = (
        ("partition", config.exclude_partitions, row.partitions or None),
        ("feature", config.exclude_features, row.features),
        ("reservation", config.exclude_reservations, row.reservations),
    )
    return tuple(rule for rule in rules if rule[1])


def _not_listed(config: Config, row: BatchNode) -> list[str]:
    return [kind for kind, _, has in _rules(config, row) if has is None]


def _by_configuration(config: Config, row: BatchNode) -> Iterator[str]:
    for kind, named, has in _rules(config, row):
        for word in named:
            if word in (has or ()):
                yield f"exclude_nodes names {kind} {word}"


# --- excluded nodes that were lent --------------------------------------------------------------


def judge_excluded(
    config: Config, before: Registry, nodes: Mapping[str, LentNode], facts: Facts
) -> Findings:
    """Decides which new nodes, and nodes that could not be judged before, are excluded. Returns all
    nodes; excluded ones will be cordoned and returned, with an error or a note for each."""
    excluded = nodes_to_return(config, before, facts)
    after, failures, errors, notes = dict(nodes), [], [], []
    for name, entry in nodes.items():
        is_old = name in before.nodes and not entry.is_unjudged
        if is_old or entry.owner != config.instance_id:
            continue
        after[name] = _with_judgement(config, name, entry, facts, is_excluded=name in excluded)
        if name not in excluded or entry.phase not in (Phase.JOINING, Phase.SERVING):
            continue
        calls = [request for request in before.requests if request.node_type == entry.node_type]
        if not all(_had_exclusion(call, name) for call in calls):
            why = f"it was excluded while it was joining ({excluded[name]})"
            notes.append(f"{name} is returned as soon as it is empty: {why}")
            continue
        errors.append(_describe_return(config, name, excluded[name], was_requested=bool(calls)))
        failures.append(ConversionResult(node_type=entry.node_type, error=errors[-1]))
    return Findings(nodes=after, failures=tuple(failures), errors=tuple(errors), notes=tuple(notes))


def _with_judgement(
    config: Config, name: str, entry: LentNode, facts: Facts, *, is_excluded: bool
) -> LentNode:
    if is_excluded:
        return msgspec.structs.replace(entry.leave(Leaving.EXCLUDED), is_unjudged=False)
    is_unjudged = not can_be_judged(config, facts.batch, name)
    return msgspec.structs.replace(entry, is_unjudged=is_unjudged)


def _describe_return(config: Config, name: str, why: str, *, was_requested: bool) -> str:
    text = f"{name} was lent although it is excluded ({why}): it is returned as soon as it is empty"
    if not was_requested:
        return text
    return f"{text}. Check whether {config.node_convert_path} obeys exclusions: `dnm check`"


def _had_exclusion(request: ConversionRequest, name: str) -> bool:
    """Returns whether the request for nodes forbade the converter to choose this node."""
    return request.node not in ("", name) or name in expand_hostlist(request.leave_out)


def _is_over(inputs: Inputs, registry: Registry, name: str) -> bool:
    config, batch = inputs.config, inputs.facts.batch
    is_readable = batch is not None and can_be_judged(config, batch, name)
    return is_readable and name not in nodes_to_return(config, registry, inputs.facts)


RULE = Rule(
    excludes=exclusions,
    refuses=judge_excluded,
    leave=Leave(
        word=Leaving.EXCLUDED,
        reason="it was lent although it is excluded",
        is_over=_is_over,
    ),
)
