"""What the programs of the converter's contract differ in: their stages, and which nodes they move.

Choosing, claiming, journals, locks, hooks and results are the same for all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from dnm.converters.conversion import NodeConversion, Stage
from dnm.converters.select import Judged, SlurmFacts
from dnm.converters.settings import Settings

Deeds = list[tuple[str, str]]


def forgetting_all(stages: Sequence[Stage]) -> Callable[[NodeConversion], None]:
    """Returns what has all stages of a return run again in each call: of those that look what is
    there, each costs a request where nothing is to be done."""
    names = tuple(stage.name for stage in stages)
    return lambda conversion: conversion.book.reopen(names)


@dataclass(frozen=True)
class Program:
    """One program. `lending` and `returning` are its stages; from `touches` on, a stage of
    `lending`, only all of `returning` brings a node back. `check` raises `to_batch.AlreadyBack`
    where nothing has to be done."""

    lending: tuple[Stage, ...]
    touches: str
    check: Stage
    returning: tuple[Stage, ...]
    forget_what_is_undone: Callable[[NodeConversion], None]
    check_settings: Callable[[Settings], None]  # before anything is claimed
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
