"""Tests of an administrator's workload file: its simulation, and a message for each error."""

from __future__ import annotations

import json
from typing import Any

import pytest

from dnm.simulate.accounting import SimulationError
from dnm.simulate.batch import SimJob
from dnm.simulate.values import Workload
from dnm.simulate.workload_file import parse_workload
from tests.builders import QUEUE, a_config

PODS = {"at": 60, "lasts": 600, "queue": QUEUE, "request": {"cpu": "4", "memory": "16G"}}
JOBS = {"at": 0, "lasts": 600, "nodes": 2, "node_type": "a"}
FILE: dict[str, Any] = {
    "schema": "dnm.workload/1",
    "seconds": 3600,
    "queues": {QUEUE: {"cpu": "80", "memory": "320G"}},
    "permanent": [{"cpu": 80, "memory": "320G"}],
    "nodes": {"a": 12},
    "pods": [{**PODS, "count": 3}],
    "jobs": [{**JOBS, "count": 2}],
}


def parsed(**changes: Any) -> Workload:
    return parse_workload(json.dumps({**FILE, **changes}).encode(), a_config(), seed=7)


def test_workload_file_sets_pods_jobs_and_nodes() -> None:
    made = parsed()
    (ask, *_) = made.asks
    assert len(made.asks) == 3
    assert (ask.at, ask.lasts) == (60, 600)
    assert dict(ask.request) == {"cpu": 4000, "memory": 16 * 10**9}
    assert made.jobs == (SimJob(at=0, nodes=2, lasts=600, limit=600),) * 2
    assert made.limits == {QUEUE: {"cpu": 80_000, "memory": 320 * 10**9}}
    assert made.free == ({"cpu": 80_000, "memory": 320 * 10**9, "pods": 110},)
    assert made.classes["a"].count == 12
    assert (made.seed, made.lasts, made.namespaces) == (7, 3600, {"dev": (QUEUE, "a")})


def test_gang_pods_of_a_workload_file_start_together() -> None:
    made = parsed(pods=[{**PODS, "count": 2, "gang": True}, {**PODS, "gang": True}, PODS])
    first, second, third, plain = (ask.gang for ask in made.asks)
    assert first == second != third
    assert first and third and not plain


WRONG: dict[str, tuple[bytes | dict[str, Any], str]] = {
    "no JSON": (b"{", "it is not a workload: Input data was truncated"),
    "bytes that are no text": (b"\xff\xfe", "it is not a workload"),
    "another schema": ({"schema": "dnm.workload/9"}, "schema = 'dnm.workload/9': this dnm plays"),
    "an unknown key": ({"pod": []}, "unknown field `pod`"),
    "a time before it begins": ({"pods": [{**PODS, "at": -1}]}, r"`\$.pods\[0\].at`"),
    "pods that last for no time": ({"pods": [{**PODS, "lasts": 0}]}, r"`\$.pods\[0\].lasts`"),
    "too many of one": ({"pods": [{**PODS, "count": 10**6}]}, r"`\$.pods\[0\].count`"),
    "too many in all": ({"pods": [{**PODS, "count": 10**5}] * 21}, "more than 2,000,000"),
    "a queue that is not monitored": ({"pods": [{**PODS, "queue": "root.x"}]},
                                      f"the queue root.x, which must .* monitored are {QUEUE}"),
    "a queue without a limit": ({"queues": {}}, "must be in queues"),
    "a node type that there is not": ({"nodes": {"a": 12, "z": 1}},
                                      "node type 'z' must be in nodes"),
    "jobs of a type without nodes": ({"jobs": [{**JOBS, "node_type": "g"}]}, "node type 'g'"),
    "an amount that is none": ({"pods": [{**PODS, "request": {"cpu": "many"}}]},
                               "cpu = 'many': 'many' is not a Kubernetes quantity; write"),
    "a share above one": ({"fails": 1.5}, r"`\$.fails`"),
    "a document nested without end": (b'{"pods":' + b"[" * 100_000, "it is not a workload"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_malformed_workload_file_gets_a_sentence(name: str) -> None:
    settings, sentence = WRONG[name]
    content = settings if isinstance(settings, bytes) else json.dumps({**FILE, **settings}).encode()
    with pytest.raises(SimulationError, match=sentence):
        parse_workload(content, a_config(), seed=1)


@pytest.mark.parametrize(
    "begins", ["2026-03-02T00:00:00", "9999-12-31T23:30:00Z", "0001-01-01T00:00:00Z"]
)
def test_malformed_begin_of_a_workload_is_refused(begins: str) -> None:
    with pytest.raises(SimulationError, match=r"write e\.g\. 2026-03-02"):
        parsed(begins=begins)


def test_begin_of_a_workload_is_converted_to_utc() -> None:
    assert (
        parsed(begins="2026-03-02T01:00:00+02:00").begins.isoformat() == "2026-03-01T23:00:00+00:00"
    )
