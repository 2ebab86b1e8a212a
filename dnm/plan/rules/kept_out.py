"""Which nodes are kept out of lending, and why: by the configuration, or by a person. Pure.

The rule: a node that may not be lent is not counted among those that can be had, the converter is
told not to choose it, and one that came all the same is fenced and goes back as soon as it is
empty. What a node is in can't always be told: with a rule that asks for it, it is not lent then;
one that came is judged once it can be told. A lent node serves on when it is excluded, and is not
lent again; a hold keeps a node where it is, so it sends none back.

What enters the record is judged once, as soon as all that the rules ask of it is known, whoever
brought it. One that a call brought which was told not to counts as a failed conversion, or the next
run would ask again. One that was on its way when it was excluded is nobody's failure: the next call
is told.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime

import msgspec

from dnm.model.batch import BatchNode
from dnm.model.config import Config
from dnm.model.hostlist_parser import expand_hostlist
from dnm.model.lent import ConversionRequest, Leaving, LentNode, Phase
from dnm.model.orders import Keeping
from dnm.model.printable import printable
from dnm.model.registry import Registry
from dnm.plan.breaker import ConversionResult
from dnm.plan.facts import Facts
from dnm.plan.found import Found
from dnm.plan.hooks import KeptOut, Leave, Rule
from dnm.plan.inputs import Inputs
from dnm.plan.rule import unwelcome_nodes

_LONGEST_REASON = 120


def kept_out(
    config: Config, registry: Registry, batch: Mapping[str, BatchNode] | None, now: datetime
) -> dict[str, KeptOut]:
    """Returns each node that is kept out, by name; `batch` None: what Slurm says of the nodes is
    not known. One that has come goes back only if that is sure, and not for a hold."""
    why = {
        name: f"exclude_nodes names a {kinds[0]}, and the converter does not say what it has"
        for name, row in (batch or {}).items()
        if (kinds := _not_listed(config, row))
    }
    for name in registry.held:
        hold = registry.holds.get(name)
        if hold is None or hold.is_in_force(now):
            why[name] = f"{kept_sentence(hold, 'holds')}: dnm unhold {name}"
    sure = {
        name: said[0]
        for name, row in (batch or {}).items()
        if (said := list(_by_configuration(config, row)))
    }
    sure |= dict.fromkeys(sorted(config.exclude_nodes), "exclude_nodes names it")
    for name, kept in registry.excluded.items():
        if kept.is_in_force(now):
            sure[name] = f"{kept_sentence(kept, 'excluded')}: dnm unexclude {name}"
    return {
        name: KeptOut(why=text, goes_back=name in sure) for name, text in {**why, **sure}.items()
    }


def kept_sentence(keeping: Keeping | None, verb: str) -> str:
    """Says who keeps a node, until when and why; None: that was not written down."""
    if keeping is None:
        return f"somebody {verb} it"
    until = f" until {keeping.until:%Y-%m-%d %H:%M} UTC" if keeping.until else ""
    said = f" ({printable(keeping.reason, _LONGEST_REASON)})" if keeping.reason else ""
    return f"{printable(keeping.who, 80) or 'somebody'} {verb} it{until}{said}"


def can_be_judged(config: Config, batch: Mapping[str, BatchNode] | None, name: str) -> bool:
    """Whether all is known that the rules of the configuration ask of the node."""
    row = (batch or {}).get(name)
    return not _not_listed(config, row or BatchNode(name=name, state="", verdict=""))


def _rules(
    config: Config, row: BatchNode
) -> tuple[tuple[str, tuple[str, ...], tuple[str, ...] | None], ...]:
    """(kind, the words it names, those that the row has; None: it does not say) of those set."""
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


# --- those that came all the same ---------------------------------------------------------------


def refuse_unwelcome(
    config: Config, before: Registry, nodes: Mapping[str, LentNode], facts: Facts
) -> Found:
    """Judges what is new among `nodes`, and what could not be judged yet: all of them, some leaving
    now; with a sentence for each that would serve."""
    out = unwelcome_nodes(config, before, facts)
    after, failures, errors, notes = dict(nodes), [], [], []
    for name, entry in nodes.items():
        is_old = name in before.nodes and not entry.is_unjudged
        if is_old or entry.owner != config.instance_id:
            continue
        after[name] = _judged(config, name, entry, facts, is_out=name in out)
        if name not in out or entry.phase not in (Phase.JOINING, Phase.SERVING):
            continue
        calls = [request for request in before.requests if request.node_type == entry.node_type]
        if not all(_was_told(call, name) for call in calls):
            why = f"it was excluded while it was on its way ({out[name]})"
            notes.append(f"{name} goes back as soon as it is empty: {why}")
            continue
        errors.append(_sentence(config, name, out[name], is_told=bool(calls)))
        failures.append(ConversionResult(node_type=entry.node_type, error=errors[-1]))
    return Found(nodes=after, failures=tuple(failures), errors=tuple(errors), notes=tuple(notes))


def _judged(config: Config, name: str, entry: LentNode, facts: Facts, *, is_out: bool) -> LentNode:
    if is_out:
        return msgspec.structs.replace(entry, leaves=Leaving.KEPT_OUT, is_unjudged=False)
    is_unjudged = not can_be_judged(config, facts.batch, name)
    return msgspec.structs.replace(entry, is_unjudged=is_unjudged)


def _sentence(config: Config, name: str, why: str, *, is_told: bool) -> str:
    said = (
        f"{name} came although it is kept out of lending ({why}): it goes back as soon as it is "
        "empty"
    )
    if not is_told:
        return said
    return f"{said}. Look whether {config.node_convert_path} does as it is told: `dnm check`"


def _was_told(request: ConversionRequest, name: str) -> bool:
    """Whether the call had said that the node is not to be taken."""
    return request.node not in ("", name) or name in expand_hostlist(request.leave_out)


def _is_over(inputs: Inputs, registry: Registry, name: str) -> bool:
    config, batch = inputs.config, inputs.facts.batch
    is_told = batch is not None and can_be_judged(config, batch, name)
    return is_told and name not in unwelcome_nodes(config, registry, inputs.facts)


RULE = Rule(
    keeps_out=kept_out,
    refuses=refuse_unwelcome,
    leave=Leave(
        word=Leaving.KEPT_OUT,
        reason="it came although it is kept out of lending",
        is_over=_is_over,
    ),
)
