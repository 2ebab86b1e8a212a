"""Tests of a lost registry: which parts of it the Lease keeps, and what replaces it."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from dnm.model.lease import LONGEST_KEPT, Lease
from dnm.model.node import Mark
from dnm.model.orders import Keeping, Pause, Way
from dnm.model.plan import Snapshot
from dnm.model.pod import PodList
from dnm.model.registry import Registry
from dnm.plan.lease import find_traces
from dnm.plan.lost_registry import keep_names, replace_lost, restore_names
from dnm.queues.yunikorn.source import LEDGER_ANNOTATION
from dnm.verbs.holds import resume
from tests.builders import NOW, a_config, a_lent_node, a_node
from tests.plan.worlds import facts_of, queue_map

HOUR = timedelta(hours=1)
CONFIG = a_config()
NAMES = st.sets(st.from_regex(r"[a-z]{1,3}[0-9]{1,4}", fullmatch=True), max_size=20)
ENDS = st.none() | st.datetimes(datetime(2030, 1, 1), datetime(2031, 1, 1)).map(
    lambda moment: moment.replace(tzinfo=NOW.tzinfo)
)


def keeping(until: datetime | None = None) -> Keeping:
    return Keeping(
        since=NOW, until=until, reason="the password is hunter2", requester="ada on mgmt1"
    )


def a_registry(held: Any = ("a001",), excluded: Any = ("a002",), **changes: Any) -> Registry:
    return Registry(
        held=tuple(sorted(held)), holds={node: keeping() for node in held},
        excluded={node: keeping(NOW + HOUR) for node in excluded}, **changes,
    )  # fmt: skip


PAUSE = Pause(
    since=NOW, reason="the password is hunter2", requester="ada on mgmt1", half=Way.RETURNING
)
FULL = a_registry(pause=PAUSE)
KEPT = keep_names(FULL)
WORN = Lease(version="1", number=4, registry="w", last="mgmt1:/dnm", kept=KEPT, read_at=NOW)


@given(NAMES, NAMES, ENDS, st.sampled_from([None, *Way]))
def test_lease_keeps_names_and_ends_without_free_text(
    held: set[str], excluded: set[str], until: datetime | None, half: Way | None
) -> None:
    before = a_registry(
        held, excluded, pause=Pause(since=NOW, until=until, reason="s3cret", half=half)
    )
    kept = keep_names(before)
    assert "hunter2" not in kept and "s3cret" not in kept and "ada" not in kept
    after = restore_names(Registry(), kept, NOW)
    assert (after.held, set(after.holds), set(after.excluded)) == (before.held, held, excluded)
    assert after.pause is not None and (after.pause.until, after.pause.half) == (until, half)
    assert keep_names(after) == kept, "so that the next run writes nothing"


def test_empty_registry_keeps_no_names_in_the_lease() -> None:
    assert keep_names(Registry()) == ""
    assert restore_names(Registry(), "", NOW) == Registry()


def test_expired_entries_of_the_lease_are_not_restored() -> None:
    kept = keep_names(a_registry(pause=Pause(since=NOW, until=NOW + HOUR)))
    after = restore_names(Registry(), kept, NOW + 2 * HOUR)
    assert (after.held, after.excluded, after.pause) == (("a001",), {}, None)


def test_names_beyond_the_lease_size_pause_until_repeated() -> None:
    many = a_registry([f"{'n' * 30}{number * 7:07d}" for number in range(20_000)])
    kept = keep_names(many)
    assert len(kept) <= LONGEST_KEPT
    after = restore_names(Registry(), kept, NOW)
    assert after.pause is not None and "repeat" in after.pause.reason


@given(st.text(max_size=200) | st.just('{"held":{"":"a[1-"}}') | st.just('{"pause":{}}'))
def test_malformed_lease_text_pauses(text: str) -> None:
    after = restore_names(Registry(), text, NOW)
    assert (after.pause is not None) == bool(text) and not after.held


# --- the loss ---------------------------------------------------------------------------------


def seen(lease: Lease | None = None, mark: str = "", ledger: str = "") -> Snapshot:
    node = a_node("a001", mark=Mark(instance=mark, node_type="a", namespace="dev", queue="q"))
    maps = replace(queue_map(), annotations={LEDGER_ANNOTATION: ledger} if ledger else {})
    return Snapshot(
        taken_at=NOW,
        pods=PodList(pods=()),
        nodes=(node,) if mark else (),
        queue_facts=facts_of((maps, None)),
        lease=lease,
    )


def judge_loss(registry: Registry, snapshot: Snapshot) -> Registry:
    traces = find_traces(CONFIG, registry, snapshot)
    return replace_lost(registry, snapshot, traces) if traces else registry


def of_the_ledger(instance: str) -> str:
    text = queue_map({"a009": {"cpu": 128_000}}).annotations[LEDGER_ANNOTATION]
    return text.replace('"prod"', f'"{instance}"')


@pytest.mark.parametrize(
    ("registry", "snapshot", "is_lost"),
    [
        pytest.param(Registry(), seen(WORN), True, id="its Lease"),
        pytest.param(Registry(), seen(mark="prod"), True, id="its mark"),
        pytest.param(Registry(), seen(ledger=of_the_ledger("prod")), True, id="its ledger"),
        pytest.param(Registry(held=("a005",)), seen(WORN), True, id="a hold before the first run"),
        pytest.param(Registry(), seen(Lease()), False, id="a new site"),
        pytest.param(Registry(), seen(), False, id="a cluster that does not answer"),
        pytest.param(Registry(), seen(mark="test"), False, id="the mark of another instance"),
        pytest.param(Registry(), seen(ledger=of_the_ledger("test")), False, id="another's ledger"),
        pytest.param(Registry(), seen(ledger="{"), False, id="a ledger that is none"),
        pytest.param(Registry(lease_words=("v",)), seen(WORN), False, id="it has acted"),
        pytest.param(Registry(nodes={"a001": a_lent_node()}), seen(mark="prod"), False,
                     id="the record of the predecessor"),
        pytest.param(Registry(), seen(replace(WORN, registry="Secret dnm/dnm-prod")), False,
                     id="a Secret, so a loss is visible"),
    ],
)  # fmt: skip
def test_empty_registry_is_lost_if_the_cluster_shows_earlier_actions(
    registry: Registry, snapshot: Snapshot, is_lost: bool
) -> None:
    after = judge_loss(registry, snapshot)
    assert judge_loss(after, snapshot) == after, "it is told once"
    assert (after != registry) == is_lost
    if is_lost:
        assert after.pause is not None and after.pause.is_after_loss
        assert "`dnm resume`" in after.pause.reason and set(registry.held) <= set(after.held)


def test_resume_restores_the_earlier_pause_and_second_resume_ends_it() -> None:
    after = judge_loss(Registry(), seen(WORN))
    assert after.pause is not None and after.pause.half is None, "returning stays paused too"
    assert keep_names(after) == KEPT, "a second loss loses nothing"
    once = resume(CONFIG, after)
    assert once.pause is not None and (once.pause.is_after_loss, once.pause.half) != (True, None)
    assert once.pause.half is Way.RETURNING and set(once.excluded) == {"a002"}
    assert resume(CONFIG, once).pause is None
    assert judge_loss(resume(CONFIG, once), seen(WORN)).pause is None
