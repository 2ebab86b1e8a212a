"""The checks of Slurm's nodes for `dnm check`: lendable nodes of each type, caps, excluded nodes,
nodes that are claimed (reserved by a converter) but not lent, and charged accounts."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from importlib.util import find_spec
from shlex import quote

from dnm.checks.findings import Finding, doubtful, fine, looks_at, skipped, wrong
from dnm.converter.contract import LEAVE_DRAINED
from dnm.converter.node_convert import NodeConvert
from dnm.model.batch import BatchClaim, BatchList, BatchNode
from dnm.model.config import Config
from dnm.model.errors import DnmError
from dnm.model.hostlist import fold_hostlist
from dnm.model.lent import Phase
from dnm.model.printable import count_of
from dnm.model.registry import Registry
from dnm.model.share import Floor, Share, most_of
from dnm.model.value import Unreadable
from dnm.plan.cap_shares import NodeCap, list_node_caps
from dnm.plan.facts import has_stopped
from dnm.plan.rule import excluded_nodes
from dnm.plan.supply import Supply, supply_now


@looks_at("batch nodes")
def check_batch_nodes(
    config: Config, registry: Registry, environ: Mapping[str, str]
) -> Iterator[Finding]:
    """Checks that the converter can list Slurm's nodes. With that list, checks caps, exclusions,
    claims, and how many nodes of each type can be lent."""
    program = config.node_convert_path
    if not program.exists():
        yield skipped(f"they need the converter {program}")
        return
    listed = NodeConvert(config, environ).list_nodes()
    if isinstance(listed, Unreadable):
        yield wrong(
            listed.error,
            f"run '{quote(str(program))} --list'; if the converter has no list, add one, or "
            "install Slurm's commands on this host (docs/node-convert.md)",
        )
        yield from check_caps(config, None)
        return
    now = datetime.now(UTC)
    yield from check_caps(config, listed.nodes)
    yield from map(_judge_supply, supply_now(config, registry, listed.nodes, now))
    yield from check_exclusions(config, registry, listed, now)
    yield from check_claims(config, registry, listed.nodes)
    yield from check_faults(config, listed)
    yield from check_charges(config, registry, listed, environ)


def _judge_supply(supply: Supply) -> Finding:
    name = supply.node_type
    if not supply.listed:
        return doubtful(
            f"the converter lists no node of the type {name}",
            "correct the type or its name_prefix; 'node-convert --list' shows all",
        )
    if not supply.lendable:
        return doubtful(
            f"none of {count_of(supply.listed, 'node')} of the type {name} can be lent now",
            "'dnm nodes' shows why not",
        )
    return fine(supply.sentence)


@looks_at("caps")
def check_caps(config: Config, batch: Mapping[str, BatchNode] | None) -> Iterator[Finding]:
    """Checks the caps on the number of lent nodes. Warns of a cap in percent if it is unknown of
    how many nodes: no node is lent then. `batch` is None if Slurm's nodes are unreadable."""
    for node_cap in list_node_caps(config):
        total = node_cap.total(batch or {}, config)
        if total:
            yield fine(_cap_sentence(node_cap, total, _floors_leave(node_cap, config, batch or {})))
        elif isinstance(node_cap.cap, Share):
            why = "is not known" if batch is None else "is 0"
            yield doubtful(
                f"{node_cap.line}: the number of nodes {why}, so that dnm lends no more",
                "fix the finding about batch nodes",
            )


def _cap_sentence(node_cap: NodeCap, total: int, left: int) -> str:
    most = min(most_of(node_cap.cap, total), total)
    nodes = count_of(total, "batch node")
    less = f"; batch_floor leaves {left} of them" if left < most else ""
    return f"{node_cap.line}: at most {most} of {nodes}, {100 * most / total:.3g} %{less}"


