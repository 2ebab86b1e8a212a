"""Tests of reading only the changes since the last run, on the embedded cluster over real HTTP. The
result is compared with a full list by another client."""

from __future__ import annotations

import stat
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest

from dnm.kube.client import KubeClient
from dnm.kube.reflector import Reflector
from dnm.kube.store import distrust_path
from dnm.lab.sandbox.cluster import Sandbox
from dnm.model.cluster import Reading
from dnm.model.config import Config
from dnm.model.kubelet import KubeletSettings
from dnm.model.node import Node
from dnm.model.pod import Pod, PodList
from tests.builders import a_config

BEGIN = datetime(2027, 3, 1, 12, tzinfo=UTC)
LISTS = ("/api/v1/pods", "/api/v1/nodes")


class Seen(NamedTuple):
    reading: Reading
    pods: list[Pod]
    nodes: list[Node]
    listed: int  # pages of requested lists
    watched: int


class Runs:
    """A series of dnm's runs, a minute apart, of which only the reads are played."""

    def __init__(self, sandbox: Sandbox, directory: Path) -> None:
        self.sandbox = sandbox
        self.now = BEGIN
        self.config: Config = a_config(
            kubeconfig_path=sandbox.kubeconfig,
            request_timeout=timedelta(seconds=300),
            converted_nodes_path=directory / "converted_nodes.json",
            watch_from_pods=0,
            relist_interval=timedelta(minutes=60),
        )

    @property
    def store(self) -> Path:
        return self.config.store_path

    def change(self, **settings: Any) -> None:
        self.config = msgspec.structs.replace(self.config, **settings)

    def read(self, keep: bool = True) -> Seen:
        self.now += timedelta(minutes=1)
        self.sandbox.requests.clear()
        kube = KubeClient.connect(self.config, Reflector(self.config, self.now))
        try:
            nodes, pods = kube.read_nodes(), kube.read_pods(())
            reading = kube.keep() if keep else Reading()
        finally:
            kube.close()
        assert isinstance(nodes, tuple) and isinstance(pods, PodList), (nodes, pods)
        asked = [entry for entry in self.sandbox.requests.all() if entry.path in LISTS]
        watched = sum("watch" in entry.query for entry in asked)
        listed = sum("metadata.name" not in entry.query.get("fieldSelector", "") for entry in asked)
        return Seen(reading, by_name(pods.pods), by_name(nodes), listed - watched, watched)

    def truth(self) -> tuple[list[Pod], list[Node]]:
        """Returns the pods and nodes as a client reads them that keeps nothing."""
        kube = KubeClient.connect(self.config)
        try:
            nodes, pods = kube.read_nodes(), kube.read_pods(())
        finally:
            kube.close()
        assert isinstance(nodes, tuple) and isinstance(pods, PodList)
        return by_name(pods.pods), by_name(nodes)

    def pods(self) -> list[str]:
        return [pod["metadata"]["name"] for pod in self.sandbox.objects("pods", "dev")]

    def read_right(self, way: str, reason: str = "") -> Seen:
        """Plays a run's reads, which must equal the current objects; checks how they were read."""
        seen = self.read()
        assert (seen.reading.way, seen.reading.reason) == (way, reason), seen.reading
        assert (seen.pods, seen.nodes) == self.truth()
        assert bool(seen.listed) == (way == "list")
        return seen


def by_name(things: tuple[Pod, ...] | tuple[Node, ...]) -> list:  # type: ignore[type-arg]
    return sorted(things, key=lambda pod: (getattr(pod, "namespace", ""), pod.name))


