"""Tests of what a run reads. A failed read becomes a value in place of the list."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import pytest
from msgspec.structs import replace

from dnm.model.cluster import ConfigMap
from dnm.model.errors import KubeError
from dnm.model.lent import Ended, Phase
from dnm.model.lent_state import ConverterProcess
from dnm.model.plan import Snapshot
from dnm.model.pod import Pod
from dnm.model.registry import Registry
from dnm.model.value import Unreadable
from dnm.queues.yunikorn.source import DEFAULT_PLACE, DEFAULTS_NAME, read_source
from dnm.queues.yunikorn.system import source_of
from dnm.run.snapshot import nothing_readable, take_snapshot
from tests.builders import NOW, a_batch_node, a_config, a_lent_node, a_node, a_request
from tests.plan.worlds import pods, queue_map
from tests.run.edges import PROCESS, Converter, Kube


class Cluster(Kube):
    """A cluster; `maps` has ConfigMaps by name, or the reason why one is unreadable."""

    def __init__(self, *pods: Pod, **maps: ConfigMap | KubeError) -> None:
        super().__init__([a_node()], pods)
        self.maps = {name.replace("_", "-"): item for name, item in maps.items()}

    def read_config_map(self, namespace: str, name: str) -> ConfigMap | None:
        kube_error = self.maps.get(name, super().read_config_map(namespace, name))
        if isinstance(kube_error, KubeError):
            raise kube_error
        return kube_error


class Batch(Converter):
    """A converter of which all calls are running; each names a node like its key."""

    def still_running(self, processes: Iterable[ConverterProcess]) -> frozenset[ConverterProcess]:
        return frozenset(processes)

    def read_end(self, key: str) -> Ended:
        return Ended(names=(key,))


def take(
    cluster: Cluster, registry: Registry | None = None, minute: int = 10
) -> tuple[Snapshot, list[str]]:
    batch, now = Batch([a_batch_node("a050")]), NOW.replace(minute=minute)
    seen = take_snapshot(a_config(), registry or Registry(), cluster, batch, now)
    return seen, [*cluster.asked, *["list"] * batch.lists]


def test_idle_cluster_is_read_with_four_requests_and_without_slurm() -> None:
    seen, asked = take(Cluster(), Registry(nodes={"a001": a_lent_node()}))
    document = ["yunikorn/yunikorn-configs", "yunikorn/yunikorn-defaults"]
    assert asked == ["nodes", "pods dev", *document]
    assert (seen.batch, seen.claims, seen.queue_facts.view) == (None, (), None)
    assert seen.taken_at == NOW.replace(minute=10)


@pytest.mark.parametrize(
    ("registry", "minute"),
    [
        pytest.param(Registry(nodes={"a001": a_lent_node()}), 0, id="first-run-of-an-hour"),
        pytest.param(Registry(), 10, id="first-run-of-all"),
    ],
)
def test_unexpected_claims_are_searched_hourly_and_at_first_run(
    registry: Registry, minute: int
) -> None:
    """If a registry was lost, only Slurm shows which nodes the converter has claimed."""
    assert take(Cluster(), registry, minute)[1][-1] == "list"


def test_slurm_is_read_if_a_decision_depends_on_it() -> None:
    seen, asked = take(Cluster(*pods(1)), Registry(nodes={"a001": a_lent_node()}))
    assert asked[-1] == "list" and isinstance(seen.batch, Mapping)


def test_unreachable_api_is_requested_once() -> None:
    cluster = Cluster()
    cluster.refuses.add("nodes")
    seen, asked = take(cluster, Registry(requests=(a_request(),)))
    assert isinstance(seen.nodes, Unreadable) and seen.nodes == seen.pods == seen.queue_facts.unread
    assert asked == ["nodes"] and seen == nothing_readable(seen.nodes, NOW.replace(minute=10))


def test_unreadable_document_is_reported_by_name() -> None:
    seen, _ = take(Cluster(yunikorn_configs=KubeError("403 Forbidden")))
    assert seen.queue_facts.unread == Unreadable(
        subject="ConfigMap yunikorn/yunikorn-configs", error="403 Forbidden"
    )


def test_snapshot_reads_the_same_document_key_as_the_writer() -> None:
    """The ConfigMap has several keys. The one that YuniKorn uses may be set in its defaults."""
    configs = queue_map()
    both = {"queues.yaml": "partitions: []", "ours.yaml": configs.data["queues.yaml"]}
    configs = replace(configs, data=both)
    defaults = replace(configs, name=DEFAULTS_NAME, data={"service.policyGroup": "ours"})
    cluster = Cluster(yunikorn_configs=configs, yunikorn_defaults=defaults)
    seen, _ = take(cluster)
    source_document = source_of(a_config(), seen.queue_facts)
    assert (source_document.key, source_document.text) == ("ours.yaml", both["ours.yaml"])
    assert source_document == read_source(cluster, DEFAULT_PLACE)


def test_volume_claims_are_read_for_waiting_pods_only() -> None:
    waiting = pods(1, claims=("data",))
    running = pods(2, node="k1", claims=("data",))[1:]
    _, asked = take(Cluster(*waiting, *running))
    assert "claims of p0" in asked


def test_converters_of_earlier_runs_are_searched() -> None:
    entry = a_lent_node(Phase.RETURNING, converter=PROCESS)
    registry = Registry(
        nodes={"a001": entry}, requests=(a_request(), a_request(id="r2", ended=True))
    )
    seen, _ = take(Cluster(), registry)
    assert seen.running_converters == {PROCESS}
    assert set(seen.ended) == {"a001", "r1"}
