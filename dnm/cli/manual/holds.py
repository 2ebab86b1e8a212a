"""`dnm hold`, `dnm exclude` and the commands that end them. They change the registry; the next run
acts on it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from dnm.cli.terminal.deadline import deadline_of
from dnm.cli.terminal.node_words import named_nodes
from dnm.cli.terminal.operation import (
    Verb,
    author_of,
    carry_out,
    new_operation,
    rehearse,
)
from dnm.cli.terminal.options import (
    AnyNodes,
    ConfigOption,
    ForOption,
    LentNodes,
    NamesOption,
    ReasonOption,
    UntilOption,
)
from dnm.cli.terminal.output import merge_sentences, shown
from dnm.model.config import Config
from dnm.model.orders import Keeping
from dnm.model.registry import Registry
from dnm.run.registry import load_registry
from dnm.verbs import holds


def hold(
    config: ConfigOption,
    nodes: LentNodes,
    output: NamesOption = "text",
    length: ForOption = "",
    until: UntilOption = "",
    reason: ReasonOption = "",
) -> list[str]:
    """Keep nodes as they are: do not return lent nodes, do not lend others."""
    deadline = deadline_of(config, length, until)
    answers = []
    for node, before in _keep(config, holds.hold, nodes, deadline, reason):
        end = _end(config, deadline, "dnm unhold NODE")
        was = "" if node not in before.held else ", as it was before"
        kept = "held" if node in before.nodes else "held: it is not lent"
        answers.append((node, f"NODE is {kept} until {end}{was}"))
    return merge_sentences(answers)


def exclude(
    config: ConfigOption,
    nodes: AnyNodes,
    output: NamesOption = "text",
    length: ForOption = "",
    until: UntilOption = "",
    reason: ReasonOption = "",
) -> list[str]:
    """Exclude nodes from lending; those that are lent serve until they are idle."""
    deadline = deadline_of(config, length, until)
    answers = []
    for node, before in _keep(config, holds.exclude, nodes, deadline, reason):
        text = f"NODE is not lent until {_end(config, deadline, 'dnm unexclude NODE')}"
        if node in before.nodes:
            text += "; it is lent now, and serves until it is idle"
        elif any(node in (request.node, *request.names) for request in before.requests):
            text += "; it is joining now, and is returned when it has joined and is empty"
        answers.append((node, text))
    return merge_sentences(answers)


def _keep(
    config: Config, verb: Verb, words: Sequence[str], until: datetime | None, reason: str
) -> list[tuple[str, Registry]]:
    """Holds or excludes all of the nodes, or none of them if one is refused. Returns each node's
    name with the registry before that change, so that the caller can print what changed."""
    now, nodes, name = datetime.now(UTC), named_nodes(words), verb.__name__
    asked = new_operation(name, reason=reason)
    kept = Keeping(since=now, until=until, reason=asked.reason, requester=author_of(asked))
    each = ({"node": node, "keeping": kept} for node in nodes)
    rehearse(config, load_registry(config, now), verb, *each)
    end, changed = until.isoformat() if until else "", []
    for node in nodes:
        operation = new_operation(name, node, reason, until=end)
        changed.append((node, carry_out(config, operation, verb, node=node, keeping=kept).before))
    return changed


def unhold(
    config: ConfigOption, nodes: LentNodes, output: NamesOption = "text", reason: ReasonOption = ""
) -> list[str]:
    """End a hold, so that dnm can return or lend the nodes again."""
    return merge_sentences(
        (node, "NODE is no longer held" if was_held else "NODE was not held")
        for node, was_held in _end_all(config, holds.unhold, nodes, reason)
    )


def unexclude(
    config: ConfigOption, nodes: AnyNodes, output: NamesOption = "text", reason: ReasonOption = ""
) -> list[str]:
    """End an exclusion, so that dnm can lend the nodes again."""
    return merge_sentences(
        (
            node,
            ("NODE is no longer excluded" if was_out else "NODE was not excluded")
            + (f"; {config.path} still excludes it" if node in config.exclude_nodes else ""),
        )
        for node, was_out in _end_all(config, holds.unexclude, nodes, reason)
    )


def _end_all(
    config: Config, verb: Verb, words: Sequence[str], reason: str
) -> list[tuple[str, bool]]:
    """Ends the hold or exclusion of each node. Returns each node, and whether it had any."""
    ended = []
    for node in named_nodes(words):
        operation = new_operation(verb.__name__, node, reason)
        ended.append((node, carry_out(config, operation, verb, node=node).is_changed))
    return ended


def _end(config: Config, until: datetime | None, verb: str) -> str:
    return f"{shown(until, config.events_zone)}, or `{verb}`" if until else f"`{verb}`"