@pytest.fixture
def runs(sandbox: Sandbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Runs:
    monkeypatch.setattr("dnm.kube.session._FIRST_PAUSE", 0.01)
    sandbox.add_node("n1")
    sandbox.add_node("n2")
    sandbox.add_pods(5, "dev")
    sandbox.tick(60)
    sandbox.store.version += 5  # another object was written
    return Runs(sandbox, tmp_path)


def test_second_run_sends_no_list_request(runs: Runs) -> None:
    runs.read_right("list", "first")
    assert stat.S_IMODE(runs.store.stat().st_mode) == 0o600
    kept = runs.store.read_bytes()
    seen = runs.read_right("changes")
    assert seen.reading.changes == 0
    assert runs.store.read_bytes() == kept


def test_changed_objects_are_observed(runs: Runs) -> None:
    runs.read_right("list", "first")
    runs.sandbox.add_pods(3, "dev")
    runs.sandbox.add_node("n3")
    runs.sandbox.tick(60)
    runs.read_right("changes")
    runs.sandbox.delete("nodes", "n3")
    seen = runs.read_right("changes")
    assert seen.reading.changes and seen.watched == 2


def test_many_changes_cause_a_list_and_a_retry_ten_minutes_later(
    runs: Runs,
) -> None:
    runs.read_right("list", "first")
    names = runs.sandbox.add_pods(200, "dev")
    assert runs.read_right("changes").reading.changes == 200
    for name in names:
        runs.sandbox.edit(
            "pods", name, lambda pod: pod["metadata"].update(labels={"a": "b"}), "dev"
        )
    runs.sandbox.add_pods(1, "dev")
    runs.read_right("list", "too-much")
    for _ in range(9):
        assert not runs.read_right("list", "too-much").watched
    runs.read_right("list", "due")
    runs.read_right("changes")


def test_changed_queue_annotation_key_needs_a_full_list(runs: Runs) -> None:
    (name,) = runs.sandbox.add_pods(1, "dev", name="nb", labels={"site/queue": "root.other"})

    def queue_of(seen: Seen) -> str:
        return next(pod.queue for pod in seen.pods if pod.name == name)

    before = queue_of(runs.read_right("list", "first"))
    runs.change(yunikorn_queue_annotation="site/queue")
    assert queue_of(runs.read_right("list", "foreign")) == "root.other" != before
    assert queue_of(runs.read_right("changes")) == "root.other"


def replaced(runs: Runs) -> None:
    store = runs.sandbox.store
    store.get("namespaces", "", "kube-system")["metadata"]["uid"] = "another"  # type: ignore[index]
    store._objects["namespaces"]["", "kube-system"]._raw = None


def no_watch(runs: Runs) -> None:
    runs.sandbox.access.restrict(
        {("list", "pods", "*"), ("list", "nodes", "*"), ("get", "namespaces", "*")}
    )


def no_identity(runs: Runs) -> None:
    kinds = ("pods", "nodes")
    runs.sandbox.access.restrict({(verb, of, "*") for verb in ("list", "watch") for of in kinds})


def expired(runs: Runs) -> None:
    runs.sandbox.fault("status", path="^/api/v1/pods$", code=410, times=1)


def restored(runs: Runs) -> None:
    runs.sandbox.store.version -= 8


def restored_and_counts_on(runs: Runs) -> None:
    """Plays an etcd restored to before the last change of a pod: no watch event reports that."""
    store = runs.sandbox.store
    name = max(
        runs.sandbox.objects("pods", "dev"), key=lambda pod: int(pod["metadata"]["resourceVersion"])
    )["metadata"]["name"]
    runs.sandbox.delete("pods", name, "dev")
    store.events.pop()
    runs.sandbox.add_pods(1, "dev", name="since")


def restored_a_little(runs: Runs, of: str) -> None:
    """Plays an etcd restored to a version between the last reported change and dnm's list."""
    runs.sandbox.store.version -= 3
    if of == "pods":
        runs.sandbox.add_pods(1, "dev", name="since")
    else:
        runs.sandbox.add_node("since")
    runs.sandbox.store.version += 5


def hung_up(runs: Runs) -> None:
    runs.sandbox.fault("lost", path="^/api/v1/pods$", times=1)


def no_barrier(runs: Runs) -> None:
    runs.sandbox.fault("status", path="/namespaces/dev/pods$", code=500)


def refused(runs: Runs) -> None:
    runs.sandbox.fault("status", path="^/api/v1/pods$", code=500, times=1)


def unreadable(runs: Runs) -> None:
    def spoil(pod: dict[str, Any]) -> None:
        pod["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "many"}}

    (name,) = runs.sandbox.add_pods(1, "dev", name="odd")
    runs.sandbox.edit("pods", name, spoil, "dev")


def another_release(runs: Runs) -> None:
    kubelet = KubeletSettings(kube_reserved_cpu="1")
    types = {name: msgspec.structs.replace(node_type, kubelet=kubelet)
             for name, node_type in runs.config.node_types.items()}  # fmt: skip
    runs.change(node_types=types)


def too_small(runs: Runs) -> None:
    runs.change(watch_from_pods=1000, relist_interval=timedelta(minutes=1))


def an_hour(runs: Runs) -> None:
    runs.now += timedelta(minutes=59)


def set_clock_back(runs: Runs) -> None:
    runs.now -= timedelta(days=1)


STRIKES: dict[Callable[[Runs], None], str] = {
    expired: "expired",
    replaced: "foreign",
    no_watch: "forbidden",
    no_identity: "forbidden",
    restored: "backwards",
    restored_and_counts_on: "backwards",
    partial(restored_a_little, of="pods"): "backwards",
    partial(restored_a_little, of="nodes"): "backwards",
    hung_up: "unproved",
    no_barrier: "failed",
    refused: "failed",
    another_release: "foreign",
    lambda runs: runs.store.unlink(): "first",
    lambda runs: runs.store.chmod(0o666): "damaged",
    too_small: "small",
    an_hour: "due",
    set_clock_back: "due",
}


@pytest.mark.parametrize(("strike", "reason"), STRIKES.items())
def test_unproved_changes_cause_a_full_list_in_the_same_run(
    runs: Runs, strike: Callable[[Runs], None], reason: str
) -> None:
    runs.read_right("list", "first")
    strike(runs)
    runs.sandbox.add_pods(2, "dev", name="later")
    runs.read_right("list", reason)


def test_unreadable_pod_causes_full_lists_until_it_is_deleted(runs: Runs) -> None:
    runs.read_right("list", "first")
    unreadable(runs)
    runs.read_right("list", "unreadable")
    runs.read_right("list", "unreadable")
    for name in [name for name in runs.pods() if name.startswith("odd")]:
        runs.sandbox.delete("pods", name, "dev")
    runs.read_right("changes")


def test_missing_watch_permission_is_retried_once_an_hour(runs: Runs) -> None:
    no_watch(runs)
    runs.read_right("list", "first")
    runs.sandbox.add_pods(1, "dev")
    # The two requests are sent at once; the first refusal may precede the second request.
    assert runs.read_right("list", "forbidden").watched in (1, 2)
    runs.sandbox.access.rules = None
    assert [runs.read_right("list", "forbidden").watched for _ in range(3)] == [0, 0, 0]
    an_hour(runs)
    runs.read_right("list", "due")
    runs.read_right("changes")


def test_unproved_watches_are_suspended_for_an_hour(runs: Runs) -> None:
    runs.read_right("list", "first")
    for _ in range(3):
        runs.sandbox.add_pods(1, "dev")
        hung_up(runs)
        assert runs.read_right("list", "unproved").watched == 2
    runs.sandbox.faults.clear()
    assert runs.read_right("list", "unproved").watched == 0
    asked = Reflector(runs.config, runs.now, is_due=True)  # `dnm check --deep`
    with closing(KubeClient.connect(runs.config, asked)) as kube:
        kube.read_nodes(), kube.read_pods(())
        reading = asked.compare(kube.requests)
    assert (reading.compared, reading.reason) == ("", "unproved")
    assert "after the next full list" in reading.sentence
    an_hour(runs)
    runs.read_right("list", "due")
    runs.read_right("changes")


def test_hourly_list_equals_the_cached_objects(runs: Runs) -> None:
    runs.read_right("list", "first")
    for _ in range(2):
        runs.sandbox.add_pods(2, "dev")
        runs.sandbox.tick(60)
        runs.read_right("changes")
    an_hour(runs)
    runs.sandbox.add_pods(2, "dev")
    assert runs.read_right("list", "due").reading.compared == "equal"
    runs.read_right("changes")


def test_server_that_omits_an_event_is_detected_and_distrusted(runs: Runs) -> None:
    runs.read_right("list", "first")
    (name,) = runs.sandbox.add_pods(1, "dev", name="untold")
    runs.sandbox.store.events.pop()
    runs.sandbox.add_pods(1, "dev", name="told")
    seen = runs.read()
    assert seen.reading.way == "changes" and seen.pods != runs.truth()[0]
    an_hour(runs)
    reading = runs.read_right("list", "due").reading
    assert reading.compared == "different"
    pod = runs.sandbox.get("pods", name, "dev")
    assert pod is not None
    version = pod["metadata"]["resourceVersion"]
    assert f"dev/{name} is kept at version none and listed at {version}" in reading.trouble
    an_hour(runs)
    assert "untold" in runs.read_right("list", "distrusted").reading.sentence
    distrust_path(runs.store).unlink()
    runs.read_right("list", "first")
    runs.read_right("changes")


@pytest.mark.parametrize(
    ("changes", "asks_for_pods", "reason"),
    [
        pytest.param({}, False, "partial", id="no pods were listed"),
        pytest.param({"watch_from_pods": 6}, True, "small", id="five pods"),
        pytest.param({"watch_from_pods": 5}, True, "first", id="as many as it takes"),
    ],
)
def test_only_a_complete_read_of_a_large_cluster_is_cached(
    runs: Runs, changes: dict[str, Any], asks_for_pods: bool, reason: str
) -> None:
    runs.change(**changes)
    with closing(KubeClient.connect(runs.config)) as kube:
        assert kube.read_nodes() and (not asks_for_pods or kube.read_pods(()))
        assert kube.keep().reason == reason
    assert runs.store.exists() == (reason == "first")


def test_new_release_trusts_a_distrusted_server_again(runs: Runs) -> None:
    distrust_path(runs.store).write_text("0.0.1\nsomething was left out\n")
    runs.read_right("list", "first")


def test_read_only_command_writes_no_cache(runs: Runs, tmp_path: Path) -> None:
    runs.read(keep=False)
    assert not runs.store.exists()
    runs.read_right("list", "first")
    kept = runs.store.read_bytes()
    runs.sandbox.add_pods(1, "dev")
    runs.read(keep=False)
    assert runs.store.read_bytes() == kept
    assert runs.read_right("changes").reading.changes


def test_unwritable_cache_costs_a_full_list(runs: Runs) -> None:
    runs.store.with_name(runs.store.name + ".new").mkdir()
    assert "can't be written" in runs.read_right("list", "first").reading.sentence
    runs.read_right("list", "first")


def damaged(content: bytes, place: int) -> tuple[bytes, ...]:
    """Returns the content three times: with a changed bit, with a cut end, with one byte more."""
    turned = bytes([content[place] ^ (1 << place % 8)])
    rest = content[place + 1 :]
    return (
        content[:place] + turned + rest,
        content[:place],
        content[:place] + b"x" + content[place:],
    )


def test_damage_to_any_byte_of_the_cache_causes_a_full_list(runs: Runs) -> None:
    from dnm.kube.store import StoreFile
    from dnm.kube.watching import NotProved

    runs.read_right("list", "first")
    kept = runs.store.read_bytes()
    StoreFile(kept).decode()
    for place in range(len(kept)):
        for content in damaged(kept, place):
            with pytest.raises(NotProved):
                StoreFile(content)
    for content in damaged(kept, len(kept) // 2):
        runs.store.write_bytes(content)
        seen = runs.read()
        assert (seen.reading.way, (seen.pods, seen.nodes)) == ("list", runs.truth())
