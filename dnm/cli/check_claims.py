"""What `dnm check` says of nodes that are claimed and not lent: conversions that stopped in the
middle, journals that can't be read, reservations that nobody has marked."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from dnm.cli.findings import Finding, doubtful, fine, skipped, wrong
from dnm.model.batch import BatchClaim, BatchNode
from dnm.model.config import Config
from dnm.model.lent import Phase
from dnm.model.registry import Registry

_CHECK = "claims"


def check_claims(
    config: Config, registry: Registry, listed: Mapping[str, BatchNode]
) -> Iterator[Finding]:
    """Every claim that no lent node and no converter at work stands behind, with the next step."""
    found = [
        finding
        for name, row in sorted(listed.items())
        if row.claim is not None
        and (finding := _judge(config, registry, name, row.claim)) is not None
    ]
    told = [name for name, row in listed.items() if row.tells_claim]
    found += [
        wrong(_CHECK, f"{name} {one.why}")
        for name, one in sorted(registry.claimed.items())
        if name not in told
    ]
    yield from found
    if not found and told:
        yield fine(_CHECK, "every node that is claimed is lent, or its converter is at work")
    elif not found:
        yield skipped(_CHECK, "the converter does not tell what it has claimed")


def _judge(config: Config, registry: Registry, name: str, claim: BatchClaim) -> Finding | None:
    if not claim.instance:
        return doubtful(
            _CHECK,
            f"{name} is reserved as a converter would do it, and nobody has marked it",
            "if no other instance is about to convert it, delete that reservation in Slurm",
        )
    if claim.instance != config.instance_id or claim.is_at_work:
        return None
    if claim.error and not claim.direction:
        return wrong(_CHECK, f"{name}: {claim.error}")
    entry = registry.nodes.get(name)
    is_recorded = entry is not None and not (entry.phase is Phase.JOINING and claim.is_interrupted)
    is_awaited = claim.request in {request.id for request in registry.requests}
    if is_recorded or (is_awaited and not claim.is_interrupted):
        return None
    whom = f" for namespace {claim.namespace}" if claim.namespace else ""
    stopped = "nobody goes on with its conversion" if claim.direction else "dnm has no record of it"
    why = f": {claim.error}" if claim.error else ""
    return wrong(
        _CHECK,
        f"{name} is claimed{whom}, and {stopped}{why}",
        "the next `dnm run` goes on with it or returns it, and `dnm plan` says which; "
        f"by hand, '{config.node_convert_path} --set batch --node-name {name}' returns it",
    )
