"""The programs of the converter's contract that dnm ships, by what they move."""

from __future__ import annotations

from collections.abc import Sequence

from dnm.converters import to_batch, to_k8s
from dnm.converters.machines import Machines
from dnm.converters.program import Program
from dnm.converters.select import Judged, SlurmFacts, judge_nodes
from dnm.converters.settings import Settings


def program_of(machines: Machines) -> Program:
    """Returns the program that moves such machines."""
    if machines is Machines.PODS:
        from dnm.converters.nodeset_program import NODESET_CONVERT

        return NODESET_CONVERT
    if machines is Machines.BRIDGED:
        from dnm.converters.bridge_program import BRIDGE_CONVERT

        return BRIDGE_CONVERT
    return NODE_CONVERT


def _judge_by_slurm(facts: SlurmFacts, settings: Settings) -> Sequence[Judged]:
    return judge_nodes(facts, settings.rules())


NODE_CONVERT = Program(
    lending=to_k8s.STAGES,
    touches=to_k8s.FIRST_IRREVERSIBLE,
    check=to_batch.CHECK,
    returning=to_batch.STAGES,
    forget_what_is_undone=to_batch.forget_what_is_undone,
    check_settings=to_k8s.check_hooks,
    judge=_judge_by_slurm,
    describe_lending=to_k8s.describe,
    describe_return=to_batch.describe,
)