def _floors_leave(node_cap: NodeCap, config: Config, batch: Mapping[str, BatchNode]) -> int:
    """Returns how many of the nodes under a cap could be lent if all were idle. Each type and
    partition may have a floor, the number of nodes that must stay in Slurm."""
    types = {name: config.type_of(name) for name in batch}
    count = Counter(of for of in types.values() if of in node_cap.node_types)
    floors = {of: config.floor_of(of) or Floor() for of in node_cap.node_types}
    left = [sum(max(0, count[of] - floor.of(count[of])) for of, floor in floors.items())]
    for partition, floor in config.partition_floors.items():
        there = [types[name] for name, node in batch.items() if partition in node.partitions]
        capped = sum(of in node_cap.node_types for of in there)
        spare = max(0, len(there) - floor.of(len(there)))
        left.append(count.total() - capped + min(capped, spare))
    return min(left)


_LONGEST = 200  # characters of a list of nodes


@looks_at("exclusions")
def check_exclusions(
    config: Config, registry: Registry, listed: BatchList, now: datetime
) -> Iterator[Finding]:
    """Checks that exclusions and holds match nodes, and that the converter can exclude nodes."""
    why = excluded_nodes(config, registry, listed.nodes, now)
    out = [name for name in why if name in listed.nodes]
    yield from _unknown_words(config, listed)
    named = {*registry.excluded, *registry.held}
    if missing := named - listed.nodes.keys() - registry.nodes.keys():
        yield doubtful(
            f"`dnm hold` or `dnm exclude` names {_short(missing)}, which the converter does not "
            "list",
            "correct the names with 'dnm unhold' or 'dnm unexclude'; 'dnm nodes' shows all",
        )
    if out and not listed.leaves_out:
        yield doubtful(
            f"the converter has no option to exclude {count_of(len(out), 'node')}: dnm calls it "
            "for each node by name",
            "add --exclude to the converter and to its list (docs/node-convert.md)",
        )
    elif out:
        yield fine(f"{count_of(len(out), 'node')}: {_short(out)}; `dnm nodes` has the reasons")


def _unknown_words(config: Config, listed: BatchList) -> Iterator[Finding]:
    """Reports entries of exclude_nodes that match no node."""
    rows = listed.nodes.values()
    if missing := config.exclude_nodes - listed.nodes.keys():
        yield doubtful(
            f"exclude_nodes names {_short(missing)}, which the converter does not list",
            "correct the names; 'dnm nodes' shows all",
        )
    rules = (
        ("partition", config.exclude_partitions, [row.partitions or None for row in rows]),
        ("feature", config.exclude_features, [row.features for row in rows]),
        ("reservation", config.exclude_reservations, [row.reservations for row in rows]),
    )
    for kind, named, there in rules:
        silent = sum(has is None for has in there)
        if named and silent:
            yield doubtful(
                f"exclude_nodes names a {kind}, and the converter does not report the {kind} of "
                f"{count_of(silent, 'node')}: these are not lent",
                "add it to the converter's list (docs/node-convert.md), or remove the entry",
            )
        existing = {word for has in there for word in has or ()}
        for word in named:
            if word not in existing and kind != "reservation":  # it may be created later
                yield doubtful(
                    f"exclude_nodes names {kind} {word}, which no node has", "correct the name"
                )


def _short(names: Iterable[str]) -> str:
    text = fold_hostlist(names)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


@looks_at("claims")
def check_claims(
    config: Config, registry: Registry, listed: Mapping[str, BatchNode]
) -> Iterator[Finding]:
    """Reports nodes that a converter has claimed in Slurm if it has ended and they are not lent."""
    findings = [
        finding
        for name, row in sorted(listed.items())
        if row.claim is not None
        and (finding := _judge_claim(config, registry, name, row.claim)) is not None
    ]
    reporting = [name for name, row in listed.items() if row.reports_claim]
    findings += [
        wrong(f"{name} {claim.why}")
        for name, claim in sorted(registry.claimed.items())
        if name not in reporting
    ]
    yield from findings
    if not findings and reporting:
        yield fine("every claimed node is lent, or its converter is at work")
    elif not findings:
        yield skipped("the converter does not report its claims")


