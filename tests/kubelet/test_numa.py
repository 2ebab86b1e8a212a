"""Which pods a kubelet with single-numa-node admits, as its own code has said beforehand.

`admitted.json` has the answers of the topology, CPU and memory managers of Kubernetes 1.34.4;
tests/real/test_kubelet.py asks them again, and about many more.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.kubelet.admitting import Question, why_dnm_refuses

ADMITTED = Path(__file__).parents[1] / "data" / "kubelet" / "admitted.json"
ANSWERS: list[Question] = json.loads(ADMITTED.read_text())


@pytest.mark.parametrize("asked", ANSWERS, ids=lambda one: one["id"])
def test_dnm_says_of_a_pod_what_the_managers_say(asked: Question) -> None:
    why = why_dnm_refuses(asked)
    assert (not why) == (asked["answer"] == "admitted"), why
