"""The table of the programs of the converter's contract: what each does with its machines, and
which nodes it moves.

Choosing, claiming, journals, locks, hooks and results are the same for all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from dnm.converters import to_batch, to_k8s
from dnm.converters.conversion import NodeConversion, Stage, check_hooks
from dnm.converters.kube_side import KubeSide
from dnm.converters.machines import Machines
from dnm.converters.select import Judged, SlurmFacts, judge_nodes
from dnm.converters.settings import Settings
from dnm.model.errors import KubeError
from dnm.model.value import Unreadable

Deeds = list[tuple[str, str]]


@dataclass(frozen=True)
class Program:
    """One program. `lending` and `returning` are its stages; from `touches` on, a stage of
    `lending`, only all of `returning` brings a node back. `check` raises `to_batch.AlreadyBack`
    where nothing has to be done. `judge` returns every node with its verdict; it raises
    KubeError."""

    lending: tuple[Stage, ...]
    touches: str
    check: Stage
    returning: tuple[Stage, ...]
    forget_what_is_undone: Callable[[NodeConversion], None]
    check_settings: Callable[[Settings], object]  # before anything is claimed
    judge: Callable[[SlurmFacts, Settings], Sequence[Judged]]
    describe_lending: Callable[[Settings, str, str], Deeds]
    describe_return: Callable[[Settings, str], Deeds]

    @property
    def claiming(self) -> tuple[Stage, ...]:
        """The stages before anything of the node itself is touched."""
        return self.lending[: [stage.name for stage in self.lending].index(self.touches)]

    def has_touched(self, conversion: NodeConversion) -> bool:
        """Whether a conversion got so far that lifting the drain does not bring the node back."""
        return conversion.journal.has_begun(self.touches)


def program_of(machines: Machines) -> Program:
    """Returns the program that moves such machines; what only another one needs isn't loaded."""
    return _TABLE[machines]()


def _node_convert() -> Program:
    return Program(
        lending=to_k8s.STAGES,
        touches=to_k8s.FIRST_IRREVERSIBLE,
        check=to_batch.CHECK,
        returning=to_batch.STAGES,
        forget_what_is_undone=to_batch.forget_what_is_undone,
        check_settings=lambda settings: check_hooks(settings, *to_k8s.HOOKS),
        judge=lambda facts, settings: judge_nodes(facts, settings, settings.read_order()),
        describe_lending=to_k8s.describe,
        describe_return=to_batch.describe,
    )


def _nodeset_convert() -> Program:
    from dnm.converters import nodeset_stages
    from dnm.converters.standing_node import label_of

    return _standing(nodeset_stages, label_of, _judge_pods)


def _bridge_convert() -> Program:
    """Slurm and Kubernetes say all that it needs of settings."""
    from dnm.converters import bridge_stages

    return _standing(bridge_stages, lambda settings: None, _judge_bridged)


def _standing(
    of: Any,
    check_settings: Callable[[Settings], object],
    judge: Callable[[SlurmFacts, Settings], Sequence[Judged]],
) -> Program:
    """A program whose machines are always Nodes, of the module of its stages. All stages of a
    return run again in each call: of those that look what is there, each costs a request where
    nothing is to be done."""
    names = tuple(stage.name for stage in of.RETURNING)
    return Program(
        lending=of.LENDING,
        touches=of.TOUCHES,
        check=Stage("check", of.check),
        returning=of.RETURNING,
        forget_what_is_undone=lambda conversion: conversion.book.reopen(names),
        check_settings=check_settings,
        judge=judge,
        describe_lending=of.describe_lending,
        describe_return=of.describe_return,
    )


_TABLE: dict[Machines, Callable[[], Program]] = {
    Machines.OWN: _node_convert,
    Machines.PODS: _nodeset_convert,
    Machines.BRIDGED: _bridge_convert,
}


def _judge_pods(facts: SlurmFacts, settings: Settings) -> Sequence[Judged]:
    """By Slurm as ever, and by what Kubernetes says of the pods of slurmd."""
    from dnm.converters.nodeset import OnNode, SlurmdPod, judge_places
    from dnm.converters.standing_node import label_of

    label = label_of(settings)
    kube = KubeSide(settings)
    nodes = kube.read_nodes()
    if isinstance(nodes, Unreadable):
        raise KubeError(nodes.error)
    pods, sets = kube.node_sets.read_pods(), kube.node_sets.read_sets()
    by_name = {node.name: node for node in nodes}
    on: dict[str, list[SlurmdPod]] = {}
    for pod in pods:
        on.setdefault(pod.node, []).append(pod)
    places = {
        one.name: OnNode(node=by_name.get(one.name), pods=on.get(one.name, ()), sets=sets)
        for one in facts.nodes
    }
    return judge_places(judge_nodes(facts, settings, settings.read_order()), places, label)


def _judge_bridged(facts: SlurmFacts, settings: Settings) -> Sequence[Judged]:
    """By Slurm as ever, by what Kubernetes says of them, and those that are lent, of which Slurm
    has no record."""
    from dnm.converters.bridge import judge_bridged

    at = {one.node.name: one for one in KubeSide(settings).bridge.read_nodes()}
    return judge_bridged(judge_nodes(facts, settings, settings.read_order()), at)
