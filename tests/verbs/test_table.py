"""Tests that each command changes only its own part of the registry."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import asdict, replace

import dnm.cli
from dnm.model.calendar import CalendarEvent
from dnm.model.lent import Phase
from dnm.model.orders import Keeping, LendOrder, Pause
from dnm.model.registry import Registry
from dnm.verbs import adoption, event, holds, lending
from dnm.verbs.refusal import Refusal
from tests.builders import NOW, a_batch_node, a_config, a_lent_node, a_node, a_request
from tests.trees import nodes_below

VERBS: Mapping[str, Callable[..., Registry | Refusal]] = {
    "lend": lending.lend,
    "extend": lending.extend,
    "return": lending.return_nodes,
    "hold": holds.hold,
    "unhold": holds.unhold,
    "exclude": holds.exclude,
    "unexclude": holds.unexclude,
    "pause": holds.pause,
    "resume": holds.resume,
    "takeover": holds.take_over,
    "reset": holds.reset,
    "adopt": adoption.adopt,
    "forget": adoption.forget,
    "event add": event.add_event,
    "event remove": event.remove_event,
}
CONFIG = a_config()
LATER = NOW + timedelta(hours=9)
KEEPING = Keeping(since=NOW)
ORDER = LendOrder(id="o1", node_type="a", namespace="dev", count=2, since=NOW, until=LATER)
BEGINS = LATER.replace(tzinfo=None)
EVENT = CalendarEvent(
    name="stars", namespace="dev", begins=BEGINS, ends=BEGINS + timedelta(hours=1), nodes=2
)
BEFORE = Registry(
    nodes={
        "a001": a_lent_node(order="o1", stays_until=NOW),
        "a002": a_lent_node(Phase.FAILED),
        "a004": a_lent_node(owner="other"),
    },
    requests=(a_request(order="o1", stays_until=NOW),),
    held=("a005",),
    holds={"a005": KEEPING},
    excluded={"a006": KEEPING},
    orders=(ORDER,),
    events={"stars": EVENT},
    pause=Pause(since=NOW, until=LATER),
)

CHANGES: list[tuple[str, dict[str, Any], set[str]]] = [
    ("lend", {"order": replace(ORDER, id="o2", nodes=("a050",))}, {"orders"}),
    ("extend", {"name": "a001", "until": LATER}, {"nodes"}),
    ("extend", {"name": "o1", "until": LATER + timedelta(1)}, {"nodes", "orders", "requests"}),
    ("return", {"name": "a001", "now": NOW}, {"nodes", "orders"}),
    ("return", {"name": "o1", "now": LATER}, {"nodes", "orders", "requests"}),
    ("hold", {"node": "a001", "keeping": KEEPING}, {"held", "holds"}),
    ("unhold", {"node": "a005"}, {"held", "holds"}),
    ("exclude", {"node": "a001", "keeping": KEEPING}, {"excluded"}),
    ("unexclude", {"node": "a006"}, {"excluded"}),
    ("pause", {"paused": Pause(since=NOW)}, {"pause"}),
    ("resume", {}, {"pause"}),
    ("takeover", {"word": "w", "kept": "", "now": NOW}, {"lease_words"}),
    ("reset", {"name": "a002", "now": NOW}, {"nodes"}),
    ("reset", {"name": CONFIG.namespaces["dev"].queue, "now": NOW}, {"breakers"}),
    ("reset", {"name": "a", "now": NOW}, set()),
    (
        "adopt",
        {
            "name": "a009",
            "namespace": "dev",
            "now": NOW,
            "node": a_node("a009", mark=None),
            "batch": {"a009": a_batch_node("a009", in_service=False)},
        },
        {"nodes"},
    ),
    ("forget", {"name": "a001", "node": None}, {"nodes"}),
    ("event add", {"event": replace(EVENT, name="moon"), "now": NOW}, {"events"}),
    ("event remove", {"name": "stars"}, {"events"}),
]


@pytest.mark.parametrize(
    ("verb", "words", "parts"),
    CHANGES,
    ids=[f"{v} {w.get('name', '')}" for v, w, _ in CHANGES],
)
def test_command_changes_only_its_part_of_the_registry(
    verb: str, words: Mapping[str, Any], parts: set[str]
) -> None:
    before = asdict(BEFORE)
    after = VERBS[verb](CONFIG, BEFORE, **words)
    assert isinstance(after, Registry), after
    assert {name for name, value in asdict(after).items() if value != before[name]} == parts
    assert asdict(BEFORE) == before
    other = BEFORE.nodes.keys() - {words.get("name")} if words.get("name") != "o1" else {"a002"}
    assert all(after.nodes[name] == BEFORE.nodes[name] for name in other), "nor any other node"


def test_each_operation_of_the_history_is_tested() -> None:
    """Each operation that the history can have is in the table, except `registry` and `rebase`."""
    named = {
        str(node.args[0].value)
        for path in Path(dnm.cli.__file__).parent.rglob("*.py")
        for node in nodes_below(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "new_operation" and node.args
        if isinstance(node.args[0], ast.Constant)
    }
    assert named - {"registry", "rebase"} <= set(VERBS) and len(named) > 8
