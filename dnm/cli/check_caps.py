"""What part of the batch side's nodes each cap lets be lent, for `dnm check`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from dnm.cli.findings import Finding, doubtful, fine
from dnm.model.config import Config
from dnm.model.printable import count_of
from dnm.model.share import Share, most_of
from dnm.plan.cap_shares import NodeCap, list_node_caps


def check_caps(config: Config, batch: Mapping[str, object] | None) -> Iterator[Finding]:
    """A cap in per cent of nodes that nobody can count lets none be lent; `batch` None: they could
    not be read."""
    for one in list_node_caps(config):
        total = one.total(batch or {}, config)
        if total:
            yield fine("caps", _told(one, total))
        elif isinstance(one.cap, Share):
            why = "is not known" if batch is None else "is 0"
            yield doubtful(
                "caps",
                f"{one.line}: of how many nodes {why}, and no more are lent while it is",
                "see to the line about batch nodes",
            )


def _told(one: NodeCap, total: int) -> str:
    most = min(most_of(one.cap, total), total)
    nodes = count_of(total, "batch node")
    return f"{one.line}: at most {most} of {nodes}, {100 * most / total:.3g} %"
