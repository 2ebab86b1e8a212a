"""What dnm says of settings against what the kubelet's own code has said of them beforehand.

`vectors.json` has the verdicts of Kubernetes 1.34.4; tests/real/test_kubelet.py asks it again, and
1.30.14 too. Those with `config` can't be said in a configuration of dnm.
"""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from tests.kubelet.judging import Said, a_machine, amount, some_settings, stricter

VECTORS: list[dict[str, Any]] = json.loads((Path(__file__).parent / "vectors.json").read_text())
OURS = [one for one in VECTORS if "settings" in one]


def test_there_are_the_worked_examples_and_a_hundred_more() -> None:
    assert len(OURS) >= 120
    assert {str(number) for number in range(1, 21)} <= {one["name"].split()[0] for one in VECTORS}
    refused = sum(bool(one["stage"]) for one in OURS)
    assert 40 <= refused <= len(OURS) - 40


@pytest.mark.parametrize("vector", OURS, ids=lambda vector: vector["name"])
def test_dnm_says_what_the_kubelet_said(vector: dict[str, Any]) -> None:
    said = Said(vector["settings"])
    refused = bool(vector["stage"])
    if said.refuses != refused:
        assert not refused, f"the kubelet would not start: {vector['error']}"
        assert stricter(vector["settings"], vector["machine"]), said.why
    elif not refused:
        assert said.sides.allocatable == amount(vector["reserved"].get("memory", "0"))
        assert said.allocatable == vector["allocatable"]["memory"]


def test_the_draw_is_worth_drawing() -> None:
    """About half of what is drawn is right, and every way to be wrong comes up."""
    draw = random.Random(7)
    said = []
    for _ in range(600):
        machine = a_machine(draw)
        said.append(Said(some_settings(draw, machine, "1.34")))
    wrong = [one for one in said if one.refuses]
    assert 200 < len(wrong) < 400
    words = ("not equal", "with Static the kubelet compares huge pages", "can't use this spelling",
             "needs reserved_memory", "static needs CPUs", "topology manager refuses",
             "is neither memory nor", "the kubelet refuses zero")  # fmt: skip
    for word in words:
        assert any(word in why for one in wrong for why in one.why), word
