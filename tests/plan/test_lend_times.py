"""How long lending takes is learned from what it took."""

from __future__ import annotations

from datetime import timedelta

import pytest

from dnm.model.lent import Phase
from dnm.model.observed import LendTimes
from dnm.model.reason import Reason
from dnm.model.registry import Registry
from dnm.model.verdict import NodeVerdict, Verdict
from dnm.plan.idle_times import lend_time, note_lends, return_time
from tests.builders import NOW, a_config, a_lent_node, a_request
from tests.plan.worlds import World

TIMES = {
    "nine": (tuple(range(9)), 1800),
    "ten": ((60,) * 9 + (600,), 600),
    "twenty, of which one is late": ((60,) * 19 + (900,), 60),
    "forty, of which three are late": ((60,) * 37 + (900,) * 3, 900),
    "longer than a conversion may take": ((10**6,) * 10, 2700),
}


@pytest.mark.parametrize(("seconds", "expected"), TIMES.values(), ids=TIMES)
def test_the_time_is_one_that_few_take_longer_than(seconds: tuple[int, ...], expected: int) -> None:
    config = a_config()
    lends = Registry(lend_times={"a": LendTimes(lends=seconds)})
    returns = Registry(lend_times={"a": LendTimes(returns=seconds)})
    assert lend_time(config, lends, "a") == timedelta(seconds=expected)
    assert return_time(config, returns, "a") == timedelta(seconds=expected)
    assert lend_time(config, returns, "a") == timedelta(minutes=30)


def noted(before: Registry, after: Registry, *returned: str) -> LendTimes:
    verdicts = {
        name: NodeVerdict(node=name, verdict=Verdict.REVERT, reason=Reason.RETURNED)
        for name in returned
    }
    return note_lends(a_config(), before, after, verdicts, NOW).lend_times.get("a", LendTimes())


ASKED = NOW - timedelta(minutes=7)
SERVES = a_lent_node(asked_at=ASKED)
JOINS = a_lent_node(Phase.JOINING, asked_at=ASKED)
GOES = a_lent_node(Phase.RETURNING)


def of(**nodes: object) -> Registry:
    return Registry(nodes=nodes)  # type: ignore[arg-type]


NOTED = {
    "it joined": (of(a1=JOINS), of(a1=SERVES), (), LendTimes(lends=(420,))),
    "at once": (of(), of(a1=SERVES), (), LendTimes(lends=(420,))),
    "it serves on": (of(a1=SERVES), of(a1=SERVES), (), LendTimes()),
    "it joins": (of(), of(a1=JOINS), (), LendTimes()),
    "nobody knows when it was asked for": (of(), of(a1=a_lent_node()), (), LendTimes()),
    "its fence was lifted": (
        of(a1=a_lent_node(Phase.RELEASING, asked_at=ASKED)), of(a1=SERVES), (), LendTimes(),
    ),
    "it is back": (of(a1=GOES), of(), ("a1",), LendTimes(returns=(300,))),
    "it is forgotten": (of(a1=GOES), of(), (), LendTimes()),
    "clocks went back": (
        of(), of(a1=a_lent_node(asked_at=NOW + timedelta(hours=1))), (), LendTimes(lends=(0,)),
    ),
}  # fmt: skip


@pytest.mark.parametrize(("before", "after", "returned", "expected"), NOTED.values(), ids=NOTED)
def test_what_it_took_is_noted(
    before: Registry, after: Registry, returned: tuple[str, ...], expected: LendTimes
) -> None:
    assert noted(before, after, *returned) == expected


def test_forty_are_kept_of_types_that_there_are() -> None:
    times = {"a": LendTimes(lends=(1,) * 40), "gone": LendTimes(lends=(1,))}
    before = Registry(lend_times=times, nodes={"a1": JOINS})
    after = Registry(lend_times=times, nodes={"a1": SERVES})
    kept = note_lends(a_config(), before, after, {}, NOW).lend_times
    assert kept == {"a": LendTimes(lends=(*(1,) * 39, 420))}


def test_a_request_knows_when_it_was_written_and_so_do_its_nodes() -> None:
    world = World().recorded(requests=(a_request(asked_at=ASKED, names=("a001",)),)).node("a001")
    assert world.plan().registry.nodes["a001"].asked_at == ASKED
