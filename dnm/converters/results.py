"""What came of a conversion, as a call reports it."""

from __future__ import annotations

from datetime import datetime

from dnm.converters.journal import Journal, StageMark
from dnm.model.value import Value

SCHEMA = "node-convert.result/1"


class StageResult(Value, frozen=True):
    stage: str
    seconds: float
    result: str  # ok | failed | interrupted


class NodeResult(Value, frozen=True):
    """`skipped`: nothing was done, or nothing had to be."""

    node: str
    result: str  # ok | failed | skipped
    error: str = ""
    stages: tuple[StageResult, ...] = ()


def stages_of(journal: Journal, began: datetime) -> tuple[StageResult, ...]:
    """Returns, of this call, each stage with the time from its line before to its line after."""
    found: list[StageResult] = []
    begun: dict[str, datetime] = {}
    for line in journal.lines:
        if line.at < began:
            continue
        if line.mark is StageMark.BEGUN:
            begun[line.stage] = line.at
            continue
        seconds = (line.at - begun.pop(line.stage, line.at)).total_seconds()
        result = "ok" if line.mark is StageMark.DONE else "failed"
        found.append(StageResult(stage=line.stage, seconds=round(seconds, 3), result=result))
    found += [StageResult(stage=stage, seconds=0, result="interrupted") for stage in begun]
    return tuple(found)
