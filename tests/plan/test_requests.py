"""Tests of lend requests: which joined nodes belong to a request, and when dnm gives it up."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from dnm.model.batch import BatchClaim
from dnm.model.lent import Ended, Phase, RequestEnd
from dnm.model.node import Mark
from dnm.model.registry import Registry
from dnm.plan.facts import Facts
from dnm.plan.requests import advance_request, advance_requests
from tests.builders import NOW, QUEUE, a_batch_node, a_config, a_node, a_request, facts
from tests.plan.worlds import CONVERTER, LONG_AGO

NEW = a_node("a002", mark=None)


@pytest.mark.parametrize(
    ("request_", "seen", "joined", "left"),
    [
        pytest.param(a_request(ended=True), facts([NEW]), {"a002"}, None, id="label and name"),
        pytest.param(a_request(ended=True, names=("a009",)), facts([]), {"a009"}, None,
            id="named, joining"),
        pytest.param(a_request(ended=True, names=("x9",)),
            facts([], [a_batch_node("x9", in_service=False)]), {"x9"}, None,
            id="named, joining, in Slurm"),
        pytest.param(a_request(ended=True, names=("a009",), error="exit code 1"),
            facts([], [a_batch_node("a009", in_service=False, reports_claim=True)]), set(), None,
            id="named, and given back to a health check that has drained it"),
        pytest.param(a_request(ended=True, names=("done",)), facts([]), set(), 1, id="a word"),
        pytest.param(a_request(ended=True, names=("k1",)),
            facts([a_node("k1", labels={}, mark=None)]), set(), 1,
            id="named, but of Kubernetes' own"),
        pytest.param(a_request(ended=True, names=("x9",)), facts([a_node("x9", mark=None)]), {"x9"},
            None, id="named and labelled under another name"),
        pytest.param(a_request(ended=True),
            facts([NEW], [a_batch_node("a002", False, claim=BatchClaim(instance="other"))]), set(),
            1, id="claimed by another instance"),
        pytest.param(a_request(ended=True, names=("a002",)),
            facts([NEW], [a_batch_node("a002", False, claim=BatchClaim(instance="other"))]), set(),
            1, id="named, lent elsewhere since"),
        pytest.param(a_request(ended=True),
            facts([NEW], [a_batch_node("a002", False, claim=BatchClaim(instance="prod"))]),
            {"a002"}, None, id="claimed by this instance"),
        pytest.param(a_request(ended=True, nodes_before=("a002",)), facts([NEW]), set(), 1,
            id="was there"),
        pytest.param(a_request(ended=True), facts([a_node("a002", labels={}, mark=None)]), set(), 1,
            id="no label"),
        pytest.param(a_request(ended=True), facts([a_node("anvil-gpu", mark=None)]), set(), 1,
            id="only the same first letter"),
        pytest.param(a_request(ended=True),
            facts([a_node("a002", mark=Mark(instance="x", node_type="a", namespace="", queue=""))]),
            set(), 1, id="marked by another instance"),
        pytest.param(a_request(ended=True, count=3), facts([NEW]), {"a002"}, 2, id="too few"),
        pytest.param(a_request(converter=CONVERTER, count=2),
            facts([NEW], running=frozenset([CONVERTER])), set(), 2,
            id="converter at work: it may be another host's"),
        pytest.param(a_request(converter=CONVERTER, count=2), facts([NEW],
                running=frozenset([CONVERTER]), ended={"r1": Ended(names=("a002", "a003"))}),
            {"a002"}, 1, id="converter at work that has named it"),
        pytest.param(a_request(ended=True, since=LONG_AGO), facts([]), set(), None,
            id="never joined"),
    ],
)  # fmt: skip
def test_request_takes_the_nodes_that_it_brought(
    request_: Any, seen: Facts, joined: set[str], left: int | None
) -> None:
    step = advance_request(a_config(), request_, frozenset(), seen)
    assert set(step.joined) == joined
    assert (step.request.count if step.request else None) == left
    for entry in step.joined.values():
        assert (entry.phase, entry.queue, entry.since) == (Phase.JOINING, QUEUE, NOW)


def test_request_of_a_killed_run_gets_a_new_join_timeout() -> None:
    step = advance_request(a_config(), a_request(since=LONG_AGO), frozenset(), facts([]))
    assert step.request is not None and step.request.end and step.request.since == NOW


def test_unnamed_nodes_wait_while_slurm_is_unread() -> None:
    """If the converter did not name a node, only Slurm shows whether it is this instance's."""
    late = a_request(ended=True, since=LONG_AGO, names=("a002",), count=2)
    seen = facts([NEW, a_node("a003", mark=None)])
    mute = msgspec.structs.replace(seen, batch=None)
    assert set(advance_request(a_config(), late, frozenset(), seen).joined) == {"a002", "a003"}
    step = advance_request(a_config(), late, frozenset(), mute)
    assert set(step.joined) == {"a002"} and step.request is not None and step.request.count == 1


