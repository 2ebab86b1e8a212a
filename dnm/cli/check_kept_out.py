"""What `dnm check` says of nodes that are kept out of lending: how many, whether the converter can
be told of them, and rules that hold for no node, or can't be told to."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime

from dnm.cli.findings import Finding, doubtful, fine
from dnm.model.batch import BatchList
from dnm.model.config import Config
from dnm.model.hostlist import fold_hostlist
from dnm.model.printable import count_of
from dnm.model.registry import Registry
from dnm.plan.rule import nodes_kept_out

_CHECK = "kept out"
_LONGEST = 200  # characters of a list of nodes


def check_kept_out(
    config: Config, registry: Registry, listed: BatchList, now: datetime
) -> Iterator[Finding]:
    """Nothing where nothing is kept out."""
    why = nodes_kept_out(config, registry, listed.nodes, now)
    out = [name for name in why if name in listed.nodes]
    yield from _unknown_words(config, listed)
    if out and not listed.leaves_out:
        yield doubtful(
            _CHECK,
            f"{count_of(len(out), 'node')} are kept out, and the converter can't be told which to "
            "leave out: dnm names every node that it asks for, a call each",
            "let it take --exclude and say so in its list (docs/node-convert.md)",
        )
    elif out:
        yield fine(
            _CHECK, f"{count_of(len(out), 'node')}: {_short(out)}; `dnm nodes` has the reasons"
        )


def _unknown_words(config: Config, listed: BatchList) -> Iterator[Finding]:
    """Whoever mistypes what shall be kept out must not find out by a node that was lent."""
    rows = listed.nodes.values()
    if missing := config.exclude_nodes - listed.nodes.keys():
        yield doubtful(
            _CHECK,
            f"exclude_nodes names {_short(missing)}, which the converter does not list",
            "correct the names; 'dnm nodes' shows all",
        )
    rules = (
        ("partition", config.exclude_partitions, [row.partitions or None for row in rows]),
        ("feature", config.exclude_features, [row.features for row in rows]),
        ("reservation", config.exclude_reservations, [row.reservations for row in rows]),
    )
    for kind, named, there in rules:
        untold = sum(has is None for has in there)
        if named and untold:
            yield doubtful(
                _CHECK,
                f"exclude_nodes names a {kind}, and the converter does not say what "
                f"{count_of(untold, 'node')} have: these are not lent",
                "let its list say it (docs/node-convert.md), or leave it out",
            )
        known = {word for has in there for word in has or ()}
        for word in named:
            if word not in known and kind != "reservation":  # one may be yet to come
                yield doubtful(
                    _CHECK,
                    f"exclude_nodes names {kind} {word}, which no node has",
                    "correct the name",
                )


def _short(names: Iterable[str]) -> str:
    text = fold_hostlist(names)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
