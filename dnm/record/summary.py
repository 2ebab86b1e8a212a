"""The summary of a run in a few words, from the lines of history that it added. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from dnm.model.history import HistoryLine
from dnm.model.hostlist import fold_hostlist
from dnm.model.printable import count_of

_OF_NODES: Mapping[str, str] = {  # event -> text, in the order in which they are shown
    "adopted": "recorded {} again",
    "lent": "{} joining",
    "joined": "lent {} to {}",
    "moved": "moved {} to {}",
    "unfenced": "{} serving again",
    "turned-back": "{} serving again",
    "fenced": "fenced {}",
    "returning": "returning {}",
    "returned": "returned {}",
    "forgotten": "forgot {}",
    "failed": "{} failed",
    "failed-again": "{} failed again",
    "return-failed": "return of {} failed",
}

_CORES = ("max cpu", "max vcore")  # by the name that the queue system gives them


def summarize(lines: Iterable[HistoryLine]) -> list[str]:
    """Returns phrases about what a run did: requests, nodes with the same event, changed limits."""
    lines = list(lines)
    return [*_requests(lines), *_nodes(lines), *_limits(lines)]


def _requests(lines: Iterable[HistoryLine]) -> Iterator[str]:
    counts: Counter[str] = Counter()
    for line in lines:
        if (line.kind, line.event) == ("request", "requested"):
            counts[line.namespace] += int(line.numbers.get("count", 1))
    for namespace, count in counts.items():
        yield f"requested {count_of(count, 'node')} for {namespace}"


def _nodes(lines: Iterable[HistoryLine]) -> Iterator[str]:
    last = {line.object: line for line in lines if line.kind == "node"}
    for event, text in _OF_NODES.items():
        names: dict[str, list[str]] = {}
        for name, line in last.items():
            if line.event == event:
                names.setdefault(line.namespace if text.count("{}") > 1 else "", []).append(name)
        for namespace, of in names.items():
            yield text.format(fold_hostlist(of), namespace)


def _limits(lines: Iterable[HistoryLine]) -> Iterator[str]:
    changed = [line for line in lines if (line.kind, line.event) == ("limit", "changed")]
    for line in changed:
        before, after = _amounts(line.before), _amounts(line.after)
        # Cores say enough, if they change.
        name = next((name for name in (*_CORES, *after) if name in after), "")
        queue = f" of {line.queue}" if len(changed) > 1 else ""
        resource = name.partition(" ")[2]
        yield f"limit{queue} {before.get(name, 'none')} -> {after.get(name, '?')} {resource}"


def _amounts(text: str) -> dict[str, str]:
    """Returns resource -> amount of the limits in a history line, e.g. `max vcore` -> `80`."""
    return {name: amount for name, _, amount in (name.rpartition(" ") for name in text.split(", "))}
