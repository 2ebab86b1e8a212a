"""Tests that each amount is added exactly once, whatever happens between the steps of a write. They
use the real client over HTTP, real processes and SIGKILL."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from dnm.lab.sandbox.cluster import Sandbox
from dnm.lab.sandbox.yunikorn_config import CONFIGS_NAME
from dnm.model.errors import DnmError, KubeConflict, KubeError, QueueError
from dnm.model.queue_edit import QueueOutcome
from dnm.model.value import Resources
from dnm.queues.yunikorn.rest import YunikornClient, checksum_of
from dnm.queues.yunikorn.source import LEDGER_ANNOTATION
from dnm.queues.yunikorn.tree import parse_tree
from tests import queue_writer
from tests.processes import warm_processes
from tests.queue_kit import ONE, TREE, TWO, A, B, change, check_text, lend, nodes_of
from tests.queue_writer import NAMESPACE

Nodes = Mapping[str, Mapping[str, Resources]]
STORY: list[Nodes] = [ONE, TWO, {**TWO, **nodes_of(B, "n3")}, nodes_of(A, "n2"), {}]


def text_with(nodes: Nodes) -> str:
    """Returns the document with the amounts of these lent nodes."""
    return lend(TREE, nodes).text if nodes else TREE


@pytest.fixture
def live(tmp_path: Path) -> Iterator[Sandbox]:
    """Yields a sandbox in real time, so that its scheduler reads what a test writes."""
    cluster = Sandbox(tmp_path / "sandbox", manual=False).start()
    cluster.set_queues(TREE)
    yield cluster
    cluster.stop()


def http_write(sandbox: Sandbox, nodes: Nodes, instance: str = "prod") -> QueueOutcome:
    yunikorn = YunikornClient(sandbox.url)
    return queue_writer.write(sandbox.kubeconfig, yunikorn, instance, nodes)


def document(sandbox: Sandbox) -> str:
    return sandbox.queues_text()


def puts(sandbox: Sandbox) -> int:
    """Returns how many writes of ConfigMaps the API server has accepted."""
    return sum(write.method == "PUT" and write.code == 200 for write in sandbox.requests.writes())


def impatient(sandbox: Sandbox, nodes: Nodes, yunikorn: YunikornClient) -> QueueOutcome:
    uptake = timedelta(milliseconds=300)
    return queue_writer.write(sandbox.kubeconfig, yunikorn, "prod", nodes, uptake)


def test_write_is_confirmed_by_yunikorn_and_reversed_at_the_end(live: Sandbox) -> None:
    for nodes in STORY:
        outcome = http_write(live, nodes)
        assert outcome.is_written and outcome.is_confirmed and not outcome.notes
        assert document(live) == text_with(nodes)
        assert live.yunikorn.checksum == checksum_of(document(live))
        assert not http_write(live, nodes).is_written
    assert document(live) == TREE and puts(live) == len(STORY)


def test_write_names_dnm_as_its_field_manager(live: Sandbox) -> None:
    """The API server derives the field manager from the User-Agent. dnm needs it to know whether it
    wrote the document itself."""
    for before, after in (({}, "kubectl-client-side-apply"), (TWO, "dnm")):
        http_write(live, before)
        result = (live.get("configmaps", CONFIGS_NAME, NAMESPACE) or {})["metadata"][
            "managedFields"
        ]
        changed = [item for item in result if "f:queues.yaml" in item["fieldsV1"].get("f:data", {})]
        assert [item["manager"] for item in changed] == [after]


KILLS = [
    (point, when, number)
    for point, numbers in (
        ("kube.read_config_map", (1, 2)),
        ("queues.validate_conf", (1,)),
        ("kube.write_config_map", (1,)),
        ("queues.read_config", (1,)),
    )
    for number in numbers
    for when in ("before", "after")
]


def a_writer(*words: str) -> dict[str, Any]:
    return {"program": "queue-writer", "arguments": words}


@pytest.mark.parametrize(("point", "when", "number"), KILLS)
def test_sigkill_between_any_two_steps_keeps_the_limits_right(
    live: Sandbox, point: str, when: str, number: int
) -> None:
    """After the kill another instance writes, then the killed one repeats its write."""
    job = a_writer(str(live.kubeconfig), live.url, "prod", json.dumps(TWO))
    (writer,) = warm_processes().start({**job, "fault": f"{point}:{when}:kill:{number}"})
    killed = writer.wait()
    assert killed.was_killed, killed.err
    is_done = (point, when) in (
        ("kube.write_config_map", "after"),
        ("queues.read_config", "before"),
        ("queues.read_config", "after"),
    )
    assert document(live) == (text_with(TWO) if is_done else TREE)
    http_write(live, nodes_of(A, "m1"), instance="test")
    assert http_write(live, TWO).is_written is not is_done
    assert parse_tree(document(live)).queues[A].max["vcore"] == 80_000 + 3 * 128_000
    http_write(live, {}, instance="test")
    http_write(live, {})
    assert document(live) == TREE


@pytest.mark.parametrize("times", [1, 4])
def test_write_is_repeated_after_a_409_conflict(live: Sandbox, times: int) -> None:
    live.fault("status", path="configmaps", methods=("PUT",), code=409, times=times)
    assert http_write(live, TWO).is_confirmed
    assert document(live) == text_with(TWO)


def test_repeated_409_conflicts_leave_the_write_to_the_next_run(live: Sandbox) -> None:
    fault = live.fault("status", path="configmaps", methods=("PUT",), code=409)
    with pytest.raises(KubeConflict, match="The next run tries again"):
        http_write(live, TWO)
    assert document(live) == TREE and fault.times == -1
    live.faults.clear()
    assert http_write(live, TWO).is_confirmed


@pytest.mark.parametrize("kind", ["lost", "cut"])
def test_write_with_a_lost_answer_is_recognized_as_done(live: Sandbox, kind: str) -> None:
    live.fault(kind, path="configmaps", methods=("PUT",), times=1)
    outcome = http_write(live, TWO)
    assert outcome.is_confirmed and "took effect although" in outcome.notes[0]
    assert document(live) == text_with(TWO) and puts(live) == 1


def test_failed_write_is_repeated_by_the_next_run(live: Sandbox) -> None:
    live.fault("down", path="configmaps", methods=("PUT",))
    with pytest.raises(KubeError):
        http_write(live, TWO)
    assert document(live) == TREE
    live.faults.clear()
    assert http_write(live, TWO).is_confirmed


def test_concurrent_writers_of_two_instances_keep_both_amounts(live: Sandbox) -> None:
    """Eight processes of two instances add nodes at the same time. No amount is lost."""
    wanted = {"prod": nodes_of(A, "n1", "n2"), "test": nodes_of(A, "m1")}
    jobs = [
        a_writer(str(live.kubeconfig), "", instance, json.dumps(nodes))
        for instance, nodes in wanted.items()
    ]
    written = [child.wait().out.strip() for child in warm_processes().start(*jobs * 4)]
    for instance, nodes in wanted.items():
        http_write(live, nodes, instance=instance)
    assert parse_tree(document(live)).queues[A].max["vcore"] == 80_000 + 3 * 128_000
    assert written.count("True") <= 2 == puts(live)


def test_write_between_read_and_write_is_kept(live: Sandbox) -> None:
    """Another client writes after dnm's read. dnm keeps that change and edits the new text."""

    class Late(YunikornClient):
        def validate(self, text: str) -> str | None:
            http_write(live, nodes_of(A, "m1"), instance="test")
            return super().validate(text)

    late, patience = Late(live.url), timedelta(seconds=300)
    assert queue_writer.write(live.kubeconfig, late, "prod", TWO, patience).is_confirmed
    assert parse_tree(document(live)).queues[A].max["vcore"] == 80_000 + 3 * 128_000