def _judge_claim(
    config: Config, registry: Registry, name: str, claim: BatchClaim
) -> Finding | None:
    if not claim.instance and name in registry.nodes:  # a person converted it, and it was adopted
        return None
    if not claim.instance:
        return doubtful(
            f"{name} has a converter's reservation without a mark",
            "if no other instance converts it now, and Kubernetes has no such Node, delete the "
            "reservation in Slurm",
        )
    if claim.instance != config.instance_id or claim.is_at_work:
        return None
    if claim.error and not claim.direction:
        return wrong(f"{name}: {claim.error}")
    entry = registry.nodes.get(name)
    is_recorded = entry is not None and not (entry.phase is Phase.JOINING and has_stopped(claim))
    is_awaited = claim.request in {request.id for request in registry.requests}
    if is_recorded or (is_awaited and not has_stopped(claim)):
        return None
    use = f" for namespace {claim.namespace}" if claim.namespace else ""
    stopped = "no converter continues" if claim.direction else "dnm has not recorded it"
    error = f": {claim.error}" if claim.error else ""
    return wrong(
        f"{name} is claimed{use}, and {stopped}{error}",
        "the next `dnm run` continues or returns it, and `dnm plan` shows which; "
        f"to return it manually, run '{config.node_convert_path} --set batch --node-name {name}'",
    )


_PAGE = "docs/accounting.md"


@looks_at("accounting")
def check_charges(
    config: Config, registry: Registry, listed: BatchList, environ: Mapping[str, str]
) -> Iterator[Finding]:
    """Checks the Slurm accounts that pay for lent nodes. Yields nothing if no account is named and
    the converter cannot charge accounts."""
    named = _accounts(config, registry)
    if not named and listed.charges:
        yield fine(
            "sreport has the hours of lent nodes as Down; with charge_account = - in "
            f"[namespace:NAME] they are planned ({_PAGE})"
        )
    elif named and not listed.charges:
        yield doubtful(
            f"{named[0]} is to be charged, and the converter can't: sreport has lent nodes as Down",
            "it needs a slurmdbd and Slurm's commands (slurmrestd cannot do it); a site's own "
            f"converter must name --account in its list ({_PAGE})",
        )
    elif named:
        yield fine("sreport has lent nodes as planned, charged to " + ", ".join(named))
        yield from _unknown_accounts(named, environ)
        yield from _uncharged(registry, listed)


def _accounts(config: Config, registry: Registry) -> list[str]:
    """Returns the distinct Slurm accounts that namespaces and orders name to pay for lent nodes."""
    named = [namespace.charge_account for namespace in config.namespaces.values()]
    return list(
        dict.fromkeys(filter(None, (*named, *(order.account for order in registry.orders))))
    )


def _unknown_accounts(named: list[str], environ: Mapping[str, str]) -> Iterator[Finding]:
    """Reports named accounts that Slurm does not know, if Slurm's commands are installed."""
    if not (find_spec("dnm.converters") and shutil.which("sacctmgr", path=environ.get("PATH"))):
        return
    from dnm.converters.sreport import knows_account

    for name in named:
        try:
            exists = name == "-" or knows_account(environ, name)
        except DnmError as error:
            yield doubtful(f"whether Slurm has the account {name} is unknown: {error}")
            return
        if not exists:
            yield doubtful(
                f"Slurm has no account {name}: its lent nodes are Down in sreport, not charged",
                f"sacctmgr add account {name}, or correct the name",
            )


def _uncharged(registry: Registry, listed: BatchList) -> Iterator[Finding]:
    for name, entry in sorted(registry.nodes.items()):
        row = listed.nodes.get(name)
        there = row.claim.account if row is not None and row.claim is not None else ""
        if entry.account and there != entry.account.lower():
            yield doubtful(
                f"{name} is lent for {entry.account}, and Slurm charges {there or 'no account'}",
                "the converter's lines in the log of that lend show why; it is charged when it is "
                "lent again",
            )


@looks_at("fault_conditions")
def check_faults(config: Config, listed: BatchList) -> Iterator[Finding]:
    """Reports a converter that would resume a faulty node because it can't leave a node drained."""
    if config.fault_conditions and not listed.leaves_drained:
        yield wrong(
            f"the converter has no option {LEAVE_DRAINED}: dnm empties a faulty node, and it stays "
            "lent",
            "add the option to the converter and to its list (docs/json.md), or "
            "remove fault_conditions",
        )