def test_converter_that_loses_dnm_instance_is_reported() -> None:
    """Slurm shows the default instance for the node, so the wrapper script drops DNM_INSTANCE."""
    late = a_request(ended=True, since=LONG_AGO, names=("a002",))
    claimed = a_batch_node("a002", False, claim=BatchClaim(instance="default"))
    step = advance_request(a_config(), late, frozenset(), facts([NEW], [claimed]))
    assert step.request is None and step.conversion_failed and not step.joined
    assert "Slurm names instance default for a002: that instance has lent it since" in step.note
    assert "node_convert_path does not pass DNM_INSTANCE on" in step.note


def test_request_that_brought_no_node_backs_off_once() -> None:
    late = a_request(ended=True, since=LONG_AGO)
    assert advance_request(a_config(), late, frozenset(), facts([])).conversion_failed
    abandoned = msgspec.structs.replace(
        late, end=RequestEnd(is_abandoned=True, error="exit code 1")
    )
    step = advance_request(a_config(), abandoned, frozenset(), facts([]))
    assert step.request is None and not step.note and not step.conversion_failed


def test_node_of_a_request_is_taken_by_no_other_request() -> None:
    first, second = a_request(id="r1", ended=True), a_request(id="r2", ended=True)
    after = advance_requests(a_config(), Registry(requests=(first, second)), facts([NEW]))
    assert list(after.nodes) == ["a002"]
    assert [request.id for request in after.requests] == ["r2"]


def test_unnamed_nodes_are_limited_to_the_requested_count() -> None:
    """A Node that joined may be another host's, so dnm takes no more than it requested."""
    request = a_request(ended=True, count=2, names=("a009",))
    seen = facts([NEW, a_node("a003", mark=None), a_node("a009", mark=None)])
    after = advance_request(a_config(), request, frozenset(), seen)
    assert sorted(after.joined) == ["a002", "a009"] and after.request is None


# --- calls that failed and named nobody ------------------------------------------------------

FIELDS = {"id": "r1", "ended": True, "is_abandoned": True, "count": 2, "error": "exit code 1"}
FAILED = a_request(**FIELDS)
IN_SERVICE = [a_batch_node("a002"), a_batch_node("a003")]
AWAY = [a_batch_node("a002", in_service=False), a_batch_node("a003", in_service=False)]
BOTH = [a_node("a002", mark=None), a_node("a003", mark=None)]


