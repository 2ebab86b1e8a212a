"""Random histories of a cluster against the truth: what a run says is proved equals the list.

The cluster is an etcd, two API servers with caches and rings of their own before it, and writers.
It restarts, lags, forgets, breaks off, is restored from backups, and counts on as if nothing had
been. Nothing of dnm is in it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from dnm.kube.access import Access
from dnm.kube.nodes import read_node_page
from dnm.kube.pods import PodReducer
from dnm.kube.reflector import Reflector
from dnm.kube.store import distrust_path
from dnm.model.config import Config
from dnm.model.reading import Reading
from tests.builders import a_config
from tests.kube.fake_api import ApiServer, Cluster, Object, Watches
from tests.scripted_server import an_access

ACCESS = an_access("https://api")
BEGIN = datetime(2027, 3, 1, tzinfo=UTC)


def document(kind: str, data: Object) -> Object:
    metadata = {"name": data["name"], "uid": data["uid"], "resourceVersion": str(data["version"])}
    if kind == "Node":
        return {"metadata": metadata, "status": {"allocatable": {"cpu": data["size"]}}}
    container = {"name": "c", "resources": {"requests": {"cpu": data["size"]}}}
    return {
        "metadata": {**metadata, "namespace": "dev", "labels": {"queue": data["size"]}},
        "spec": {"containers": [container], "nodeName": data["node"], "schedulerName": "yunikorn"},
        "status": {"phase": "Running"},
    }


def read_cluster(path: str) -> SimpleNamespace:
    return SimpleNamespace(body=b'{"metadata":{"uid":"the-cluster"}}')


class Machine(RuleBasedStateMachine):
    @initialize()
    def begin(self) -> None:
        import tempfile

        self.directory = tempfile.TemporaryDirectory()
        self.config: Config = a_config(
            converted_nodes_path=Path(self.directory.name) / "nodes.json",
            watch_from_pods=0,
            relist_interval=timedelta(minutes=60),
        )
        self.now = BEGIN
        self.cluster = Cluster(document)
        self.backups = [self.cluster.etcd.backup()]
        self.is_honest = True
        for number in range(3):
            self.write(number, "Node", "1", "")

    def teardown(self) -> None:
        if hasattr(self, "directory"):
            self.directory.cleanup()

    # --- the cluster's life -------------------------------------------------------------------

    @rule(
        number=st.integers(0, 5),
        kind=st.sampled_from(("Pod", "Pod", "Pod", "Node")),
        size=st.sampled_from(("1", "2")),
        node=st.sampled_from(("", "n0", "n1")),
    )
    def write(self, number: int, kind: str, size: str, node: str) -> None:
        self.cluster.etcd.put(kind, f"n{number}", size=size, node=node)

    @rule(number=st.integers(0, 5), kind=st.sampled_from(("Pod", "Node")))
    def remove(self, number: int, kind: str) -> None:
        if (kind, f"n{number}") in self.cluster.etcd.objects:
            self.cluster.etcd.drop(kind, f"n{number}")

    @rule(count=st.integers(1, 4))
    def write_something_else(self, count: int) -> None:
        self.cluster.etcd.revision += count

    @rule(server=st.integers(0, 1))
    def restart(self, server: int) -> None:
        self.cluster.servers[server] = ApiServer(after=self.cluster.etcd.revision)

    @rule(server=st.integers(0, 1), kept=st.integers(0, 4))
    def overfill(self, server: int, kept: int) -> None:
        ring = self.cluster.servers[server]
        ring.after = max(ring.after, self.cluster.etcd.revision - kept)

    @rule(server=st.integers(0, 1), lag=st.integers(0, 3))
    def lag(self, server: int, lag: int) -> None:
        self.cluster.servers[server].lag = lag

    @rule(answering=st.integers(0, 1), cut_after=st.sampled_from((0, 1, 2, 1000, 1000)))
    def reach(self, answering: int, cut_after: int) -> None:
        self.cluster.answering, self.cluster.cut_after = answering, cut_after

    @rule(has_bookmarks=st.booleans())
    def bookmark(self, has_bookmarks: bool) -> None:
        self.cluster.has_bookmarks = has_bookmarks

    @rule()
    def back_up(self) -> None:
        self.backups.append(self.cluster.etcd.backup())

    @rule(which=st.integers(0, 3), more=st.integers(0, 6))
    def restore(self, which: int, more: int) -> None:
        """And it counts on: in the end it may be at the version that was kept, or far beyond."""
        etcd = self.cluster.etcd = self.backups[-1 - which % len(self.backups)].backup()
        self.cluster.servers = [ApiServer(after=etcd.revision), ApiServer(after=etcd.revision)]
        etcd.revision += more

    @rule()
    def leave_an_event_out(self) -> None:
        events = [event for event in self.cluster.etcd.events if event.kind == "Pod"]
        if events and events[-1].revision not in self.cluster.left_out:
            self.cluster.left_out.add(events[-1].revision)
            self.is_honest = False

    # --- dnm's ----------------------------------------------------------------------------------

    @contextmanager
    def watches(self, access: Access, config: Config) -> Iterator[tuple[Watches, Watches]]:
        yield Watches(self.cluster, "Node"), Watches(self.cluster, "Pod")

    def read(self) -> tuple[Reading, list[Any], list[Any]]:
        requests: Any = SimpleNamespace(
            session=SimpleNamespace(read=read_cluster), asking=lambda what, rule: nullcontext()
        )
        reflector = Reflector(self.config, self.now, self.watches)
        nodes, reducer = self.listed()
        if reflector.look(ACCESS, requests):
            seen = list(reflector.nodes), list(reflector.pods.pods)
        else:
            version = str(self.cluster.etcd.revision)
            reflector.learn_nodes(tuple(nodes), version)
            reflector.learn_pods(reducer, version)
            seen = nodes, reducer.pods
        return reflector.keep(ACCESS, requests), *seen

    def listed(self) -> tuple[list[Any], PodReducer]:
        reducer = PodReducer()
        reducer.add(self.cluster.page("Pod"))
        return read_node_page(self.cluster.page("Node")), reducer

    @rule(minutes=st.sampled_from((1, 1, 1, 60)))
    def run(self, minutes: int) -> None:
        self.now += timedelta(minutes=minutes)
        reading, nodes, pods = self.read()
        true_nodes, reducer = self.listed()
        is_right = in_order(nodes) == in_order(true_nodes) and in_order(pods) == in_order(
            reducer.pods
        )
        if reading.way == "list" or self.is_honest:
            assert is_right, reading
        assert self.is_honest <= (reading.compared != "different"), reading
        if reading.way == "list" and reading.compared == "different":
            distrust_path(self.config.store_path).unlink()
        if reading.way == "list":  # what is kept is the truth again
            self.is_honest, self.cluster.left_out = True, set()

    @rule()
    def find_what_was_left_out(self) -> None:
        """An hour later, by a server that can still tell what came since."""
        self.run(1)
        before = self.read()
        self.now += timedelta(minutes=60)
        is_wrong = in_order(before[2]) != in_order(self.listed()[1].pods)
        self.cluster.cut_after, self.cluster.has_bookmarks = 1000, True
        for server in self.cluster.servers:
            server.lag = 0
        reading, _, _ = self.read()
        if before[0].way == "changes" and is_wrong and reading.compared != "unproved":
            assert reading.compared == "different", reading
            distrust_path(self.config.store_path).unlink()
        self.is_honest, self.cluster.left_out = True, set()


def in_order(things: list[Any]) -> list[Any]:
    return sorted(things, key=lambda one: one.name)


Machine.TestCase.settings = settings(
    max_examples=150, stateful_step_count=40, deadline=None, derandomize=True
)
TestReflector = Machine.TestCase
