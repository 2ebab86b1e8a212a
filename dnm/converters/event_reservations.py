"""`--reserve` and `--unreserve`: reservations in Slurm before an event.

The invariant has three parts. **Each reservation has one node. It has no flag that ignores jobs or
other reservations. dnm deletes only reservations with this instance's name.** So Slurm refuses
nodes with jobs that may run into the event, ends no job for it, and plans other jobs around it.

If a node is reserved for this event, but from a later time, dnm moves that reservation to the
earlier time, in one call, before it tries other nodes. If Slurm refuses, nothing changes.

A node with a pause after a failure until the event begins is not reserved, since dnm could not lend
it. A node with a shorter pause, or with an unreadable journal, is the last choice."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Container, Iterable, Iterator, Sequence
from itertools import islice

from dnm.converters.claimed import Claimed, pause_end, read_claims
from dnm.converters.listing import Slurm, read_facts
from dnm.converters.marks import foreign_reason, plain_state
from dnm.converters.select import SlurmFacts
from dnm.converters.settings import Settings
from dnm.converters.slurm.commands import SlurmRefused
from dnm.converters.slurm.text import Reservation, SlurmNode
from dnm.model.calendar import is_late, is_occurrence, occurrence_of
from dnm.model.errors import ConverterError, ExitCode
from dnm.model.printable import printable

_FREE_FLAGS = frozenset(("PLANNED", "COMPLETING", "RESERVED"))


def reserve(options: argparse.Namespace, settings: Settings, slurm: Slurm) -> int:
    """Reserves nodes of a type and prints them. Returns 1 if there are too few."""
    _check_name(options.reserve, settings)
    facts = read_facts(slurm)
    claimed = read_claims(settings, facts, lambda text: print(printable(text), file=sys.stderr))
    nodes = list_candidates(facts, claimed, settings, options)
    left = options.num_nodes
    for node in reserve_nodes(slurm, nodes, list_late(facts, options, settings.instance), options):
        print(node, flush=True)
        left -= 1
    return ExitCode.FAILED if left else ExitCode.OK


def list_late(facts: SlurmFacts, options: argparse.Namespace, instance: str) -> frozenset[str]:
    """Returns the nodes that are reserved for this date of the event, but from a later time."""
    reserved = _nodes_of_occurrence(facts.reservations, options.reserve, instance)
    return frozenset(node for node, resv in reserved if is_late(resv.start, options.begins))


def _nodes_of_occurrence(
    reservations: Iterable[Reservation], name: str, instance: str
) -> Iterator[tuple[str, Reservation]]:
    """Yields each node that is reserved for one date of an event, with its reservation."""
    for resv in reservations:
        if len(resv.nodes) == 1 and occurrence_of(resv.name, resv.nodes[0], instance) == name:
            yield resv.nodes[0], resv


def reserve_nodes(
    slurm: Slurm, nodes: Sequence[str], late: Container[str], options: argparse.Namespace
) -> Iterator[str]:
    """Reserves as many of the nodes as were requested, and yields those that Slurm has granted."""
    late_first = sorted(nodes, key=lambda node: node not in late)
    reserved = (node for node in late_first if _reserve(slurm, node, late, options))
    return islice(reserved, options.num_nodes)


def _reserve(slurm: Slurm, node: str, late: Container[str], options: argparse.Namespace) -> bool:
    """Reserves the node, or moves its reservation if it is `late`; returns False if refused."""
    name = f"{options.reserve}-{node}"
    try:
        if node in late:
            slurm.move_reservation(name, options.begins, options.until)
        else:
            slurm.create_reservation(name, node, options.until, start=options.begins)
    except SlurmRefused as error:
        if "overlap" in error.answer or "busy" in error.answer or "uplicate" in error.answer:
            return False  # this node is not available then
        raise
    return True


def unreserve(options: argparse.Namespace, settings: Settings, slurm: Slurm) -> int:
    """Deletes the reservations for one date of an event, except those of nodes in `exclude`. Prints
    the nodes that had the deleted reservations."""
    _check_name(options.unreserve, settings)
    existing = slurm.read_reservations()
    for node, reservation in _nodes_of_occurrence(existing, options.unreserve, settings.instance):
        if node not in options.exclude:
            slurm.delete_reservation(reservation.name)
            print(node, flush=True)
    return ExitCode.OK


def _check_name(name: str, settings: Settings) -> None:
    if not is_occurrence(name, settings.instance):
        raise ConverterError(f"{name!r} is not an event reservation of {settings.instance}")


def list_candidates(
    facts: SlurmFacts, claimed: Claimed, settings: Settings, options: argparse.Namespace
) -> list[str]:
    """Returns the nodes of the type that are in service and that dnm could lend when the event
    begins. Idle nodes come first."""
    excluded = facts.in_own_reservations(settings.res_name) | options.exclude
    pauses = {
        name: until
        for name, journal in claimed.journals.items()
        if (until := pause_end(journal, settings.min_idle_seconds))
    }

    def is_last_choice(name: str) -> bool:
        return name in claimed.errors or pauses.get(name, facts.read_at) > facts.read_at

    of_type = [
        plain_state(settings.machines, node)
        for node in facts.nodes
        if settings.is_of_type(node.name, options.node_type)
        and node.name not in excluded
        and pauses.get(node.name, options.begins) <= options.begins
    ]
    usable = [node for node in of_type if _is_usable(node, settings)]
    usable.sort(key=lambda node: (is_last_choice(node.name), node.state.base != "IDLE", node.name))
    return [node.name for node in usable]


def _is_usable(node: SlurmNode, settings: Settings) -> bool:
    if foreign_reason(settings.machines, node):
        return False
    is_up = node.state.is_understood and node.state.base in ("IDLE", "ALLOCATED", "MIXED")
    return is_up and not node.state.flags - _FREE_FLAGS
