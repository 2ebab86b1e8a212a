"""`dnm pause`, `resume` and `reset`. They change the registry; the next run acts on it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

import msgspec
import typer

from dnm.cli.look.status_view import pause_line
from dnm.cli.terminal import completion
from dnm.cli.terminal.deadline import deadline_of
from dnm.cli.terminal.node_words import named_nodes
from dnm.cli.terminal.operation import (
    RefusedError,
    attempt,
    author_of,
    carry_out,
    new_operation,
    rehearse,
)
from dnm.cli.terminal.options import (
    ConfigOption,
    ForOption,
    NamesOption,
    ReasonOption,
    UntilOption,
)
from dnm.cli.terminal.output import merge_sentences, shown
from dnm.model.config import Config
from dnm.model.orders import Pause, Way
from dnm.model.printable import printable
from dnm.plan.lease import acts_elsewhere
from dnm.run.registry import load_registry
from dnm.verbs import holds
from dnm.verbs.holds import Resettable, find_resettable
from dnm.verbs.refusal import Refusal

_RESUMED = "`dnm resume`"
_LONGEST_HOLDER = 300  # characters that are shown


def pause(
    config: ConfigOption,
    output: NamesOption = "text",
    length: ForOption = "",
    until: UntilOption = "",
    reason: Annotated[
        str, typer.Option(help="Record this reason in `dnm status` and the history.")
    ] = "",
    lending: Annotated[bool, typer.Option("--lending", help="Stop lending only.")] = False,
    returning: Annotated[bool, typer.Option("--returning", help="Stop returning only.")] = False,
    is_forced: Annotated[
        bool,
        typer.Option("--force", help="Replace the current pause if it stops more or lasts longer."),
    ] = False,
) -> str:
    """Stop lending, returning or both, for a time or until `dnm resume`."""
    half = None if lending is returning else Way.LENDING if lending else Way.RETURNING
    now, end = datetime.now(UTC), deadline_of(config, length, until)
    operation = new_operation(
        "pause", reason=reason, until=end.isoformat() if end else "",
        half=half.value if half else "",
    )  # fmt: skip
    paused = Pause(
        since=now, until=end, reason=operation.reason, requester=author_of(operation), half=half
    )
    done = attempt(config, operation, holds.pause, paused=paused, is_forced=is_forced)
    was = done.before.pause if done.before.paused(now) else None
    there = _pause_there(config, was) if was else ""
    if isinstance(done.after, Refusal):
        raise RefusedError(f"{there}; {done.after.sentence}")
    state = f"{half.value} is paused" if half else "paused"
    text = f"{state} until {shown(end, config.events_zone, seconds=True) if end else _RESUMED}"
    text += f"; it replaces an earlier pause: {there}" if there else ""
    peer = acts_elsewhere(done.after, now)
    if peer is None:
        return text
    return (
        f"{text}, on this host only; {printable(peer.holder, _LONGEST_HOLDER)} acts as instance "
        f"{config.instance_id}; run `dnm pause` there to stop it"
    )


def _pause_there(config: Config, pause: Pause) -> str:
    line = pause_line(msgspec.structs.asdict(pause), config.events_zone)
    return line if pause.half else f"lending and returning are {line}"


def resume(config: ConfigOption, output: NamesOption = "text", reason: ReasonOption = "") -> str:
    """End a pause."""
    # After the pause for a lost registry, the pause from before the loss applies again.
    done = carry_out(config, new_operation("resume", reason=reason), holds.resume)
    earlier = done.before.pause.earlier if done.before.pause else None
    if earlier is None or not earlier.stops(None, datetime.now(UTC)):
        return "lending and returning continue" if done.is_changed else "dnm was not paused"
    return (
        f"dnm acts on the new registry; {_pause_there(config, earlier)}, as before the loss: "
        "run `dnm resume` once more to end that pause"
    )


def reset(
    config: ConfigOption,
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME",
            help="Queue, node type, or failed nodes.",
            autocompletion=completion.resettable,
        ),
    ],
    output: NamesOption = "text",
    reason: ReasonOption = "",
) -> list[str]:
    """Reset a circuit breaker, a back-off or failed nodes.

    NAME is a queue (closes its breaker), a node type (ends its back-off), a failed node or a host
    list of failed nodes (tries to return them again)."""
    names = named_nodes((name,)) if "[" in name or "," in name else (name,)
    now = datetime.now(UTC)
    each = ({"name": name, "now": now} for name in names)
    rehearse(config, load_registry(config, now), holds.reset, *each)
    return merge_sentences((name, _reset(config, name, reason)) for name in names)


def _reset(config: Config, name: str, reason: str) -> str:
    meant = name.lower() if name.lower() in config.queues else name
    operation = new_operation("reset", meant, reason)
    before = carry_out(config, operation, holds.reset, name=name, now=datetime.now(UTC)).before
    kind = find_resettable(config, before, name)
    if kind is Resettable.NODE:
        return "NODE will be returned to Slurm by the next run"
    if kind is Resettable.QUEUE:
        breaker = before.breakers.get(name.lower())
        if breaker is None or breaker.tripped_at is None:
            return f"the breaker of {name.lower()} was not open; its count is reset"
        return f"the breaker of {name.lower()} is closed; dnm may lend it nodes again"
    was = "is no longer in back-off" if name in before.backoffs else "was not in back-off"
    return f"node type {name} {was}"
