"""Nodes that came although they are kept out of lending: they leave from the start. Pure.

The rule: what enters the record is judged once, as soon as all that the rules ask of it is known,
whoever brought it. One that a call brought which was told not to counts as a failed conversion, or
the next run would ask again. One that was on its way when it was excluded is nobody's failure: the
next call is told.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from dnm.model.config import Config
from dnm.model.hostlist import expand_hostlist
from dnm.model.registry import ConversionRequest, Leaving, LentNode, Phase, Registry
from dnm.model.value import Value
from dnm.plan.backoff import ConversionResult
from dnm.plan.facts import Facts
from dnm.plan.kept_out import can_be_judged, unwelcome_nodes


class TurnedAway(Value):
    """`nodes`: all that were given, some of them leaving now."""

    nodes: Mapping[str, LentNode]
    failures: tuple[ConversionResult, ...] = ()
    errors: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def turn_away(
    config: Config, before: Registry, nodes: Mapping[str, LentNode], facts: Facts
) -> TurnedAway:
    """Judges what is new among `nodes`, and what could not be judged yet; with a sentence for each
    that would serve."""
    out = unwelcome_nodes(config, before, facts.batch, facts.now)
    after, failures, errors, notes = dict(nodes), [], [], []
    for name, entry in nodes.items():
        is_old = name in before.nodes and not entry.is_unjudged
        if is_old or entry.owner != config.instance_id:
            continue
        after[name] = _judged(config, name, entry, facts, is_out=name in out)
        if name not in out or entry.phase not in (Phase.JOINING, Phase.SERVING):
            continue
        calls = [one for one in before.requests if one.node_type == entry.node_type]
        if not all(_was_told(one, name) for one in calls):
            why = f"it was excluded while it was on its way ({out[name]})"
            notes.append(f"{name} goes back as soon as it is empty: {why}")
            continue
        errors.append(_sentence(config, name, out[name], is_told=bool(calls)))
        failures.append(ConversionResult(node_type=entry.node_type, error=errors[-1]))
    return TurnedAway(
        nodes=after, failures=tuple(failures), errors=tuple(errors), notes=tuple(notes)
    )


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
