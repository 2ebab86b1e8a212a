"""The eight invariants of dnm, and that of its history: a function for each, which yields
violations. `edges.py` and `judge_run` check 4 (unknown is not "no"), 7 (write, then act) and 8
(termination)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING

from dnm.lab.sandbox.queue_tree import ancestors
from dnm.model.config import Config
from dnm.model.errors import DnmError, RegistryError
from dnm.model.lent import Phase
from dnm.model.registry import Registry
from dnm.queues.yunikorn.ledger import Ledger, decode_ledger
from dnm.queues.yunikorn.quantities import parse_yunikorn
from dnm.queues.yunikorn.source import LEDGER_ANNOTATION
from dnm.queues.yunikorn.tree import parse_tree
from tests.builders import count_of
from tests.proof.history_check import check_history
from tests.proof.world import Held, World, read_limits

if TYPE_CHECKING:
    from tests.proof.edges import Weather
    from tests.proof.play import Host, Play, Ran


def check(play: Play) -> None:
    """Raises AssertionError if an invariant is violated now."""
    problems = [f"[{rule.__name__}] {text}" for rule in RULES for text in rule(play)]
    assert not problems, "\n".join(problems)


def readable(play: Play) -> Iterator[tuple[Host, Registry]]:
    for host in play.hosts:
        try:
            yield host, host.registry()
        except RegistryError:
            continue


def ledger_of(play: Play) -> Ledger | None:
    config_map = play.world.config_map
    if config_map is None:
        return None
    try:
        return decode_ledger(config_map.annotations.get(LEDGER_ANNOTATION, ""))
    except DnmError:
        return None


def cap(play: Play) -> Iterator[str]:
    """1. Lent nodes (registry, nodes with dnm's mark, running conversions) never exceed
    `max_converted_nodes`, nor a cap of a type or namespace. `edges.py` checks that dnm starts no
    conversion beyond a cap."""
    for host, registry in readable(play):
        if not host.has_old_registry:  # an old registry may name more than is lent
            yield from over_cap(host.config, registry, play.world)


def over_cap(config: Config, registry: Registry, world: World) -> Iterator[str]:
    """Yields each cap that is exceeded by the lent, marked and requested nodes together."""
    instance = config.instance_id
    lent = {name: (e.node_type, e.namespace) for name, e in registry.nodes.items()}
    for name, node in world.nodes.items():
        if node.mark is not None and node.mark.instance == instance:
            lent.setdefault(name, (node.mark.node_type, node.mark.namespace))
    claims = _claims(world, instance)
    for name, claim in claims.items():
        lent.setdefault(name, (world.machines[name].type, claim.namespace))
    kinds = list(lent.values())
    for request in registry.requests:
        # A marked node counts once, even if an older registry was restored. So does a node whose
        # conversion dnm resumed: its claim is from the call before.
        facts = {name for name in (*request.names, request.node) if name in lent}
        facts |= {name for name, claim in claims.items() if claim.request == request.id}
        kinds += [(request.node_type, request.namespace)] * (request.count - len(facts))
    if len(kinds) > count_of(config.max_converted_nodes):
        yield f"{instance} has {len(kinds)} nodes lent or requested"
    for node_type in config.node_types.values():
        count = sum(kind[0] == node_type.name for kind in kinds)
        if node_type.max_nodes is not None and count > count_of(node_type.max_nodes):
            yield f"{instance} has {count} of type {node_type.name}"
    for policy in config.namespaces.values():
        count = sum(kind[1] == policy.name for kind in kinds)
        if policy.max_nodes is not None and count > count_of(policy.max_nodes):
            yield f"{instance} has {count} for namespace {policy.name}"


def _claims(world: World, instance: str) -> dict[str, Held]:
    """Returns the nodes that the converter still claims for an instance. It omits those that
    administrators returned manually: resumed in Slurm, and deleted in Kubernetes."""
    if not world.reports_claims:
        return {}
    return {
        machine.name: machine.claim
        for machine in world.machines.values()
        if machine.claim and machine.claim.instance == instance and machine.place != "batch"
        if machine.node_name in ("", machine.name)
        if not machine.is_shared_manually or machine.name in world.nodes
    }


def capacity(play: Play) -> Iterator[str]:
    """2. Each queue's limit is its baseline plus the recorded size of exactly the nodes that serve
    it now."""
    ledger = ledger_of(play)
    if ledger is None:
        return
    claimed: dict[str, str] = {}
    for instance, section in ledger.sections.items():
        for nodes in section.queues.values():
            for node in nodes:
                if node in claimed and play.have_all_looked(node):
                    yield f"{node} is counted by {claimed[node]} and by {instance}"
                claimed[node] = instance
    if play.world.admin_wrote or read_limits(play.world.text) is None:
        return
    document = parse_tree(play.world.text)
    for place in document.places:
        entry = ledger.entries.get(place)
        now = parse_yunikorn(place.resource, document.places[place].text)
        lent = sum(
            size.get(place.resource, 0)
            for section in ledger.sections.values()
            if section.guaranteed or place.kind == "max"
            for queue, nodes in section.queues.items()
            if place.queue in ancestors(queue)
            for size in nodes.values()
        )
        if entry is None:
            if lent:
                yield f"{place} has {lent} lent and no baseline"
            continue
        wanted = parse_yunikorn(place.resource, entry.baseline) + lent
        if now == wanted or place in ledger.frozen:
            continue
        if now > wanted:
            # The queue's pods, or a queue below it, keep the limit up.
            used = play.world.used_at_write.get(place.queue, {}).get(place.resource, 0)
            below = [
                parse_yunikorn(p.resource, document.places[p].text)
                for p in document.places
                if p.queue.startswith(place.queue + ".") and p.resource == place.resource
            ]
            if now > max([used, *below]):
                yield f"{place} is {now}, {wanted} is expected, {used} are used"
        elif place.kind == "max":
            yield f"{place} is {now}, less than {wanted}"


def one_owner(play: Play) -> Iterator[str]:
    """3. A node is never offered to Slurm and to Kubernetes at once. dnm never drains, power-cycles
    or deletes a node with Slurm jobs. No node belongs to two instances."""
    yield from play.world.broken
    owners: dict[str, str] = {}
    for host, registry in readable(play):
        for name, entry in registry.nodes.items():
            if entry.owner == host.instance and entry.phase is Phase.SERVING:
                if name in owners and play.have_all_looked(name):
                    yield f"{name} serves for {owners[name]} and for {host.instance}"
                owners[name] = host.instance


def ours_only(play: Play) -> Iterator[str]:
    """5. dnm undoes only drains, cordons, taints, reservations and queue amounts with its own mark
    and instance id. `edges.py` judges that as well."""
    for name, owner in play.world.fences.items():
        if owner == "admin" and not play.world.nodes[name].is_cordoned:
            yield f"an administrator's cordon of {name} is gone"


def history(play: Play) -> Iterator[str]:
    """Yields changes of a registry that its history does not explain, whatever the fault was."""
    for host, _ in readable(play):
        if not host.has_old_registry:
            try:
                check_history(host.path)
            except AssertionError as error:
                yield f"{host.instance}: {error}"


RULES = (history, cap, capacity, one_owner, ours_only)


def judge_run(play: Play, host: Host, ran: Ran, weather: Weather) -> None:
    """Checks the effects of one run, given the reads that failed, and the state right after."""
    problems = []
    failed, effects = weather.failed, ran.effects
    if "nodes" in failed and effects:
        problems.append(f"4: acted without knowing the nodes: {effects}")
    if failed & {"pods", "all pods"} and "fence" in str(effects):
        problems.append(f"4: fenced a node without knowing its pods: {effects}")
    if ran.result is None or ran.result.outcome is None:
        assert not problems, problems
        return
    registry = ran.result.outcome.registry
    now = play.world.now + host.skew
    if ran.is_clean and host.skew.total_seconds() == 0:
        config = host.config
        longest = config.join_timeout + config.convert_timeout
        for name, entry in registry.nodes.items():
            if entry.phase is Phase.JOINING and entry.since + longest < now:
                problems.append(f"8: {name} has been joining since {entry.since}")
            if entry.phase is Phase.MOVING and entry.since + longest < now:
                problems.append(f"8: {name} has been moving since {entry.since}")
        for request in registry.requests:
            if request.since + 2 * longest < now:
                problems.append(f"8: request {request.id} is open since {request.since}")
    # Without a ledger and recorded limits, dnm waits for an administrator; when stopped, a run only
    # writes the Lease.
    is_complete = not (ran.result.plan.errors or ran.result.outcome.errors)
    if ran.is_clean and is_complete and "write" in effects:
        ledger = ledger_of(play)
        serving = {n: e.counted for n, e in registry.nodes.items() if e.phase is Phase.SERVING}
        section = ledger.sections.get(host.instance) if ledger else None
        queues = section.queues.values() if section else ()
        own_name = {"vcore": "cpu"}  # the ledger has YuniKorn's names
        counted = {
            node: {own_name.get(name, name): amount for name, amount in size.items()}
            for nodes in queues
            for node, size in nodes.items()
        }
        if counted != serving:
            problems.append(f"2: the ledger counts {sorted(counted)}, {sorted(serving)} serve")
    assert not problems, "\n".join(problems)


def rests(ran: Ran) -> None:
    """6. Checks that a run without a change in demand did nothing."""
    assert not ran.effects, f"{ran.host} acts in steady state: {ran.effects}"


def writes_nothing(play: Play, records: list[bytes]) -> None:
    """6. Checks that a run changed no registry, unless a queue used up its weekly hours."""
    for host, before in zip(play.hosts, records, strict=True):
        after = host.record()
        is_news = _queues_without_hours(before) != _queues_without_hours(after)
        assert is_news or after == before, f"{host.instance} writes in steady state: {after!r}"


def _queues_without_hours(record: bytes) -> set[str]:
    queues = json.loads(record or "{}").get("last_run", {}).get("queues", {})
    return {name for name, queue in queues.items() if queue["code"] == "HOURS_SPENT"}


def all_is_back(play: Play) -> None:
    """Checks the end of a history, when nothing is requested any more: no node is lent or lost, and
    the queue document is as the administrator wrote it."""
    world = play.world
    for host, registry in readable(play):
        assert not registry.nodes and not registry.requests, f"{host.instance}: {registry}"
    excused = world.astray_is_excused
    for machine in world.machines.values():
        is_lost = machine.place != "batch" and machine.name not in excused
        is_excused = any(host.has_old_registry for host in play.hosts)
        assert is_excused or not is_lost, f"{machine} is lost"
    text, wanted = world.text, world.manifest
    if text != wanted:
        now, later = parse_tree(text), parse_tree(wanted)
        assert {p: parse_yunikorn(p.resource, q.text) for p, q in now.places.items()} == {
            p: parse_yunikorn(p.resource, q.text) for p, q in later.places.items()
        }, f"{text}\n--- expected\n{wanted}"
