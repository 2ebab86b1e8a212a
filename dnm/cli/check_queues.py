"""`dnm check`: the queue document, the monitored queues in it, and whether the scheduler has it."""

from __future__ import annotations

from collections.abc import Iterator

from dnm.cli.findings import Finding, doubtful, fine, wrong
from dnm.cli.output import amounts
from dnm.config import values
from dnm.model.config import Config
from dnm.model.last_run import RunRecord
from dnm.model.plan import Snapshot
from dnm.model.printable import count_of
from dnm.model.registry import Registry
from dnm.model.value import Unreadable
from dnm.plan.limits import queue_wants
from dnm.queues.advice import advise, warn_of_spreading
from dnm.queues.document import QueueDocument, read_document
from dnm.queues.edit import why_no_growth
from dnm.queues.ledger import Section
from dnm.queues.source import resolve_document
from dnm.queues.yunikorn_rest import YunikornClient, checksum_of

_MOST_SHOWN = 5  # violations, of many


def check_queue_document(
    config: Config, snapshot: Snapshot, found: list[QueueDocument]
) -> Iterator[Finding]:
    """Where it is, whether dnm may edit it there, and YuniKorn's rules; leaves it in `found`."""
    check = "queue document"
    if isinstance(snapshot.queue_maps, Unreadable):
        yield wrong(check, f"{snapshot.queue_maps.what}: {snapshot.queue_maps.error}")
        return
    asked = (config.yunikorn_cm_namespace, config.yunikorn_cm_name)
    source = resolve_document(*snapshot.queue_maps, asked)
    for warning in source.warnings:
        yield doubtful(check, warning)
    document = read_document(source)
    found.append(document)
    for refusal in filter(None, (source.refusal, document.tree.refusal)):
        yield wrong(check, f"dnm can't edit it: {refusal}")
    violations = document.violations
    for violation in violations[:_MOST_SHOWN]:
        yield wrong(
            check,
            f"line {violation.line}: {violation.message} ({violation.rule})",
            "mend it: dnm does not edit such a document",
        )
    if len(violations) > _MOST_SHOWN:
        yield wrong(check, f"{len(violations)} violations in all", "'dnm queues check' shows them")
    for advice in advise(document.tree):
        if advice.message != document.tree.refusal:
            yield doubtful(check, f"line {advice.line}: {advice.message}")
    if spreading := warn_of_spreading(document.tree):
        yield doubtful(check, spreading, "set nodesortpolicy: {type: binpacking} in the partition")
    if not violations and not source.refusal and source.config_map is not None:
        where = f"{source.config_map.namespace}/{source.config_map.name}"
        yield fine(
            check, f"{source.key} of {where}: {count_of(len(document.limits), 'queue')}, valid"
        )


def check_queues(config: Config, document: QueueDocument) -> Iterator[Finding]:
    """Of each monitored queue: there, and with a limit that dnm can move."""
    counted = document.ledger.sections.get(config.instance_id, Section()).queues
    wants = queue_wants(config, Registry(last_run=RunRecord(ledger="")), counted)
    for policy in config.namespaces.values():
        check, path = f"queue of {policy.name}", policy.queue
        limits = document.limits.get(path)
        if limits is None:
            hint = values.suggest(path, document.limits)
            yield wrong(
                check,
                f"there is no {path} in the queue document{hint}",
                "correct the queue map or write the queue",
            )
            continue
        children = [queue for queue in document.limits.values() if queue.parent == path]
        if children:
            yield doubtful(
                check,
                f"{path} has {count_of(len(children), 'queue')} below it, whose own limits dnm "
                "leaves alone",
                "map the namespace to the leaf its pods run in",
            )
        limit = amounts(limits.max)
        sizes = [config.node_types[name].size for name in policy.node_types]
        obstacles = (why_no_growth(document, wants, path, [size]) for size in sizes)
        if not document.refusal and (why := next(filter(None, obstacles), None)):
            yield wrong(check, f"{path} gets no node, since its limit can't grow: {why.detail}")
            continue
        yield fine(
            check,
            f"{path}, limit {limit}"
            if limit
            else f"{path}, without a limit of its own: only a lack of room brings it nodes",
        )


def check_scheduler(config: Config, document: QueueDocument) -> Iterator[Finding]:
    """Whether it answers, and whether the document is the one in force."""
    client = YunikornClient(config.yunikorn_url)
    refusal = client.validate(document.source.text)
    if refusal:
        yield wrong(
            "YuniKorn",
            f"the scheduler would refuse the document: {refusal}",
            "mend the document: the next restart of the scheduler fails with it",
        )
    elif client.read_checksum() != checksum_of(document.source.text):
        yield wrong(
            "YuniKorn",
            "the scheduler has another document in force than the ConfigMap",
            "look for 'reload configuration failed' in the scheduler's log",
        )
    else:
        yield fine("YuniKorn", f"{config.yunikorn_url} has the document in force")
