"""`dnm queues rebase`: the administrator declares whether limits contain lent nodes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from datetime import UTC, datetime
from typing import Annotated, Literal

import typer

from dnm.cli.terminal import completion
from dnm.cli.terminal.logs import log_operation
from dnm.cli.terminal.operation import is_sure, new_operation, print_wait
from dnm.cli.terminal.options import ConfigOption, ReasonOption, YesOption
from dnm.model.errors import ExitCode, LeaseError, QueueError
from dnm.model.printable import printable
from dnm.plan.limits import queue_wants, serving_sizes
from dnm.queues.system import ConfigMaps
from dnm.queues.yunikorn.admin.queue_verbs import document_amounts, queue_edges
from dnm.queues.yunikorn.document import read_document
from dnm.queues.yunikorn.document_edit import DocumentEdit
from dnm.queues.yunikorn.quantities import yunikorn_wants
from dnm.queues.yunikorn.rebase import LimitMeaning, rebase_document
from dnm.queues.yunikorn.rest import YunikornClient
from dnm.queues.yunikorn.source import SourceDocument, read_source
from dnm.queues.yunikorn.system import apply_queue_edit
from dnm.run.lease import judge_here
from dnm.run.registry import attach_lease, load_registry, opened_state
from dnm.run.verbs import acting_state, keep_ledger, note_operation

_NOTHING_LOST = (
    "these limits are as dnm wrote them, and the ledger lists the nodes that they contain "
    "(`dnm queues show`): nothing was written"
)
_NOTHING_LENT = (
    "no lent node of this instance is in the ledger or registry, so these limits contain none: "
    "nothing was written. If nodes are lent, `dnm run` must record them first"
)


def rebase(
    config: ConfigOption,
    reading: Annotated[
        Literal["baseline", "total"],
        typer.Option(
            "--as", help="Record the limits as baseline (without lent nodes) or total (with them)."
        ),
    ],
    queue: Annotated[
        list[str] | None,
        typer.Option(help="Record only this queue; repeatable.", autocompletion=completion.queues),
    ] = None,
    yes: YesOption = False,
    reason: ReasonOption = "",
) -> int:
    """Record whether limits that dnm cannot explain include lent nodes.

    The command first shows the effect of the answer. It does not change limits that are as dnm last
    wrote them, because dnm knows what they contain."""
    paths = [name.lower() for name in queue or ()]
    operation = new_operation("rebase", ", ".join(queue or ()), reason, reading=reading)
    kube, place, yunikorn = queue_edges(config)

    def change(source: SourceDocument) -> DocumentEdit:
        now = datetime.now(UTC)
        with opened_state(config) as state:
            registry = load_registry(config, now, state)
            attach_lease(config, state, kube)
            if refusal := judge_here(config, state, registry, now).refusal:
                raise LeaseError(refusal)  # this registry does not list the serving nodes
        wants = queue_wants(config, registry, serving_sizes(config, registry))
        own = yunikorn_wants(wants)
        return rebase_document(read_document(source), own, LimitMeaning(reading), paths)

    @contextmanager
    def lock() -> Iterator[Callable[[str | None], None]]:
        with acting_state(config, print_wait) as state:
            note_operation(config, state, operation)  # before the change is made
            log_operation(operation, config.instance_id)
            yield lambda ledger: keep_ledger(config, state, ledger)

    def ask(question: str) -> bool:
        return is_sure(question, yes)

    return rebase_queues(kube, place, change, ask, lock(), yunikorn)


def rebase_queues(
    kube: ConfigMaps,
    place: tuple[str, str],
    change: Callable[[SourceDocument], DocumentEdit],
    ask: Callable[[str], bool],
    lock: AbstractContextManager[Callable[[str | None], None]],
    yunikorn: YunikornClient | None = None,
) -> int:
    """Writes into the queue document what the administrator answered about its limits. Asks for a
    confirmation before it acquires the run lock, and again only if a limit has changed since then.
    `lock` yields a function that saves the new ledger in the registry."""
    answered: list[str] = []

    def confirmed(source: SourceDocument) -> DocumentEdit:
        edit = change(source)
        if edit.refusal:
            raise QueueError(edit.refusal)
        lines = _rebase_lines(edit)
        if (edit.is_changed or edit.is_answer) and lines != answered:
            answered[:] = lines
            print("\n".join(lines))
            if not ask("Is that what the limits should be?"):
                raise _DeclinedError
        return edit

    try:
        edit = confirmed(read_source(kube, place))
        if not (edit.is_changed or edit.is_answer):
            print(_NOTHING_LOST if any(n.lent for n in edit.numbers.values()) else _NOTHING_LENT)
            return ExitCode.OK
        with lock as keep:
            outcome = apply_queue_edit(kube, place, confirmed, yunikorn)
            keep(outcome.edit.record)
    except _DeclinedError:
        print("nothing was written")
        return ExitCode.OK
    for note in outcome.notes:
        print(printable(note))
    is_recorded = outcome.is_written or outcome.edit.is_answer
    print("the answer is recorded" if is_recorded else "another command has recorded it already")
    return ExitCode.OK


class _DeclinedError(Exception):
    """The error that ends the command if the administrator does not confirm the new limits."""


def _rebase_lines(edit: DocumentEdit) -> list[str]:
    """Returns lines of text: each limit before and after the edit, and without lent nodes."""
    lines = [
        f"{limit.queue}: {limit.kind} {limit.resource} {limit.before} -> {limit.after}"
        for limit in edit.changes
    ] or ["no limit changes"]
    lines += [
        f"{queue}: max without lent nodes: {document_amounts(numbers.baseline)}"
        for queue, numbers in edit.numbers.items()
        if numbers.baseline != numbers.limit
    ]
    lines += [f"{queue}: {reason}" for queue, reason in edit.held.items()]
    return [printable(line) for line in lines]
