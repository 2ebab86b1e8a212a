"""Tests of the changes by `dnm hold`, `exclude`, `pause`, `reset` and `takeover`."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta

import pytest

from dnm.model.departure import Eviction, Leaving
from dnm.model.lease import ActingElsewhere
from dnm.model.lent import ClaimedNode, Phase
from dnm.model.lent_state import ConverterProcess, Returning
from dnm.model.observed import Backoff, Breaker, StalledPods
from dnm.model.orders import Keeping, Pause, Way
from dnm.model.reason import Reason
from dnm.model.registry import Registry
from dnm.plan.lost_registry import keep_names
from dnm.plan.phases import advance_node
from dnm.verbs.holds import (
    exclude,
    hold,
    pause,
    reset,
    resume,
    take_over,
    unexclude,
    unhold,
)
from dnm.verbs.refusal import Refusal
from tests.builders import NOW, QUEUE, a_batch_node, a_config, a_lent_node, facts
from tests.verbs import sentence

HOUR = timedelta(hours=1)
SOON = NOW + 5 * HOUR
CONFIG = a_config()
KEEPING = Keeping(since=NOW, until=SOON, reason="a fan", requester="kim on mgmt1")
CLAIMED = ClaimedNode(node_type="a", namespace="dev")
REGISTRY = Registry(
    nodes={
        "a001": a_lent_node(),
        "a002": a_lent_node(Phase.FAILED, error="it burns"),
        "a003": a_lent_node(Phase.RETURNING, attempts=2),
    },
    claimed={"elsewhere": CLAIMED},
)


# --- hold, exclude ---------------------------------------------------------------------------

Keep = Callable[..., Registry | Refusal]


@pytest.mark.parametrize("verb", [hold, exclude])
@pytest.mark.parametrize(
    ("node", "why"),
    [
        pytest.param("a001", "", id="lent"),
        pytest.param("elsewhere", "", id="claimed"),
        pytest.param("a900", "", id="of-a-type"),
        pytest.param(
            "x17",
            "'x17' is not a name of a lent node or of a node type (a…): `dnm nodes` lists the "
            "nodes; nothing was changed",
            id="of-none",
        ),
    ],
)
def test_hold_and_exclude_accept_only_possible_nodes(verb: Keep, node: str, why: str) -> None:
    answer = verb(CONFIG, REGISTRY, node, KEEPING)
    if why:
        assert sentence(answer) == why
        return
    assert isinstance(answer, Registry)
    if verb is hold:
        assert (answer.held, answer.holds) == ((node,), {node: KEEPING})
        assert unhold(CONFIG, answer, node) == REGISTRY
    else:
        assert answer.excluded == {node: KEEPING}
        assert unexclude(CONFIG, answer, node) == REGISTRY


def test_repeated_hold_replaces_the_earlier_hold() -> None:
    first = hold(CONFIG, Registry(), "a002", KEEPING)
    assert isinstance(first, Registry)
    second = hold(CONFIG, first, "a001", KEEPING)
    assert isinstance(second, Registry)
    for_ever = Keeping(since=NOW)
    third = hold(CONFIG, second, "a002", for_ever)
    assert isinstance(third, Registry) and third.held == ("a001", "a002")
    assert third.holds == {"a001": KEEPING, "a002": for_ever}
    assert unhold(CONFIG, third, "a009") == third == unexclude(CONFIG, third, "a001")


def test_held_joining_node_no_longer_leaves() -> None:
    """A hold cancels that, because unfencing would open the node before its readiness checks."""
    lent_node = a_lent_node(Phase.JOINING, leaves=Leaving.MANUAL, eviction=Eviction(since=NOW))
    answer = hold(CONFIG, Registry(nodes={"a001": lent_node}), "a001", KEEPING)
    assert isinstance(answer, Registry)
    assert answer.nodes == {"a001": a_lent_node(Phase.JOINING)}


# --- pause -----------------------------------------------------------------------------------

Terms = tuple[datetime | None, Way | None]
PAUSES: dict[str, tuple[Terms, Terms, bool]] = {
    "the same": ((None, None), (None, None), False),
    "for longer": ((SOON, None), (None, None), False),
    "no more for ever": ((None, None), (SOON, None), True),
    "shorter": ((SOON, None), (SOON - HOUR, None), True),
    "both for one": ((SOON, Way.LENDING), (SOON, None), False),
    "one for both": ((SOON, None), (SOON, Way.LENDING), True),
    "one for the other": ((SOON, Way.LENDING), (SOON, Way.RETURNING), True),
    "the first is over": ((NOW, None), (SOON, Way.LENDING), False),
}


@pytest.mark.parametrize(("first", "second", "is_less"), PAUSES.values(), ids=PAUSES)
def test_shorter_or_narrower_pause_needs_force(first: Terms, second: Terms, is_less: bool) -> None:
    before = Registry(pause=Pause(since=NOW - HOUR, until=first[0], half=first[1]))
    new = Pause(since=NOW, until=second[0], half=second[1])
    answer = pause(CONFIG, before, new)
    if is_less:
        assert sentence(answer) == "this pause would stop less: add --force to replace it"
    else:
        assert answer == Registry(pause=new)
    assert pause(CONFIG, before, new, is_forced=True) == Registry(pause=new)
    assert resume(CONFIG, before) == resume(CONFIG, Registry()) == Registry()


REASONS = {
    "the first one stays": ("firmware", "", SOON, "firmware"),
    "another takes its place": ("firmware", "power", SOON, "power"),
    "that of a pause which is over does not": ("firmware", "", NOW, ""),
}


@pytest.mark.parametrize(("first", "second", "until", "recorded"), REASONS.values(), ids=REASONS)
def test_second_pause_keeps_the_earlier_reason(
    first: str, second: str, until: datetime, recorded: str
) -> None:
    before = Registry(pause=Pause(since=NOW - HOUR, until=until, reason=first))
    after = pause(CONFIG, before, Pause(since=NOW, reason=second))
    assert after == Registry(pause=Pause(since=NOW, reason=recorded))


def test_takeover_replaces_the_lease_words() -> None:
    before = Registry(lease_words=("old",), elsewhere=ActingElsewhere(holder="east", at=NOW))
    kept = keep_names(Registry(held=("a001",)))
    assert take_over(CONFIG, before, "new", kept, NOW) == Registry(lease_words=("new",))
    assert take_over(CONFIG, Registry(), "new", kept, NOW).held == ("a001",)


# --- reset -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["a002", "a003"])
def test_reset_node_is_returned_from_its_first_attempt(name: str) -> None:
    answer = reset(CONFIG, REGISTRY, name, NOW)
    assert isinstance(answer, Registry)
    entry = answer.nodes[name]
    assert entry.state == Returning(since=NOW, converter=entry.converter)
    assert not entry.error


@pytest.mark.parametrize("phase", [Phase.RETURNING, Phase.FAILED])
def test_reset_waits_for_the_running_converter(phase: Phase) -> None:
    converter = ConverterProcess(pid=77, start_ticks=5)
    before = Registry(nodes={"a001": a_lent_node(phase, converter=converter)})
    answer = reset(CONFIG, before, "a001", NOW)
    assert isinstance(answer, Registry)
    at_work = facts(batch=[a_batch_node(in_service=False)], running=frozenset([converter]))
    step = advance_node(CONFIG, "a001", answer.nodes["a001"], at_work)
    assert not step.wants_return and step.verdict.reason is Reason.RETURNING


@pytest.mark.parametrize("name", [QUEUE, QUEUE.upper()])
def test_reset_queue_gets_a_new_chance_for_stalled_pods(name: str) -> None:
    before = Registry(
        nodes={"a001": a_lent_node()},
        breakers={QUEUE: Breaker(unused=3, tripped_at=NOW), "root.other": Breaker(unused=1)},
        stalled={"f": StalledPods(count=1, until="")},
    )
    answer = reset(CONFIG, before, name, NOW)
    assert isinstance(answer, Registry) and not answer.stalled
    assert answer.breakers == {QUEUE: Breaker(unused=-1), "root.other": Breaker(unused=1)}


def test_reset_ends_a_back_off() -> None:
    backoff = Backoff(failures=1, until=NOW, ask_at_most=1)
    assert reset(CONFIG, Registry(backoffs={"a": backoff}), "a", NOW) == Registry()
    assert reset(CONFIG, Registry(), "a", NOW) == Registry()


NOT_RESET = {
    "serving": (
        "a001",
        "a001 is serving, not failed: there is nothing to reset; `dnm status` shows what it waits "
        "for",
    ),
    "unknown": (
        "q",
        "'q' is not a lent node, monitored queue or node type; existing names: a[001-003], a, "
        f"{QUEUE}",
    ),
}


@pytest.mark.parametrize(("name", "why"), NOT_RESET.values(), ids=NOT_RESET)
def test_invalid_reset_is_refused(name: str, why: str) -> None:
    assert sentence(reset(CONFIG, REGISTRY, name, NOW)) == why


def test_held_node_is_not_reset() -> None:
    """A held node is never returned, so a failed one would stay although it serves no queue."""
    nodes = {"a001": a_lent_node(Phase.FAILED)}
    answer = reset(CONFIG, Registry(nodes=nodes, held=("a001",)), "a001", NOW)
    assert sentence(answer) == "a001 is held: `dnm unhold a001` first"
