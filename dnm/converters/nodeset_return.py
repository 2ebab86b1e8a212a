"""nodeset-convert, return: check, fence, drain, back, slurmd, return."""

from __future__ import annotations

from dnm.converters.charge import uncharge
from dnm.converters.claim import clear_marks, own_reservations, release, settle_drain
from dnm.converters.conversion import NodeConversion, Stage
from dnm.converters.marks import instances_on, refuse_other_instance
from dnm.converters.nodeset import FENCE, is_down_by_its_pod, why_not_back
from dnm.converters.nodeset_replicas import grow_in_turn, stateful_set
from dnm.converters.select import service_of
from dnm.converters.settings import Settings
from dnm.converters.standing_node import (
    CORDONED,
    fence,
    is_label_on,
    is_our_cordon,
    is_our_drain,
    is_resumed,
    label_of,
    own_annotations,
    read_own_node,
    undress,
)
from dnm.converters.to_batch import AlreadyBack, describe_undo, refuse_unknown, refuse_work
from dnm.converters.to_batch import drain as evict_all
from dnm.model.errors import ConverterError, KubeError, SlurmError
from dnm.model.slinky import OPERATOR_REASON


def check(conversion: NodeConversion) -> str:
    """Nothing is done to a node that Slurm works on, that is not ours, or that can't be judged."""
    slurm_node = conversion.read_node()
    jobs = conversion.patiently(lambda: conversion.slurm.read_jobs_on(conversion.node))
    refuse_other_instance(conversion.settings, slurm_node)
    node = read_own_node(conversion)
    reservations = own_reservations(conversion)
    # The reservation may have ended before another's, and the pod's end has put a Reason of its own
    # in the place of our drain's: then what is left is the mark in Comment or Extra.
    is_marked = conversion.settings.instance in instances_on(slurm_node)
    is_ours = bool(reservations) or is_marked or is_resumed(conversion)
    has_slurmd = is_label_on(conversion, node)
    in_service = service_of(slurm_node, jobs, reservations[0].name if reservations else "")
    if has_slurmd and not is_ours:
        raise AlreadyBack(f"slurmd runs on it ({slurm_node.state.text}): nothing is done to it")
    if has_slurmd:
        return f"slurmd comes back or has come: {slurm_node.state.text}"
    refuse_work(slurm_node, len(jobs), in_service)
    refuse_unknown(slurm_node, in_service)
    if not is_ours:
        raise ConverterError(
            f"{conversion.node} is not lent by '{conversion.settings.instance}': no reservation "
            f"{conversion.reservation}, no mark of ours; nothing is done"
        )
    return f"lent: {slurm_node.state.text}"


def drain(conversion: NodeConversion) -> str:
    """Evicts what is left, but for what belongs there; not where slurmd may be back already."""
    node = read_own_node(conversion)
    return "slurmd comes back" if is_label_on(conversion, node) else evict_all(conversion)


def back(conversion: NodeConversion) -> str:
    """Gives the Node the NodeSet's label again, and takes off all that lending has put on it: also
    our cordon, or no pod of slurmd would come. All of it goes in one change: a cordon after that is
    not ours."""
    node = read_own_node(conversion)
    labels, taints = undress(conversion, node)
    annotations = own_annotations(node)
    if is_label_on(conversion, node) and not labels and not annotations:
        conversion.book.remember({CORDONED: ""})
    if node.is_cordoned and not is_our_cordon(conversion, node):
        raise ConverterError(
            f"{conversion.node} is cordoned by an administrator, and no slurmd comes to a cordoned "
            f"node: 'kubectl uncordon {conversion.node}', then repeat"
        )
    key, value = label_of(conversion.settings)
    uncharge(conversion)  # the new pod's record takes the drain off
    conversion.kube.node_sets.change(
        node,
        {**labels, key: value},
        [*taints, FENCE],
        is_uncordoned=True,
        annotations=annotations,
    )
    conversion.book.remember({CORDONED: ""})
    return f"label {key} put on"


def slurmd(conversion: NodeConversion) -> str:
    """A pod is Ready on the Node, and the operator and Slurm both have it idle. The pod before had
    Slurm take it for down, and the operator lifts that only where the new one is called otherwise:
    in StatefulSet mode we do."""

    node_set = stateful_set(conversion)

    def look() -> str:
        if node_set:
            grow_in_turn(conversion, node_set)
        pods = conversion.kube.node_sets.read_pods(conversion.node)
        if why := why_not_back(conversion.node, pods):
            return why
        node = conversion.slurm.read_node(conversion.node)
        is_back = "NOT_RESPONDING" not in node.state.flags
        is_lifted = is_down_by_its_pod(node.reason) or is_our_drain(conversion, node)
        if is_back and node.state.base == "DOWN" and is_lifted:
            conversion.slurm.resume(conversion.node, {})
            return "Slurm is told that its slurmd is back"
        is_usable = node.state.base in ("IDLE", "MIXED", "ALLOCATED")
        if not (is_usable and is_back):
            return f"Slurm has it {node.state.text} {node.reason}".rstrip()
        return ""

    conversion.wait_until(look, conversion.settings.boot_timeout_seconds, (KubeError, SlurmError))
    found = conversion.run_hook("health", conversion.settings.stage_timeout_seconds)
    return "slurmd is back" + ("" if found else ", no hook health")


def hand_over(conversion: NodeConversion) -> str:
    """The drain is settled, then the reservation goes. slurm-operator may have lifted ours, and
    lifts none with another's Reason. The fence stays: it says that Slurm has the machine."""
    node = conversion.read_node()
    note = settle_drain(conversion, node, is_our_drain(conversion, node), OPERATOR_REASON)
    clear_marks(conversion)
    release(conversion)
    return note


RETURNING = (
    Stage("fence", fence),
    Stage("drain", drain),
    Stage("back", back),
    Stage("slurmd", slurmd),
    Stage("return", hand_over),
)


def describe_return(settings: Settings, node: str) -> list[tuple[str, str]]:
    """What a return would do: (stage, command or deed)."""
    key, value = label_of(settings)
    return [
        ("check", f"scontrol -a -o show node {node}; squeue -a -h -w {node}"),
        ("fence", f"taint node {node} {FENCE.key}=:NoSchedule"),
        ("drain", f"cordon {node}, evict its pods"),
        ("back", f"label node {node} {key}={value}; uncordon"),
        ("slurmd", "in StatefulSet mode: one replica more"),
        ("slurmd", "wait until slurmd's pod is Ready and Slurm has the node idle"),
        *describe_undo(settings, node, "return"),
    ]
