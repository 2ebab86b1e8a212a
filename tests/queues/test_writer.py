"""Exactly once: whatever happens between the steps of a write, the next one sets it right.

First against an API in memory, where every step can be the last; then over real HTTP, with the real
client, real processes and SIGKILL.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from dnm.lab.sandbox.cluster import Sandbox
from dnm.model.cluster import ConfigMap
from dnm.model.errors import DnmError, KubeConflict, KubeError, QueueError
from dnm.model.queue_edit import QueueWants
from dnm.model.value import Resources
from dnm.queues.edit import edit_source
from dnm.queues.source import LEDGER_ANNOTATION
from dnm.queues.tree import check_text, parse_tree
from dnm.queues.writer import QueueOutcome, apply_queue_edit
from dnm.queues.yunikorn_rest import YunikornClient, checksum_of
from tests import queue_writer
from tests.processes import the_warm
from tests.queue_kit import TREE, A, B, change, config_map, nodes_of
from tests.queue_writer import PLACE

Nodes = Mapping[str, Mapping[str, Resources]]
ONE = nodes_of(A, "n1")
TWO = nodes_of(A, "n1", "n2")
STORY: list[Nodes] = [ONE, TWO, {**TWO, **nodes_of(B, "n3")}, nodes_of(A, "n2"), {}]


class Killed(BaseException):
    """The process is no more."""


class Api:
    """ConfigMaps in memory. `strike` is called with the number of the step and `before` or `after`
    it; whatever it raises is what the client sees."""

    def __init__(self, text: str = TREE) -> None:
        self.stored = config_map(text)
        self.steps = 0
        self.writes = 0
        self.strike: Callable[[int, str], None] = lambda step, when: None

    def read_config_map(self, namespace: str, name: str) -> ConfigMap | None:
        self._step("before")
        found = self.stored if (namespace, name) == PLACE else None
        self._step("after")
        return found

    def write_config_map(self, config_map: ConfigMap) -> ConfigMap:
        self._step("before")
        self.put(config_map)
        self._step("after")
        return self.stored

    def put(self, config_map: ConfigMap) -> None:
        if config_map.resource_version != self.stored.resource_version:
            raise KubeConflict("somebody wrote in between")
        version = str(int(config_map.resource_version) + 1)
        self.stored = msgspec.structs.replace(config_map, resource_version=version)
        self.writes += 1

    def _step(self, when: str) -> None:
        self.steps += when == "before"
        self.strike(self.steps, when)

    @property
    def text(self) -> str:
        return self.stored.data["queues.yaml"]

    @property
    def ledger(self) -> str:
        return self.stored.annotations.get(LEDGER_ANNOTATION, "")


def write(api: Api, nodes: Nodes, instance: str = "prod") -> QueueOutcome:
    wants = QueueWants(instance_id=instance, nodes=nodes, remembered="")
    return apply_queue_edit(api, PLACE, lambda source: edit_source(source, wants))


def quietly(nodes: Nodes, before: Nodes | None = None) -> Api:
    """The API after an undisturbed edit."""
    api = Api()
    if before is not None:
        write(api, before)
    write(api, nodes)
    return api


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("step", range(1, 5))
def test_killed_at_any_step_of_the_story(step: int, when: str) -> None:
    api = Api()
    for nodes in STORY:
        api.steps, api.strike = 0, lambda number, now: die(number, now)

        def die(number: int, now: str) -> None:
            if (number, now) == (step, when):
                raise Killed

        with contextlib.suppress(Killed):
            write(api, nodes)
        api.strike = lambda number, now: None
        write(api, nodes)
        expected = quietly(nodes, before={})
        assert api.text == expected.text
        sections = json.loads(api.ledger)["instances"] if api.ledger else {"prod": {"queues": {}}}
        assert sections["prod"]["queues"].keys() == nodes.keys()
        writes = api.writes
        assert not write(api, nodes).is_written and api.writes == writes
    assert api.text == TREE


@pytest.mark.parametrize("conflicts", range(7))
def test_somebody_else_writes_between_read_and_write(conflicts: int) -> None:
    """Another instance, a node more each time."""
    api, left = Api(), [conflicts]

    def other(step: int, when: str) -> None:
        if step % 3 == 0 and when == "before" and left[0]:
            left[0] -= 1
            strike, api.strike = api.strike, lambda number, now: None
            names = [f"m{number}" for number in range(conflicts - left[0])]
            write(api, nodes_of(A, *names), instance="test")
            api.steps, api.strike = step, strike

    api.strike = other
    if conflicts < 5:
        assert write(api, ONE).is_written
    else:
        with pytest.raises(KubeConflict, match="changed by others 5 times in a row"):
            write(api, ONE)
        api.strike = lambda number, now: None
        write(api, ONE)
    both = min(conflicts, 5) + 1
    assert parse_tree(api.text).queues[A].max["vcore"] == 80_000 + both * 128_000
    write(api, {})
    write(api, {}, instance="test")
    assert api.text == TREE


LOST = [
    pytest.param("after", True, id="after the write took effect"),
    pytest.param("before", False, id="before the write"),
]


@pytest.mark.parametrize(("when", "took_effect"), LOST)
def test_a_lost_answer(when: str, took_effect: bool) -> None:
    api = Api()

    def lose(step: int, now: str) -> None:
        if (step, now) == (3, when):
            raise KubeError("the connection broke")

    api.strike = lose
    if took_effect:
        outcome = write(api, ONE)
        assert outcome.is_written
        assert outcome.notes == (
            "the write took effect although its answer was lost: the connection broke",
        )
    else:
        with pytest.raises(KubeError, match="the connection broke"):
            write(api, ONE)
        assert api.text == TREE
    api.strike = lambda number, now: None
    assert write(api, ONE).is_written is not took_effect
    assert (api.text, api.writes) == (quietly(ONE).text, 1)


def test_a_lost_answer_and_then_somebody_else() -> None:
    api = Api()

    def lose(step: int, now: str) -> None:
        if (step, now) == (3, "after"):
            api.strike = lambda number, moment: None
            write(api, nodes_of(A, "m1"), instance="test")
            raise KubeError("the connection broke")

    api.strike = lose
    with pytest.raises(KubeError, match="the connection broke"):
        write(api, ONE)
    assert not write(api, ONE).is_written
    assert parse_tree(api.text).queues[A].max["vcore"] == 336_000


def test_a_refused_plan_writes_nothing() -> None:
    api = Api(TREE + "---\n")
    with pytest.raises(QueueError, match="several YAML documents"):
        write(api, ONE)
    assert api.writes == 0


# --- over HTTP -----------------------------------------------------------------------------------


@pytest.fixture
def live(tmp_path: Path) -> Iterator[Sandbox]:
    """In real time, so that the scheduler takes up what is written."""
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
    """Writes of ConfigMaps that took effect."""
    return sum(one.method == "PUT" and one.code == 200 for one in sandbox.requests.writes())


def impatient(sandbox: Sandbox, nodes: Nodes, yunikorn: YunikornClient) -> QueueOutcome:
    uptake = timedelta(milliseconds=300)
    return queue_writer.write(sandbox.kubeconfig, yunikorn, "prod", nodes, uptake)


def test_written_proved_and_returned(live: Sandbox) -> None:
    for nodes in STORY:
        outcome = http_write(live, nodes)
        assert outcome.is_written and outcome.is_confirmed and not outcome.notes
        assert document(live) == quietly(nodes, before={}).text
        assert live.yunikorn.checksum == checksum_of(document(live))
        assert not http_write(live, nodes).is_written
    assert document(live) == TREE and puts(live) == len(STORY)


KILLS = [
    (point, when, number)
    for point, numbers in (
        ("kube.read_config_map", (1, 2)),
        ("yunikorn.validate_conf", (1,)),
        ("kube.write_config_map", (1,)),
        ("yunikorn.read_config", (1,)),
    )
    for number in numbers
    for when in ("before", "after")
]


def a_writer(*words: str) -> dict[str, Any]:
    return {"program": "queue-writer", "arguments": words}


@pytest.mark.parametrize(("point", "when", "number"), KILLS)
def test_sigkill_between_any_two_steps(live: Sandbox, point: str, when: str, number: int) -> None:
    """Another instance has written meanwhile, and the final numbers are right."""
    job = a_writer(str(live.kubeconfig), live.url, "prod", json.dumps(TWO))
    (writer,) = the_warm().start({**job, "fault": f"{point}:{when}:kill:{number}"})
    killed = writer.wait()
    assert killed.was_killed, killed.err
    is_done = (point, when) in (
        ("kube.write_config_map", "after"),
        ("yunikorn.read_config", "before"),
        ("yunikorn.read_config", "after"),
    )
    assert document(live) == (quietly(TWO).text if is_done else TREE)
    http_write(live, nodes_of(A, "m1"), instance="test")
    assert http_write(live, TWO).is_written is not is_done
    assert parse_tree(document(live)).queues[A].max["vcore"] == 80_000 + 3 * 128_000
    http_write(live, {}, instance="test")
    http_write(live, {})
    assert document(live) == TREE


@pytest.mark.parametrize("times", [1, 4])
def test_409_from_the_server(live: Sandbox, times: int) -> None:
    live.fault("status", path="configmaps", methods=("PUT",), code=409, times=times)
    assert http_write(live, TWO).is_confirmed
    assert document(live) == quietly(TWO).text


def test_409_every_time_gives_up_and_the_next_run_goes_on(live: Sandbox) -> None:
    fault = live.fault("status", path="configmaps", methods=("PUT",), code=409)
    with pytest.raises(KubeConflict, match="the next run tries again"):
        http_write(live, TWO)
    assert document(live) == TREE and fault.times == -1
    live.faults.clear()
    assert http_write(live, TWO).is_confirmed


@pytest.mark.parametrize("kind", ["lost", "cut"])
def test_the_answer_of_a_write_that_took_effect_is_lost(live: Sandbox, kind: str) -> None:
    live.fault(kind, path="configmaps", methods=("PUT",), times=1)
    outcome = http_write(live, TWO)
    assert outcome.is_confirmed and "took effect although" in outcome.notes[0]
    assert document(live) == quietly(TWO).text and puts(live) == 1


def test_the_server_is_down_for_the_write(live: Sandbox) -> None:
    live.fault("down", path="configmaps", methods=("PUT",))
    with pytest.raises(KubeError):
        http_write(live, TWO)
    assert document(live) == TREE
    live.faults.clear()
    assert http_write(live, TWO).is_confirmed


def test_two_instances_at_once(live: Sandbox) -> None:
    """Eight processes, two instances, each wants its nodes; everybody's are there at the end."""
    wanted = {"prod": nodes_of(A, "n1", "n2"), "test": nodes_of(A, "m1")}
    jobs = [
        a_writer(str(live.kubeconfig), "", instance, json.dumps(nodes))
        for instance, nodes in wanted.items()
    ]
    written = [child.wait().out.strip() for child in the_warm().start(*jobs * 4)]
    for instance, nodes in wanted.items():
        http_write(live, nodes, instance=instance)
    assert parse_tree(document(live)).queues[A].max["vcore"] == 80_000 + 3 * 128_000
    assert written.count("True") <= 2 == puts(live)


