"""What the end of a converter's call means for the record: of a conversion, of a return. Pure.

The run that started the call books it, or the next one that finds it ended.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

import msgspec

from dnm.model.config import Config
from dnm.model.registry import (
    ConversionRequest,
    ConverterProcess,
    Ended,
    LentNode,
    Phase,
    Registry,
)
from dnm.plan.backoff import backoff_delay


def calls_until(
    config: Config, registry: Registry
) -> Iterator[tuple[str, ConverterProcess, datetime]]:
    """Yields the converters that may be at work, by key, and until when they may be."""
    longest = config.convert_timeout
    for request in registry.requests:
        if request.converter is not None:
            yield request.id, request.converter, request.since + longest
    for name, entry in registry.nodes_of(config.instance_id, Phase.RETURNING).items():
        if entry.converter is not None:
            yield name, entry.converter, entry.retry_after or entry.since + longest


def request_ended(request: ConversionRequest, end: Ended, now: datetime) -> ConversionRequest:
    """With what its converter named; the time to join counts from now. Where it failed and named
    none, nobody counts on its nodes; late ones that are nobody's are still adopted."""
    request = with_names(request, end)
    return msgspec.structs.replace(
        request,
        ended=True,
        is_given_up=bool(end.error and not request.names),
        since=now,
        error=end.error,
    )


def with_names(request: ConversionRequest, end: Ended) -> ConversionRequest:
    """With the names that were heard before and those that stand there now."""
    names = tuple(dict.fromkeys((*request.names, *end.names)))
    return msgspec.structs.replace(request, names=names)


def return_ended(config: Config, entry: LentNode, end: Ended, now: datetime) -> LentNode:
    """When it may be tried again, unless Slurm has the node by then."""
    wait = backoff_delay(config, entry.attempts) if end.error else config.join_timeout
    return msgspec.structs.replace(
        entry,
        converter=None,
        error=end.error,
        retry_after=now + wait,
        is_handed_over=not end.error and end.exit_code == 0,
    )


def conversion_error(request_id: str, error: str) -> str:
    """The line of a conversion whose converter failed."""
    return f"action=convert request={request_id} error={error!r}"


def return_error(name: str, error: str) -> str:
    """The line of a return whose converter failed."""
    return f"action=return node={name} error={error!r}"
