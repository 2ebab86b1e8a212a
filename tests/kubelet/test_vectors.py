"""Tests that compare dnm's verdicts (on kubelet settings, and on pods at a kubelet with the policy
single-numa-node) with recorded verdicts of the kubelet's own code.

`vectors.json` and `admitted.json` have the verdicts of Kubernetes 1.34.4.
tests/real/test_kubelet.py asks that version and 1.30.14 about many more. Vectors with `config` are
settings that dnm's configuration cannot express."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.kubelet.admitting import Question, why_dnm_refuses
from tests.kubelet.judging import Said, amount, stricter

VECTORS: list[dict[str, Any]] = json.loads((Path(__file__).parent / "vectors.json").read_text())
ADMITTED = Path(__file__).parents[1] / "data" / "kubelet" / "admitted.json"
ANSWERS: list[Question] = json.loads(ADMITTED.read_text())
OWN = [vector for vector in VECTORS if "settings" in vector]


@pytest.mark.parametrize("vector", OWN, ids=lambda vector: vector["name"])
def test_verdicts_on_settings_equal_the_verdicts_of_the_kubelet(vector: dict[str, Any]) -> None:
    message = Said(vector["settings"])
    refused = bool(vector["stage"])
    if message.refuses != refused:
        assert not refused, f"the kubelet would not start: {vector['error']}"
        assert stricter(vector["settings"], vector["machine"]), message.why
    elif not refused:
        assert message.sides.allocatable == amount(vector["reserved"].get("memory", "0"))
        assert message.allocatable == vector["allocatable"]["memory"]


@pytest.mark.parametrize("asked", ANSWERS, ids=lambda item: item["id"])
def test_verdicts_on_pods_equal_the_verdicts_of_the_kubelet_managers(asked: Question) -> None:
    why = why_dnm_refuses(asked)
    assert (not why) == (asked["answer"] == "admitted"), why
