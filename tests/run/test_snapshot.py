"""What a run reads, and what it does not: a read that fails is a value in its place."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pytest
from msgspec.structs import replace

from dnm.model.batch import BatchList
from dnm.model.cluster import ConfigMap
from dnm.model.errors import KubeError
from dnm.model.kubelet import Amounts
from dnm.model.lent import ConverterProcess, Ended, Phase
from dnm.model.node import Node
from dnm.model.plan import Snapshot
from dnm.model.pod import Claim, Pod, PodList
from dnm.model.registry import Registry
from dnm.model.value import Unreadable
from dnm.queues.source import DEFAULTS_NAME, resolve_document
from dnm.queues.writer import read_source
from dnm.run.snapshot import nothing_readable, take_snapshot
from tests.builders import NOW, a_batch_node, a_config, a_lent_node, a_node, a_request
from tests.plan.worlds import pods, queue_map

PROCESS = ConverterProcess(pid=7, start_ticks=1)
WHY = Unreadable(what="x", error="the API did not answer")


class Cluster:
    """The Kubernetes edge, with what it holds; remembers what it was asked."""

    def __init__(self, **held: Any) -> None:
        self.nodes: Any = (a_node(),)
        self.pods: Any = PodList(pods=())
        self.maps: dict[str, Any] = {"yunikorn-configs": queue_map()}
        self.asked: list[str] = []
        for name, value in held.items():
            setattr(self, name, value)

    def read_nodes(self) -> tuple[Node, ...] | Unreadable:
        self.asked.append("nodes")
        return self.nodes  # type: ignore[no-any-return]

    def read_pods(self, namespaces: tuple[str, ...]) -> PodList | Unreadable:
        self.asked.append(f"pods {','.join(namespaces)}")
        return self.pods  # type: ignore[no-any-return]

    def read_config_map(self, namespace: str, name: str) -> ConfigMap | None:
        self.asked.append(f"{namespace}/{name}")
        found = self.maps.get(name)
        if isinstance(found, KubeError):
            raise found
        return found

    def write_config_map(self, config_map: ConfigMap) -> ConfigMap:
        raise AssertionError("a look writes nothing")

    def read_zones(self) -> Mapping[str, tuple[Amounts, ...]] | Unreadable:
        self.asked.append("zones")
        return {}

    def read_claims(self, pods: tuple[Pod, ...]) -> tuple[Claim, ...] | Unreadable:
        self.asked.append(f"claims of {','.join(pod.name for pod in pods)}")
        return ()


class Batch:
    """The converter edge."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def list_nodes(self, node: str = "") -> BatchList | Unreadable:
        self.asked.append("list")
        return BatchList(nodes={"a050": a_batch_node("a050")})

    def still_running(self, processes: Iterable[ConverterProcess]) -> frozenset[ConverterProcess]:
        return frozenset(processes)

    def find(self, key: str) -> ConverterProcess | None:
        return None

    def read_end(self, key: str) -> Ended:
        return Ended(names=(key,))


def take(
    cluster: Cluster, registry: Registry | None = None, minute: int = 10
) -> tuple[Snapshot, list[str]]:
    batch, now = Batch(), NOW.replace(minute=minute)
    seen = take_snapshot(a_config(), registry or Registry(), cluster, batch, now)
    return seen, [*cluster.asked, *batch.asked]


def test_a_quiet_cluster_is_four_reads_and_no_question_to_slurm() -> None:
    seen, asked = take(Cluster(), Registry(nodes={"a001": a_lent_node()}))
    document = ["yunikorn/yunikorn-configs", "yunikorn/yunikorn-defaults"]
    assert asked == ["nodes", "pods dev", *document]
    assert (seen.batch, seen.claims, seen.yunikorn) == (None, (), None)
    assert seen.taken_at == NOW.replace(minute=10)


@pytest.mark.parametrize(
    ("registry", "minute"),
    [
        pytest.param(Registry(nodes={"a001": a_lent_node()}), 0, id="first-run-of-an-hour"),
        pytest.param(Registry(), 10, id="first-run-of-all"),
    ],
)
def test_claims_that_nothing_depends_on_are_looked_for(registry: Registry, minute: int) -> None:
    """After the loss of a registry nothing but Slurm knows what was claimed."""
    assert take(Cluster(), registry, minute)[1][-1] == "list"


@pytest.mark.parametrize(
    ("cluster", "registry"),
    [
        pytest.param(Cluster(pods=PodList(pods=pods(1))), Registry(), id="pods-wait"),
        pytest.param(
            Cluster(), Registry(nodes={"a001": a_lent_node(Phase.RELEASING)}), id="a-node-leaves"
        ),
        pytest.param(Cluster(), Registry(requests=(a_request(),)), id="a-request-is-open"),
    ],
)
def test_slurm_is_asked_where_something_depends_on_it(cluster: Cluster, registry: Registry) -> None:
    seen, asked = take(cluster, registry)
    assert asked[-1] == "list" and isinstance(seen.batch, Mapping)


def test_an_api_that_is_down_is_asked_once() -> None:
    seen, asked = take(Cluster(nodes=WHY), Registry(requests=(a_request(),)))
    assert asked == ["nodes"] and seen == nothing_readable(WHY, NOW.replace(minute=10))
    assert seen.nodes == seen.pods == seen.queue_maps == WHY


def test_a_document_that_can_not_be_read_is_told_by_its_name() -> None:
    seen, _ = take(Cluster(maps={"yunikorn-configs": KubeError("403 Forbidden")}))
    assert seen.queue_maps == Unreadable(
        what="ConfigMap yunikorn/yunikorn-configs", error="403 Forbidden"
    )


def test_the_snapshot_finds_the_document_that_the_writer_will_write() -> None:
    """YuniKorn's defaults may name the key that counts, also where the site's map has another."""
    configs = queue_map()
    both = {"queues.yaml": "partitions: []", "ours.yaml": configs.data["queues.yaml"]}
    configs = replace(configs, data=both)
    defaults = replace(configs, name=DEFAULTS_NAME, data={"service.policyGroup": "ours"})
    cluster = Cluster(maps={"yunikorn-configs": configs, DEFAULTS_NAME: defaults})
    seen, _ = take(cluster)
    assert not isinstance(seen.queue_maps, Unreadable)
    found = resolve_document(*seen.queue_maps)
    assert (found.key, found.text) == ("ours.yaml", both["ours.yaml"])
    assert found == read_source(cluster, "yunikorn", "yunikorn-configs")


def test_claims_are_read_of_pods_that_wait_with_one() -> None:
    waiting = pods(1, claims=("data",))
    running = pods(2, node="k1", claims=("data",))[1:]
    _, asked = take(Cluster(pods=PodList(pods=(*waiting, *running))))
    assert "claims of p0" in asked


def test_calls_of_earlier_runs_are_looked_for() -> None:
    entry = a_lent_node(Phase.RETURNING, converter=PROCESS)
    registry = Registry(
        nodes={"a001": entry}, requests=(a_request(), a_request(id="r2", ended=True))
    )
    seen, _ = take(Cluster(), registry)
    assert seen.running_converters == {PROCESS}
    assert set(seen.ended) == {"a001", "r1"}