def test_yunikorn_refuses_and_nothing_is_written(live: Sandbox) -> None:
    class Strict(YunikornClient):
        def validate(self, text: str) -> str:
            return "too bad"

    with pytest.raises(QueueError, match="YuniKorn refuses the edited queue document: too bad;"):
        impatient(live, TWO, Strict(live.url))
    assert document(live) == TREE and puts(live) == 0


def test_not_taken_up_is_put_back(live: Sandbox) -> None:
    live.yunikorn.takes_up = False
    with pytest.raises(QueueError, match=r"did not take .* up within 0 s .* was put back"):
        impatient(live, TWO, YunikornClient(live.url))
    assert document(live) == TREE and puts(live) == 2
    annotations = live.get("configmaps", PLACE[1], PLACE[0])["metadata"].get("annotations", {})
    assert LEDGER_ANNOTATION not in annotations
    live.yunikorn.takes_up = True
    assert http_write(live, TWO).is_confirmed


def test_put_back_only_what_is_still_ours(live: Sandbox) -> None:
    """Somebody changed the document while dnm waited for the scheduler, which has theirs: dnm waits
    no longer."""
    edited = change(quietly(TWO).text, "vcore: 64", "vcore: 65")
    looks = []

    class Behind(YunikornClient):
        def read_checksum(self) -> str:
            live.set_queues(edited)
            looks.append(live.yunikorn.checksum)
            return "another"

    outcome = queue_writer.write(live.kubeconfig, Behind(live.url), "prod", TWO)
    assert len(looks) == 1
    assert outcome.is_confirmed is None and "somebody changed" in outcome.notes[0]
    assert document(live) == edited


def test_without_hot_refresh_nobody_waits(live: Sandbox) -> None:
    live.edit(
        "configmaps",
        PLACE[1],
        lambda found: found["data"].update({"service.enableConfigHotRefresh": "false"}),
        PLACE[0],
    )
    outcome = http_write(live, TWO)
    assert outcome.is_written and outcome.is_confirmed is None
    assert "enableConfigHotRefresh is false" in outcome.notes[0]


def test_a_scheduler_that_can_not_be_reached_is_done_without(live: Sandbox) -> None:
    live.fault("down", path="/ws/v1")
    outcome = impatient(live, TWO, YunikornClient(live.url))
    assert outcome.is_written and outcome.is_confirmed is None
    assert "checked by dnm's own rules only" in outcome.notes[0]
    assert "not confirmed by YuniKorn" in outcome.notes[1]
    assert check_text(document(live)) == ()


def test_an_unreadable_cluster_is_an_error(live: Sandbox) -> None:
    live.fault("garbage", path="configmaps")
    with pytest.raises(DnmError):
        http_write(live, TWO)
