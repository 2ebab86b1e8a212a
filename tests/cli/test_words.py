"""The words that people read: lend and return, whatever documents and the contract call them."""

from __future__ import annotations

import re

import pytest

from dnm.cli.explain import _sentences
from dnm.cli.output import shown_amount
from dnm.cli.queue_verbs import _shown
from dnm.cli.report import print_plan
from dnm.model.orders import Pause, Way
from dnm.model.reason import Why
from dnm.model.verdict import Verdict
from dnm.plan.explain import list_reasons
from tests.builders import NOW, QUEUE
from tests.cli.test_shell import LEAVES
from tests.plan.test_kept_out import TEN, excluding
from tests.plan.worlds import wanting

_OTHER = re.compile(r"\b(conver[ts]\w*|conversions?|rever[ts]\w*|gives? back|given back)\b", re.I)


@pytest.mark.parametrize("reason", [*list_reasons()], ids=lambda one: one.name)
def test_a_reason_lends_and_returns(reason: Why) -> None:
    assert not _OTHER.search(reason.text)


@pytest.mark.parametrize("words", LEAVES, ids=" ".join)
def test_help_lends_and_returns(words: tuple[str, ...]) -> None:
    if words[0] in ("simulate", "sandbox", "demo"):
        return  # they speak of the converter's calls
    command = LEAVES[words]
    said = [command.help or "", *(getattr(one, "help", "") or "" for one in command.params)]
    assert not _OTHER.search(" ".join(said))


def test_a_plan_speaks_of_lending_and_not_of_keeping_a_queue(
    capsys: pytest.CaptureFixture[str],
) -> None:
    print_plan(wanting(2).plan())
    assert f"queue {QUEUE}: lend: its pods" in capsys.readouterr().out
    print_plan(wanting(0).plan())
    assert f"queue {QUEUE}: nothing: has room" in capsys.readouterr().out
    document = {"kind": "node", "of": "a001", "phase": "serving", "since": NOW,
                "verdict": "revert", "reason": "is idle", "changed_by": ""}  # fmt: skip
    assert list(_sentences(document, False, "UTC"))[1:] == ["decided now: return: is idle"]


def test_nothing_is_granted_where_nothing_is_lent() -> None:
    assert wanting(2).plan().decisions[QUEUE].granted == {"a": 2}
    stopped = wanting(2).recorded(pause=Pause(since=NOW, half=Way.LENDING)).plan()
    assert stopped.queues[0].verdict is not Verdict.CONVERT
    decision = stopped.decisions[QUEUE]
    assert (decision.wanted, decision.granted) == ({"a": 2}, {})


def test_nodes_that_are_all_kept_out_are_not_used_up() -> None:
    sentence = excluding(wanting(1), *TEN).plan().queues[0].sentence
    assert "no more batch nodes of type a can be lent" in sentence and "used up" not in sentence


@pytest.mark.parametrize("amount", [251 * 2**30, 270 * 10**9, 2**40, 10**12, 333_333_333_333, 0])
def test_memory_of_a_row_has_units_of_one_kind(amount: int) -> None:
    assert not shown_amount("memory", amount).endswith("i")
    assert amount == 0 or _shown("memory", amount, "64Gi").endswith("i")
    assert not _shown("memory", amount, "64G").endswith("i")
