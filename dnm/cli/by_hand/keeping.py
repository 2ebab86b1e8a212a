"""`dnm hold`, `exclude`, and their ends: the next run acts on what they record."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from dnm.cli.terminal.deadline import deadline_of
from dnm.cli.terminal.node_words import named_nodes
from dnm.cli.terminal.operation import (
    Verb,
    carry_out,
    new_operation,
    rehearse,
    said_by,
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
from dnm.cli.terminal.output import shown, told_together
from dnm.model.config import Config
from dnm.model.orders import Keeping
from dnm.model.registry import Registry
from dnm.run.registry import load_registry
from dnm.verbs import keeping


def hold(
    config: ConfigOption,
    nodes: LentNodes,
    output: NamesOption = "text",
    length: ForOption = "",
    until: UntilOption = "",
    reason: ReasonOption = "",
) -> list[str]:
    """Keep nodes as they are: lent ones stay, others are not taken."""
    deadline = deadline_of(config, length, until)
    answers = []
    for node, before in _keep(config, keeping.hold, nodes, deadline, reason):
        end = _end(config, deadline, "dnm unhold NODE")
        was = "" if node not in before.held else ", as it was before"
        kept = "held" if node in before.nodes else "held: it is not lent"
        answers.append((node, f"NODE is {kept} until {end}{was}"))
    return told_together(answers)


def exclude(
    config: ConfigOption,
    nodes: AnyNodes,
    output: NamesOption = "text",
    length: ForOption = "",
    until: UntilOption = "",
    reason: ReasonOption = "",
) -> list[str]:
    """Keep nodes out of lending; lent ones serve on, and are not lent again."""
    deadline = deadline_of(config, length, until)
    answers = []
    for node, before in _keep(config, keeping.exclude, nodes, deadline, reason):
        text = f"NODE is not lent until {_end(config, deadline, 'dnm unexclude NODE')}"
        if node in before.nodes:
            text += "; it is lent now, and serves on until it is idle"
        elif any(node in (request.node, *request.names) for request in before.requests):
            text += "; it is on its way now, and goes back as soon as it is there and empty"
        answers.append((node, text))
    return told_together(answers)


def _keep(
    config: Config, verb: Verb, words: Sequence[str], until: datetime | None, reason: str
) -> list[tuple[str, Registry]]:
    """Returns each node with the registry before. Either all nodes are kept or none."""
    now, nodes, name = datetime.now(UTC), named_nodes(words), verb.__name__
    asked = new_operation(name, reason=reason)
    kept = Keeping(since=now, until=until, reason=asked.reason, who=said_by(asked))
    each = ({"node": node, "keeping": kept} for node in nodes)
    rehearse(config, load_registry(config, now), verb, *each)
    end, found = until.isoformat() if until else "", []
    for node in nodes:
        operation = new_operation(name, node, reason, until=end)
        found.append((node, carry_out(config, operation, verb, node=node, keeping=kept).before))
    return found


def unhold(
    config: ConfigOption, nodes: LentNodes, output: NamesOption = "text", reason: ReasonOption = ""
) -> list[str]:
    """Let held nodes go back, or be lent, again."""
    return told_together(
        (node, "NODE is not held any more" if was_held else "NODE was not held")
        for node, was_held in _end_all(config, keeping.unhold, nodes, reason)
    )


def unexclude(
    config: ConfigOption, nodes: AnyNodes, output: NamesOption = "text", reason: ReasonOption = ""
) -> list[str]:
    """Let excluded nodes be lent again."""
    return told_together(
        (
            node,
            ("NODE is not excluded any more" if was_out else "NODE was not excluded")
            + (f"; {config.path} still names it" if node in config.exclude_nodes else ""),
        )
        for node, was_out in _end_all(config, keeping.unexclude, nodes, reason)
    )


def _end_all(
    config: Config, verb: Verb, words: Sequence[str], reason: str
) -> list[tuple[str, bool]]:
    """Returns each node, and whether its hold or exclusion ended."""
    found = []
    for node in named_nodes(words):
        operation = new_operation(verb.__name__, node, reason)
        found.append((node, carry_out(config, operation, verb, node=node).is_changed))
    return found


def _end(config: Config, until: datetime | None, verb: str) -> str:
    return f"{shown(until, config.events_zone)}, or `{verb}`" if until else f"`{verb}`"