@pytest.mark.parametrize(
    ("named", "is_ended", "joined", "waiting"),
    [
        pytest.param(("a002", "a003"), True, 2, [], id="named-by-one-that-ended"),
        pytest.param(("a002", "a003"), False, 2, [("r2", 0)], id="named-by-one-at-work"),
        pytest.param((), False, 0, [("r2", 2), ("r1", 2)], id="one-at-work-names-them-in-the-end"),
        pytest.param((), True, 2, [], id="one-that-succeeded-never-names-any"),
    ],
)
def test_failed_call_takes_no_nodes_of_another_call(
    named: tuple[str, ...], is_ended: bool, joined: int, waiting: list[tuple[str, int]]
) -> None:
    later = a_request(id="r2", count=2, names=named, ended=is_ended, converter=CONVERTER)
    running = frozenset() if is_ended else frozenset([CONVERTER])
    seen = facts(BOTH, AWAY, running=running)
    after = advance_requests(a_config(), Registry(requests=(FAILED, later)), seen)
    assert len(after.nodes) == joined
    assert [(request.id, request.count) for request in after.requests] == waiting
    assert not after.failures and not after.errors


@pytest.mark.parametrize(
    ("batch", "count"),
    [
        pytest.param(IN_SERVICE, None, id="Slurm-has-them-all"),
        pytest.param([IN_SERVICE[0], AWAY[1]], 1, id="one-may-be-half-converted"),
        pytest.param(
            [IN_SERVICE[0], a_batch_node("a003", state="IDLE+RESERVED")], 1, id="one-is-reserved"
        ),
        pytest.param([a_batch_node("a002", in_service=None)], 1, id="unknown-is-no-no"),
        pytest.param([a_batch_node("b002", in_service=False)], None, id="of-another-type"),
        pytest.param(AWAY, 2, id="both-may-still-join"),
        pytest.param([], 2, id="an-empty-list-proves-nothing"),
    ],
)
def test_failed_call_waits_only_for_half_converted_nodes(batch: Any, count: int | None) -> None:
    step = advance_request(a_config(), FAILED, frozenset(), facts([], batch))
    assert (step.request.count if step.request else None) == count
    assert not step.note and not step.conversion_failed


@pytest.mark.parametrize(
    ("batch", "error", "left"),
    [
        pytest.param(IN_SERVICE, "exit code 1", None, id="Slurm-has-the-other-nodes"),
        pytest.param([IN_SERVICE[0], AWAY[1]], "exit code 1", 1, id="one-may-be-half-converted"),
        pytest.param(AWAY, "exit code 1", 2, id="both-may-still-join"),
        pytest.param(IN_SERVICE, "", 2, id="a-call-that-succeeded-is-waited-for"),
    ],
)
def test_missing_nodes_of_a_partly_failed_call_are_requested_again(
    batch: Any, error: str, left: int | None
) -> None:
    """The same run requests the missing nodes again. The node type does not back off, since some
    nodes joined."""
    part = a_request(id="r1", ended=True, count=3, names=("a009",), error=error)
    seen = facts([a_node("a009", mark=None)], batch)
    step = advance_request(a_config(), part, frozenset(), seen)
    assert list(step.joined) == ["a009"] and not step.conversion_failed
    assert (step.request.count if step.request else None) == left


@pytest.mark.parametrize(
    ("taken", "named", "already_out"),
    [
        pytest.param({"a002"}, (), (), id="recorded-elsewhere"),
        pytest.param(set(), ("a002",), (), id="another-call-named-it"),
        pytest.param(set(), (), ("a002",), id="it-was-there-before"),
    ],
)
def test_recorded_and_foreign_nodes_are_not_leftovers_of_a_failed_call(
    taken: set[str], named: tuple[str, ...], already_out: tuple[str, ...]
) -> None:
    failed = a_request(**{**FIELDS, "nodes_before": already_out})
    other = a_request(id="r2", ended=True, names=named)
    seen = facts([], [AWAY[0]])
    step = advance_request(a_config(), failed, frozenset(taken), seen, [other])
    assert step.request is None


def test_successful_call_without_names_waits_for_no_other_call() -> None:
    silent = a_request(id="r1", ended=True, count=1)
    working = a_request(id="r2", converter=CONVERTER)
    seen = facts([NEW], AWAY, running=frozenset([CONVERTER]))
    step = advance_request(a_config(), silent, frozenset(), seen, [working])
    assert list(step.joined) == ["a002"] and step.request is None
