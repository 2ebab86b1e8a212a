"""Tests that `--list` shows by a drain's Reason which instance or administrator set it."""

from __future__ import annotations

import json

import pytest

from dnm.converters.claim import _marks
from dnm.converters.claimed import _claim_of
from dnm.converters.journal import Direction
from dnm.converters.listing import list_as_json, list_as_text, with_reasons
from dnm.converters.marks import other_instance, reason_of_drain, slurm_reason_of
from dnm.converters.select import SlurmFacts, judge_nodes
from dnm.converters.settings import Settings
from dnm.converters.slurm.text import Reservation
from dnm.model.batch import BatchClaim
from tests.converters.played import a_journal
from tests.converters.test_select import NOW, node

OWN = Settings(instance="prod", mark_reason="lent to Kubernetes")
CLAIMED, FOREIGN = BatchClaim(instance="prod"), BatchClaim(instance="other")
WORDS = "lent to Kubernetes"


@pytest.mark.parametrize(
    ("state", "reason", "is_claimed", "instance"),
    [
        pytest.param("IDLE+DRAIN", "dnm:prod lent op=1", True, "prod", id="this-instance"),
        pytest.param("IDLE+DRAIN", "dnm:prod : Not responding", False, "prod", id="it-grew"),
        pytest.param("IDLE+DRAIN", "dnm:other op=1", False, "other", id="another-instance's"),
        pytest.param("IDLE+DRAIN", "bad disk", True, "", id="an-administrator's"),
        pytest.param("IDLE+DRAIN", "see dnm:prod", True, "", id="names-us-later"),
        pytest.param("IDLE+DRAIN", "lent to Kubernetes", True, "prod", id="the-script-before"),
        pytest.param("IDLE+DRAIN", "lent to Kubernetes", False, "", id="its-words-unclaimed"),
        pytest.param("DOWN", "Not responding", False, "", id="down"),
        pytest.param("IDLE+FAIL", "fan", False, "", id="failed"),
        pytest.param("IDLE", "old", True, None, id="left-over-on-one-in-service"),
        pytest.param("DOWN+DRAIN", "", True, None, id="none"),
    ],
)
def test_recognises_the_instance_of_a_reason(
    state: str, reason: str, is_claimed: bool, instance: str | None
) -> None:
    slurm_node = node(state=state, reason=reason, reason_by="root", reason_at=NOW)
    slurm_reason = slurm_reason_of(OWN, slurm_node, is_claimed)
    assert (slurm_reason and slurm_reason.instance) == instance
    if slurm_reason is not None:
        assert slurm_reason.line == f"{reason} [root@2026-11-20T12:00:00Z]"


def test_leftover_reason_in_service_is_no_mark() -> None:
    slurm_nodes = [node(state=state, reason="dnm:other op=1") for state in ("IDLE+DRAIN", "IDLE")]
    assert [other_instance(OWN, slurm_node) for slurm_node in slurm_nodes] == ["other", ""]
    assert [reason_of_drain(slurm_node) for slurm_node in slurm_nodes] == ["dnm:other op=1", ""]


def test_leftover_mark_does_not_change_the_owner() -> None:
    """An administrator lifted the drain of an instance; the instance's mark in Comment stayed."""
    marks = {"comment": "dnm:west op1", "extra": "dnm:prod 2"}
    own, theirs, left = (
        node(state=state, reason=reason, has_last_busy=True, **marks)
        for state, reason in (
            ("IDLE+DRAIN", "dnm:prod op=2"), ("DOWN+DRAIN", "bad fan"), ("IDLE+RESERVED", "")
        )
    )  # fmt: skip
    assert [other_instance(OWN, slurm_node) for slurm_node in (own, theirs, left)] == [
        "",
        "west",
        "west",
    ]
    journal = a_journal(direction=Direction.BATCH)
    claims = [_claim_of(slurm_node, {"a001"}, journal) for slurm_node in (own, theirs, left)]
    assert [claim.instance for claim in claims if claim] == ["prod"] * 3
    west = _claim_of(theirs, {"a001"}, None)
    assert west is not None and west.instance == "west"


@pytest.mark.parametrize(
    ("comment", "extra", "written"),
    [
        ("", "", {"comment": "x"}), ("rack 7", "", {"extra": "x"}), ("rack 7", "spare", {}),
        ("dnm:west op1", "", {"comment": "x"}), ("rack 7", "dnm:west op1", {"extra": "x"}),
        ("dnm:west op1", "dnm:prod 1", {"comment": "x", "extra": ""}),
    ],
)  # fmt: skip
def test_mark_uses_a_free_field_and_clears_old_marks(
    comment: str, extra: str, written: dict[str, str]
) -> None:
    slurm_node = node(comment=comment, extra=extra, has_last_busy=True)
    assert _marks(slurm_node, "x") == written
    older = node(comment=comment, extra=extra, has_last_busy=False)
    assert _marks(older, "x") == {key: text for key, text in written.items() if key != "extra"}


@pytest.mark.parametrize(
    ("reason", "claims", "instance", "added"),
    [
        pytest.param("bad disk", {"a001": CLAIMED}, "", True, id="of-a-claimed-node"),
        pytest.param("dnm:prod op=1", {"a001": CLAIMED}, "prod", False, id="our-own"),
        pytest.param(WORDS, {"a001": CLAIMED}, "prod", False, id="the-script-before"),
        pytest.param(WORDS, {"a001": FOREIGN}, "", True, id="its-words-on-another's"),
        pytest.param("bad disk", {}, "", False, id="of-a-node-of-slurm's"),
    ],
)
def test_list_shows_a_drain_without_the_mark_of_dnm(
    reason: str, claims: dict[str, BatchClaim], instance: str, added: bool
) -> None:
    drained = node(state="IDLE+DRAIN+RESERVED", reason=reason, reason_by="root")
    held = Reservation(name="k8s-a001", start=None, end=None, nodes=("a001",))
    facts = SlurmFacts(nodes=(drained,), jobs=(), reservations=(held,), read_at=NOW)
    judged = with_reasons(judge_nodes(facts, Settings()), claims, OWN)
    text = list_as_text(judged, (), OWN, "")
    assert (f"; drained outside dnm: {reason} [root]" in text) is added
    (row,) = json.loads(list_as_json(judged, claims))["nodes"]
    message = row["slurm_reason"]
    assert (message["text"], message["by"], message["instance"]) == (reason, "root", instance)
