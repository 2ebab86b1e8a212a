"""Checks of properties that each decision and each record has, which tests apply in every case."""

from __future__ import annotations

from dnm.model.config import Config
from dnm.model.lent import LentNode, Phase
from dnm.model.reason import ReasonText
from dnm.model.verdict import NodeVerdict, QueueVerdict, Verdict
from dnm.plan import phases
from dnm.plan.facts import Facts, NodeTransition
from dnm.plan.new_requests import Conversions


def advance_node(config: Config, name: str, entry: LentNode, facts: Facts) -> NodeTransition:
    """Calls `phases.advance_node` and checks its result: the verdict names this node and is
    complete, a new phase begins now, and a failure has an error in record and verdict."""
    after = phases.advance_node(config, name, entry, facts)
    assert after.verdict.node == name
    _check_verdict(after.verdict)
    if after.entry is not None and after.entry.phase is not entry.phase:
        assert after.entry.since == facts.now
    if after.entry is not None and after.entry.phase is Phase.FAILED:
        assert after.verdict.verdict in (Verdict.FAILED, Verdict.WAIT, Verdict.KEEP)
        if entry.phase is not Phase.FAILED:
            assert after.verdict.verdict is Verdict.FAILED
            assert name in after.entry.error and after.verdict.detail == after.entry.error
    return after


def check_converted(after: Conversions) -> Conversions:
    """Checks that each queue's verdict names the queue and is complete. Returns the argument."""
    for queue, verdict in after.verdicts.items():
        assert verdict.queue == queue
        _check_verdict(verdict)
    return after


def _check_verdict(verdict: NodeVerdict | QueueVerdict) -> None:
    assert isinstance(verdict.verdict, Verdict) and isinstance(verdict.reason, ReasonText)
    assert isinstance(verdict.detail, str) and "None" not in verdict.detail