def test_refused_plan_writes_nothing(live: Sandbox) -> None:
    live.set_queues(TREE + "---\n")
    with pytest.raises(QueueError, match="several YAML documents"):
        http_write(live, ONE)
    assert puts(live) == 0


def test_document_refused_by_yunikorn_is_not_written(live: Sandbox) -> None:
    class Strict(YunikornClient):
        def validate(self, text: str) -> str:
            return "too bad"

    with pytest.raises(QueueError, match="YuniKorn refuses the edited queue document: too bad"):
        impatient(live, TWO, Strict(live.url))
    assert document(live) == TREE and puts(live) == 0


def test_document_that_yunikorn_does_not_load_is_reverted(live: Sandbox) -> None:
    live.yunikorn.takes_up = False
    with pytest.raises(QueueError, match=r"did not reload .* within 0 s .* restored the old"):
        impatient(live, TWO, YunikornClient(live.url))
    assert document(live) == TREE and puts(live) == 2
    stored = live.get("configmaps", CONFIGS_NAME, NAMESPACE) or {}
    assert LEDGER_ANNOTATION not in stored["metadata"].get("annotations", {})
    live.yunikorn.takes_up = True
    assert http_write(live, TWO).is_confirmed


@pytest.mark.parametrize(
    "details",
    [
        pytest.param({"kind": "status", "code": 409}, id="a conflict"),
        pytest.param({"kind": "lost"}, id="a lost answer"),
    ],
)
def test_document_is_reverted_in_spite_of(live: Sandbox, details: dict[str, Any]) -> None:
    """The scheduler does not confirm the document, so dnm restores it; that write has the fault."""
    live.yunikorn.takes_up = False
    live.fault(path="configmaps", methods=("PUT",), skip=1, times=1, **details)
    with pytest.raises(QueueError, match="restored the old document"):
        impatient(live, TWO, YunikornClient(live.url))
    assert document(live) == TREE


