"""Tests of the text that dnm prints for plans, runs and batch nodes."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from msgspec.structs import replace

from dnm.cli.act.run import print_run
from dnm.cli.look.explain import _sentences
from dnm.cli.look.nodes import print_batch_nodes
from dnm.cli.look.report import (
    action_lines,
    describe_action,
    plan_document,
    print_plan,
    run_document,
)
from dnm.model.amounts import shown_amount
from dnm.model.history import HistoryLine
from dnm.model.lent_state import ConverterProcess
from dnm.model.orders import Pause, Way
from dnm.model.plan import (
    Action,
    EndConverter,
    Fence,
    MarkNode,
    Outcome,
    Pass,
    Plan,
    RelabelNode,
    ReturnNode,
    SetQueueLimits,
    StartConversion,
    Unfence,
)
from dnm.model.queue_edit import LimitChange, QueueEdit, QueueWants
from dnm.model.reason import Reason, ReasonText
from dnm.model.registry import Registry
from dnm.model.verdict import NodeVerdict, QueueVerdict, Verdict
from dnm.plan.explain import list_reasons
from dnm.queues.yunikorn.admin.queue_verbs import _shown
from dnm.record.recording import change_line
from tests.builders import MARK, NOW, QUEUE, a_batch_node, a_config, a_lent_node, a_request
from tests.cli.test_shell import LEAVES
from tests.plan.test_exclusions import TEN, excluding
from tests.plan.worlds import wanting

LINES = [
    (MarkNode(node="a001", mark=MARK), f"action=mark node=a001 queue={QUEUE}"),
    (Fence(node="a001"), "action=fence node=a001"),
    (Unfence(node="a001"), "action=unfence node=a001"),
    (ReturnNode(node="a001"), "action=return node=a001"),
    (
        RelabelNode(node="a001", mark=MARK, labels={"dev": "true"}),
        "action=move node=a001 to=dev",
    ),
    (
        EndConverter(key="r1", process=ConverterProcess(pid=7, start_ticks=1)),
        "action=end-converter of=r1 pid=7",
    ),
    (
        StartConversion(request=a_request(count=2)),
        f"action=convert type=a count=2 namespace=dev queue={QUEUE}",
    ),
]
PLAN = Plan(
    registry=Registry(),
    actions=(Fence(node="a001"),),
    queues=(QueueVerdict(queue=QUEUE, verdict=Verdict.WAIT, reason=Reason.COOLDOWN, detail="x"),),
    nodes=(NodeVerdict(node="a001", verdict=Verdict.REVERT, reason=Reason.IDLE_LONG_ENOUGH),),
    notes=("a note\x1b[31m",),
    errors=("an error",),
    diff="--- before\n+++ after\n",
)


@pytest.mark.parametrize(("action", "line"), LINES, ids=lambda item: type(item).__name__)
def test_each_action_is_a_line(action: Action, line: str) -> None:
    assert action_lines(action) == [line]
    assert describe_action(action)["action"] == type(action).__name__


def test_conversion_is_described_without_internal_fields() -> None:
    assert describe_action(StartConversion(request=a_request())) == {
        "action": "StartConversion", "id": "r1", "node_type": "a", "count": 1,
        "namespace": "dev", "queue": QUEUE,
    }  # fmt: skip


def test_plan_document_has_decision_and_reason_of_each_queue_and_node() -> None:
    document = plan_document(PLAN)
    cooldown = f"{Reason.COOLDOWN.text}: x"
    assert document["queues"] == [
        {"queue": QUEUE, "verdict": Verdict.WAIT.value, "code": "COOLDOWN", "reason": cooldown}
    ]
    (node,) = document["nodes"]
    assert (node["node"], node["code"]) == ("a001", "IDLE_LONG_ENOUGH")
    assert document["actions"] == [{"action": "Fence", "node": "a001"}]


# A run's action -> the plan's line for a001, which an administrator returns.
FENCES = {
    "a fence that is yet to come": (
        (Fence(node="a001"),),
        "will be fenced and will be returned when",
    ),
    "a fence that is there": ((), "is fenced and will be returned when"),
    "a fence of another": ((Fence(node="a002"),), "is fenced and will be returned when"),
}


@pytest.mark.parametrize("name", FENCES)
def test_plan_separates_current_from_planned_fences(
    capsys: pytest.CaptureFixture[str], name: str
) -> None:
    actions, message = FENCES[name]
    leaves = NodeVerdict(node="a001", verdict=Verdict.REVERT, reason=Reason.LEAVING)
    plan = replace(PLAN, actions=actions, nodes=(leaves,))
    assert plan_document(plan)["nodes"][0]["reason"].startswith(message)
    print_plan(plan)
    assert f"node a001: return: {message}" in capsys.readouterr().out


def test_plan_ends_with_the_diff_and_the_sums(
    capsys: pytest.CaptureFixture[str],
) -> None:
    print_plan(PLAN)
    shown = capsys.readouterr().out
    assert "  1. action=fence node=a001" in shown
    assert shown.endswith(f"{PLAN.diff}\n0 to lend, 1 to fence, 0 to return\n")
    assert "a note?[31m" in shown and "\x1b" not in shown
    print_plan(Plan(registry=Registry()))
    assert "A run would do nothing now." in capsys.readouterr().out


def test_limit_change_is_a_line_in_plan_and_run(capsys: pytest.CaptureFixture[str]) -> None:
    change = LimitChange(queue=QUEUE, kind="max", resource="vcore", before="80", after="208")
    edits = (((change,), change_line(change)), ((), "action=write-ledger"))
    for changes, line in edits:
        action = SetQueueLimits(
            wants=QueueWants(instance_id="prod"),
            edit=QueueEdit(changes=changes),
        )
        assert action_lines(action) == [line]
    assert change_line(change) == f"action=set-limit queue={QUEUE} max.vcore=208 was=80"


def test_paused_plan_shows_the_pause(
    capsys: pytest.CaptureFixture[str],
) -> None:
    pause = Pause(since=NOW, reason="firmware", requester="erin on h1")
    print_plan(Plan(registry=Registry(), pause=pause))
    first = capsys.readouterr().out.splitlines()[0]
    assert first.startswith("dnm is paused by erin on h1 since 20")
    assert first.endswith("until `dnm resume`: firmware")


def test_paused_run_on_a_terminal_shows_the_pause(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pause = Pause(since=NOW, reason="firmware", requester="erin on h1")
    result = Pass(plan=Plan(registry=Registry(), pause=pause), exit_code=0)
    print_run(result)
    assert capsys.readouterr() == ("", "")
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    print_run(result)
    first, *_, last = capsys.readouterr().out.splitlines()
    assert first.startswith("dnm is paused by erin on h1 since 20"), first
    assert last == "nothing done; 0 nodes lent"


def test_lasting_error_is_not_printed_in_each_run(
    capsys: pytest.CaptureFixture[str],
) -> None:
    registry = Registry()
    plan = Plan(registry=registry, errors=("the API is away",), notes=("a floor",))
    lasts = Pass(plan=plan, exit_code=1, outcome=Outcome(registry=registry))
    print_run(lasts)
    assert capsys.readouterr() == ("", "")
    over = Outcome(registry=registry, over=("resolved after 3 h 0 min: the API is away",))
    print_run(Pass(plan=Plan(registry=registry), exit_code=0, outcome=over))
    assert capsys.readouterr() == ("note: resolved after 3 h 0 min: the API is away\n", "")


def test_run_prints_a_single_summary_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    limits = ("max memory 320G, max vcore 80", "max memory 832G, max vcore 336")
    reported = (
        a_line("request", "requested", "r1", numbers={"count": 2}),
        a_line("node", "lent", "a002"),
        a_line("node", "lent", "a003"),
        a_line("node", "joined", "a002"),
        a_line("node", "joined", "a003"),
        a_line("node", "fenced", "b001"),
        a_line("queue", "wait", QUEUE),
        a_line("limit", "changed", QUEUE, before=limits[0], after=limits[1]),
    )
    outcome = Outcome(registry=Registry(), actions=("action=fence",), history=reported)
    print_run(Pass(plan=Plan(registry=Registry()), exit_code=0, outcome=outcome))
    assert capsys.readouterr().out == (
        "requested 2 nodes for dev; lent a[002-003] to dev; fenced b001; limit 80 -> 336 vcore\n"
    )
    registry = Registry(nodes={"a001": a_lent_node()}, requests=(a_request(count=3),))
    idle = Pass(plan=Plan(registry=registry), exit_code=0, outcome=Outcome(registry=registry))
    print_run(idle)
    assert capsys.readouterr().out == ""
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    print_run(idle)
    assert capsys.readouterr().out == "nothing done; 1 node lent, 3 coming\n"


def a_line(kind: str, event: str, name: str, **fields: Any) -> HistoryLine:
    return HistoryLine(
        schema=1, number=1, time=NOW, run="r", instance="prod", kind=kind, event=event,
        object=name, namespace="dev", queue=QUEUE, **fields,
    )  # fmt: skip


def test_run_counts_actions_without_a_line_of_their_own(capsys: pytest.CaptureFixture[str]) -> None:
    registry = Registry(nodes={"a001": a_lent_node()}, requests=(a_request(count=3),))
    outcome = Outcome(
        registry=registry, actions=("did it",), done=(Fence(node="a001"),), errors=("late",),
        new_errors=("late",),
    )  # fmt: skip
    result = Pass(plan=Plan(registry=registry), exit_code=1, outcome=outcome)
    print_run(result)
    shown = capsys.readouterr()
    assert shown.out.splitlines() == ["1 action; the log has the details"]
    assert shown.err == "error: late\n"
    document = run_document(result)
    assert (document["exit_code"], document["lines"]) == (1, ["did it"])
    assert document["actions"] == [{"action": "Fence", "node": "a001"}]
    assert document["errors"] == ["late"]


def test_lendable_batch_nodes_are_listed_first(capsys: pytest.CaptureFixture[str]) -> None:
    nodes = [a_batch_node("a002", False), a_batch_node("a001")]
    print_batch_nodes(a_config(), nodes, {}, output="json")
    document = json.loads(capsys.readouterr().out)
    assert document["schema"] == "dnm.nodes/1"
    assert [node["name"] for node in document["nodes"]] == ["a001", "a002"]
    print_batch_nodes(a_config(), nodes, {}, output="text")
    assert capsys.readouterr().out.index("a001") > 0
    print_batch_nodes(a_config(), [], {}, output="text")
    assert "none" in capsys.readouterr().out


_OTHER = re.compile(r"\b(conver[ts]\w*|conversions?|rever[ts]\w*|gives? back|given back)\b", re.I)


@pytest.mark.parametrize("reason", [*list_reasons()], ids=lambda item: item.name)
def test_reasons_use_the_words_lend_and_return(reason: ReasonText) -> None:
    assert not _OTHER.search(reason.text)


@pytest.mark.parametrize("words", LEAVES, ids=" ".join)
def test_help_texts_use_the_words_lend_and_return(words: tuple[str, ...]) -> None:
    if words[0] in ("simulate", "sandbox", "demo"):
        return  # these are about the converter's calls
    command = LEAVES[words]
    message = [command.help or "", *(getattr(param, "help", "") or "" for param in command.params)]
    assert not _OTHER.search(" ".join(message))


def test_plan_prints_lend_instead_of_keep_for_a_queue(
    capsys: pytest.CaptureFixture[str],
) -> None:
    print_plan(wanting(2).plan())
    assert f"queue {QUEUE}: lend: its pods" in capsys.readouterr().out
    print_plan(wanting(0).plan())
    assert f"queue {QUEUE}: nothing: its pods need no more nodes" in capsys.readouterr().out
    document = {"kind": "node", "object": "a001", "phase": "serving", "since": NOW,
                "verdict": "revert", "reason": "is idle", "remedy": ""}  # fmt: skip
    assert list(_sentences(document, False, "UTC"))[1:] == ["decision now: return: is idle"]


def test_paused_lending_grants_no_nodes() -> None:
    assert wanting(2).plan().decisions[QUEUE].granted == {"a": 2}
    stopped = wanting(2).recorded(pause=Pause(since=NOW, half=Way.LENDING)).plan()
    assert stopped.queues[0].verdict is not Verdict.CONVERT
    decision = stopped.decisions[QUEUE]
    assert (decision.wanted, decision.granted) == ({"a": 2}, {})


def test_excluded_nodes_are_not_reported_as_used_up() -> None:
    sentence = excluding(wanting(1), *TEN).plan().queues[0].sentence
    assert "no more batch nodes of type a can be lent" in sentence and "used up" not in sentence


@pytest.mark.parametrize("amount", [251 * 2**30, 270 * 10**9, 2**40, 10**12, 333_333_333_333, 0])
def test_memory_units_of_a_row_are_consistent(amount: int) -> None:
    assert not shown_amount("memory", amount).endswith("i")
    assert amount == 0 or _shown("memory", amount, "64Gi").endswith("i")
    assert not _shown("memory", amount, "64G").endswith("i")