def test_document_that_cannot_be_reverted_is_reported(live: Sandbox) -> None:
    live.yunikorn.takes_up = False
    live.fault("status", path="configmaps", methods=("PUT",), skip=1, code=403)
    with pytest.raises(KubeError, match="403"):
        impatient(live, TWO, YunikornClient(live.url))
    assert parse_tree(document(live)).queues[A].max["vcore"] > 80_000


def test_document_changed_by_another_client_is_not_reverted(live: Sandbox) -> None:
    """Another client changes the document while dnm waits for the scheduler to use its own. dnm
    stops waiting and keeps the change."""
    edited = change(text_with(TWO), "vcore: 64", "vcore: 65")
    looks = []

    class Behind(YunikornClient):
        def read_checksum(self) -> str:
            live.set_queues(edited)
            looks.append(live.yunikorn.checksum)
            return "another"

    outcome = queue_writer.write(live.kubeconfig, Behind(live.url), "prod", TWO)
    assert len(looks) == 1
    assert outcome.is_confirmed is None and "another client changed" in outcome.notes[0]
    assert document(live) == edited


def test_write_without_hot_refresh_does_not_wait(live: Sandbox) -> None:
    live.edit(
        "configmaps",
        CONFIGS_NAME,
        lambda results: results["data"].update({"service.enableConfigHotRefresh": "false"}),
        NAMESPACE,
    )
    outcome = http_write(live, TWO)
    assert outcome.is_written and outcome.is_confirmed is None
    assert "enableConfigHotRefresh is false" in outcome.notes[0]


def test_write_is_done_unconfirmed_if_yunikorn_is_unreachable(live: Sandbox) -> None:
    live.fault("down", path="/ws/v1")
    outcome = impatient(live, TWO, YunikornClient(live.url))
    assert outcome.is_written and outcome.is_confirmed is None
    assert "checked by dnm's own rules only" in outcome.notes[0]
    assert "not confirmed by YuniKorn" in outcome.notes[1]
    assert check_text(document(live)) == ()


def test_garbage_from_the_api_server_is_an_error(live: Sandbox) -> None:
    live.fault("garbage", path="configmaps")
    with pytest.raises(DnmError):
        http_write(live, TWO)
