"""Tests that dnm counts pods as YuniKorn does, with the numbers of the scheduler's own tests."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from dnm.demand.constraints import HOSTNAME, NodeTraits, describe_misfit
from dnm.demand.demand import Demand, gather_demand, pending_fingerprint
from dnm.demand.gangs import GangApp, gang_demand
from dnm.demand.pending import NotCounted
from dnm.demand.pod_request import (
    ContainerRequest,
    ContainerState,
    PodRequest,
    effective_request,
)
from dnm.demand.waiting import DemandFacts
from dnm.model.cluster import SchedulerView
from dnm.model.config import Config
from dnm.model.kubelet import NumaRoom
from dnm.model.pod import (
    Claim,
    NodeSelectorTerm,
    Pod,
    PodAffinityTerm,
    PodShape,
    Requirement,
    TaskGroup,
)
from dnm.model.value import Resources, Unreadable
from dnm.queues.yunikorn.pods import application_id
from tests.scenes import (
    DEV,
    GB,
    GPU,
    NOW,
    SMALL,
    bound,
    config,
    demand,
    pods,
    policy,
    size,
    text,
    tree,
)

M = 10**6


def container(name: str = "c", sidecar: bool = False, **requests: str) -> ContainerRequest:
    names = {"gpu": "nvidia.com/gpu", "storage": "ephemeral-storage"}
    quantities = {names.get(key, key): text for key, text in requests.items()}
    return ContainerRequest(name=name, requests=quantities, is_sidecar=sidecar)


def pod_request(*containers: ContainerRequest, **more: Any) -> PodRequest:
    return PodRequest(containers=containers, **more)


C1 = container("c1", memory="500M", cpu="1", gpu="1")
C2 = container("c2", memory="1024M", cpu="2", gpu="4")
TWO = (container("c1", memory="2000M", cpu="4.096"), container("c2", memory="5000M", cpu="1.024"))


@pytest.mark.parametrize(
    ("pod", "expected"),
    [
        pytest.param(pod_request(), {}, id="best effort: one pod and nothing else"),
        pytest.param(pod_request(C1, C2), {"memory": 1524 * M, "cpu": 3000, "nvidia.com/gpu": 5},
            id="containers are summed"),
        pytest.param(
            pod_request(C1, C2, overhead={"memory": "500M", "cpu": "1", "nvidia.com/gpu": "1"}),
            {"memory": 2024 * M, "cpu": 4000, "nvidia.com/gpu": 6}, id="overhead is added"),
        pytest.param(pod_request(*TWO, init_containers=(container("i1", memory="4096M", cpu="0.5",
                gpu="1"), container("i2", memory="10000M"))),
            {"memory": 10000 * M, "cpu": 5120, "nvidia.com/gpu": 1},
            id="defect 18: of init containers the largest, resource by resource"),
        pytest.param(pod_request(*TWO, init_containers=(container("s1", sidecar=True, memory="10M",
                cpu="1"), container("s2", sidecar=True, memory="10M", cpu="1"), container("i1",
                memory="4096M", cpu="10"))), {"memory": 7020 * M, "cpu": 12000},
            id="sidecars stay beside the containers and beside later init containers"),
        pytest.param(pod_request(container(memory="512M"), init_containers=(container("s",
                sidecar=True, memory="1024M"), container("i", memory="256M"))),
            {"memory": 1536 * M}, id="a sidecar larger than the init container after it"),
        pytest.param(pod_request(container(memory="512M", cpu="1"), init_containers=(container("i",
                memory="1024M", cpu="1", gpu="1"), container("s", sidecar=True, memory="1024M",
                cpu="1"))), {"memory": 1536 * M, "cpu": 2000, "nvidia.com/gpu": 1},
            id="an init container before the sidecar does not run beside it"),
        pytest.param(pod_request(container(cpu="1", memory="1G"), container("d", cpu="1", gpu="1"),
                pod_level={"cpu": "5", "memory": "3G", "nvidia.com/gpu": "9"}),
            {"cpu": 5000, "memory": 3 * GB, "nvidia.com/gpu": 1},
            id="pod-level requests replace cores and memory only"),
        pytest.param(
            pod_request(
                container("c", False, **{"hugepages-2Mi": "2Mi"}),
                pod_level={"hugepages-2Mi": "4Mi"},
            ),
            {"hugepages-2Mi": 4 * 1024**2}, id="and huge pages"),
        pytest.param(
            pod_request(container(cpu="1"), pod_level={"cpu": "2"}, overhead={"cpu": "250m"}),
            {"cpu": 2250}, id="overhead comes on top of pod-level requests"),
        pytest.param(pod_request(container(cpu="1", memory="1G"),
                states={"c": ContainerState(allocated={"cpu": "2"}, requests={"memory": "3G"})}),
            {"cpu": 2000, "memory": 3 * GB},
            id="resized in place: the most of spec, allocated and actual"),
        pytest.param(pod_request(container(cpu="9"),
                states={"c": ContainerState(allocated={"cpu": "2"}, requests={"cpu": "1"})},
                resize_infeasible=True), {"cpu": 1000}, id="an infeasible resize: current size"),
        pytest.param(pod_request(container(cpu="9"), resize_infeasible=True), {"cpu": 9000},
            id="an infeasible resize without a status: its request"),
        pytest.param(pod_request(container(cpu="0.0001", memory="1.5", storage="1Ki")),
            {"cpu": 1, "memory": 2, "ephemeral-storage": 1024}, id="fractions are rounded up"),
    ],
)  # fmt: skip
def test_effective_request_is_counted_like_in_yunikorn(
    pod: PodRequest, expected: Resources
) -> None:
    assert effective_request(pod) == {"pods": 1, **expected}


@pytest.mark.parametrize(
    ("pod", "before", "now"),
    [
        pytest.param(pod_request(container(cpu="2"), init_containers=(container("s", sidecar=True,
                cpu="4"),)), 8000, 6000, id="a sidecar is added to itself in its own step"),
        pytest.param(pod_request(container(cpu="9"), init_containers=(container("s", sidecar=True,
                cpu="4"), container("i", cpu="1"))), 13000, 13000,
            id="which does not show where the containers need more"),
        pytest.param(pod_request(container(cpu="1"), init_containers=(container("i", cpu="6"),
                container("s", sidecar=True, cpu="5"))), 10000, 6000,
            id="an init container before it is not beside it"),
    ],
)  # fmt: skip
def test_sidecar_request_depends_on_the_queue_system(
    pod: PodRequest, before: int, now: int
) -> None:
    assert effective_request(pod, sidecars_twice=True)["cpu"] == before
    assert effective_request(pod)["cpu"] == now


@pytest.mark.parametrize(("twice", "cores"), [(True, 2), (False, 1)], ids=["twice", "once"])
def test_sidecars_are_counted_like_in_the_running_scheduler(twice: bool, cores: int) -> None:
    before = {"cpu": 2000, "pods": 1}
    with_sidecar = pods(2, size(1, 1), shape={"request_sidecars_twice": before})
    without = pods(1, size(1, 1), name="plain")
    view = SchedulerView(queue_of_pod={}, allocated={}, pending={}, counts_sidecars_twice=twice)
    result = demand(with_sidecar + without, config(), tree(), scheduler=view)
    assert result.queues[DEV].pending["cpu"] == (2 * cores + 1) * 1000


APP = "yunikorn.apache.org/app-id"


@pytest.mark.parametrize(
    ("labels", "annotations", "expected"),
    [
        pytest.param({APP: "l", "applicationId": "x"}, {APP: "a"}, "l", id="label"),
        pytest.param({"applicationId": "x"}, {APP: "a"}, "a", id="annotation"),
        pytest.param({"applicationId": "x", "spark-app-selector": "s"}, {}, "x", id="old label"),
        pytest.param({"spark-app-selector": "s"}, {}, "s", id="spark"),
        pytest.param({}, {}, "yunikorn-dev-autogen", id="one for the namespace"),
        pytest.param({APP: "x-uniqueautogen"}, {}, "x-u1", id="one for the pod"),
    ],
)
def test_application_id_is_read_like_in_yunikorn(
    labels: Mapping[str, str], annotations: Mapping[str, str], expected: str
) -> None:
    assert application_id(labels, annotations, "dev", "u1") == expected


def test_generated_application_id_is_truncated() -> None:
    assert len(application_id({}, {}, "n" * 63, "u1")) == 63


# --- all pods ---------------------------------------------------------------------------------


def gather(some: list[Pod], conf: Config | None = None, **limits: Resources) -> Demand:
    return demand(some, conf or config(), tree(**limits))


def test_used_and_pending_amounts_are_added_to_all_ancestors() -> None:
    result = gather(
        bound(2, SMALL, "k1") + bound(1, SMALL, "k1", namespace="gpu", app="g") + pods(3, SMALL)
    )
    assert result.queues[DEV].used == {**size(8, 32), "pods": 2}
    assert result.queues[GPU].used == {**size(4, 16), "pods": 1}
    assert result.queues["root.anvil"].used == {**size(12, 48), "pods": 3}
    assert result.queues[DEV].pending == {**size(12, 48), "pods": 3}
    assert result.queues["root.anvil"].pending_pods == 3
    assert result.queues[GPU].pending_pods == 0


def test_nodes_have_their_pods_daemonsets_and_work() -> None:
    result = gather(
        bound(2, SMALL, "k1", namespace="anywhere", is_managed=False)
        + bound(1, size(1, 1), "k1", name="ds", is_daemonset=True)
        + bound(1, size(1, 1), "k2", name="mirror", is_mirror=True, is_managed=False)
    )
    assert result.nodes["k1"].used == {**size(9, 33), "pods": 3}
    assert result.nodes["k1"].daemonsets == {**size(1, 1), "pods": 1}
    assert (result.nodes["k1"].work_pods, result.nodes["k2"].work_pods) == (2, 0)
    assert "k3" not in result.nodes


def test_daemonset_pods_scheduled_by_yunikorn_count_in_their_queue() -> None:
    result = gather(bound(1, SMALL, "k1", is_daemonset=True))
    assert result.queues[DEV].used == {**SMALL, "pods": 1}


def test_equal_pods_are_a_group_with_their_age() -> None:
    old, young = pods(2, SMALL, ago=100), pods(9, SMALL, ago=10, name="y")
    (group,) = gather(young + old).groups
    assert (group.total, group.oldest, group.youngest) == (11, text(100), text(10))
    assert group.names == ("p0", "p1", *(f"y{n}" for n in range(8)))


# Seconds since the creation of each pod, and the number that counts; the grace time is 20 s.
BURSTS = {
    "all are young": ((19, 5, 1), 0),
    "the oldest has waited for the grace": ((20, 5, 1), 3),
    "all have": ((60, 30, 20), 3),
}


@pytest.mark.parametrize("case", BURSTS)
def test_burst_of_pods_counts_completely_once_it_is_old_enough(case: str) -> None:
    ages, counting = BURSTS[case]
    burst = [pod for ago in ages for pod in pods(1, SMALL, ago=ago, name=f"p{ago}-")]
    (group,) = gather(burst).groups
    assert (group.count, group.young) == (counting, 3 - counting)


def test_age_of_pods_does_not_affect_other_groups() -> None:
    groups = gather(pods(1, SMALL, ago=90) + pods(1, size(1, 1), ago=5, name="q")).groups
    assert sorted(group.count for group in groups) == [0, 1]


@pytest.mark.parametrize(
    "other",
    [
        pytest.param({"namespace": "lab", "queue": DEV}, id="another namespace"),
        pytest.param({"queue": GPU, "app": "b"}, id="another queue"),
        pytest.param({"shape": {"node_selector": (("a", "b"),)}}, id="another shape"),
    ],
)
def test_differing_pods_are_in_another_group(other: dict[str, Any]) -> None:
    result = gather(pods(1, SMALL) + pods(1, SMALL, name="o", **other))
    assert len(result.groups) == 2
    assert len({group.fingerprint for group in result.groups}) == 2


def test_group_fingerprint_does_not_depend_on_its_pods() -> None:
    (group,) = gather(pods(1, SMALL, ago=100)).groups
    (other,) = gather(pods(7, SMALL, ago=900, name="other", app="b")).groups
    assert group.fingerprint == other.fingerprint
    assert group.fingerprint == "69dffa87ad2f294c"  # the same in every process and version


NOT_COUNTED: dict[NotCounted, dict[str, Any]] = {
    NotCounted.GATED: {"is_gated": True},
    NotCounted.DEVICES: {"devices": ("ResourceClaim g",)},
    NotCounted.REJECTED: {"is_rejected": True},
    NotCounted.TERMINATING: {"is_terminating": True},
    NotCounted.FOREIGN: {"is_managed": False},
    NotCounted.NO_QUEUE: {"queue": "root.nowhere", "app": "n"},
    NotCounted.CLAIM: {"claims": ("gone",)},
}


@pytest.mark.parametrize("why", NOT_COUNTED, ids=lambda why: why.name)
def test_uncounted_pods_are_named_with_their_reason(why: NotCounted) -> None:
    result = gather(pods(14, SMALL, **NOT_COUNTED[why]))
    assert result.groups == ()
    ((namespace, reason, count, names),) = [
        (uncounted.namespace, uncounted.why, uncounted.count, uncounted.names)
        for uncounted in result.uncounted
    ]
    first_ten = tuple(f"p{n}" for n in range(10))
    assert (namespace, reason, count, names) == ("dev", why, 14, first_ten)


def test_pods_of_other_schedulers_are_named_in_monitored_namespaces_only() -> None:
    assert gather(pods(4, SMALL, namespace="system", is_managed=False)).uncounted == ()


LOST_CLAIM = Claim(namespace="dev", name="data", phase="Lost")


@pytest.mark.parametrize(
    "claims", [Unreadable(subject="claims", error="403"), (LOST_CLAIM,)], ids=["unreadable", "lost"]
)
def test_pods_with_unusable_claims_are_left_out(
    claims: tuple[Claim, ...] | Unreadable,
) -> None:
    facts = DemandFacts(now=NOW, claims=claims)
    result = gather_demand(
        pods(1, SMALL, claims=("data",)) + pods(1, SMALL, name="free"), config(), tree(), facts
    )
    assert [group.names for group in result.groups] == [("free0",)]
    assert [uncounted.why for uncounted in result.uncounted] == [NotCounted.CLAIM]


def test_volumes_of_equal_affinity_do_not_split_a_group() -> None:
    zone = NodeSelectorTerm(expressions=(Requirement(key="zone", operator="In", values=("b",)),))
    claims = [
        Claim(namespace="dev", name=f"c{n}", phase="Bound", node_affinity=(zone,)) for n in range(3)
    ]
    some = [pod for n in range(3) for pod in pods(1, SMALL, name=f"n{n}-", claims=(f"c{n}",))]
    (group,) = demand(some, config(), tree(), claims).groups
    assert group.count == 3 and group.volumes == ((zone,),)


# --- which queue ------------------------------------------------------------------------------


def queue_of(some: list[Pod], **facts: Any) -> set[str]:
    queues = tree(dev={}, dev_team={})
    return {group.queue for group in demand(some, config(), queues, **facts).groups}


@pytest.mark.parametrize(
    ("asked", "queue"),
    [
        pytest.param("", DEV, id="none asked: by the namespace map"),
        pytest.param("root.anvil.dev.team", "root.anvil.dev.team", id="as written"),
        pytest.param("Root.Anvil.GPU", GPU, id="case does not matter"),
        pytest.param("root.anvil.dev.team.alice", "root.anvil.dev.team", id="a dynamic queue"),
        pytest.param("root.anvil.gpu.a.b", GPU, id="a dynamic queue, two levels down"),
    ],
)
def test_queue_of_a_pod_is_resolved(asked: str, queue: str) -> None:
    assert queue_of(pods(1, SMALL, queue=asked)) == {queue}


def test_first_pod_decides_the_queue_of_its_application() -> None:
    first = bound(1, SMALL, "k1", ago=900, queue=GPU)
    assert queue_of(first + pods(2, SMALL, queue=DEV)) == {GPU}


def test_applications_have_independent_queues() -> None:
    some = pods(1, SMALL, app="a", queue=GPU, ago=900) + pods(1, SMALL, app="b", name="b")
    assert queue_of(some) == {GPU, DEV}


def test_queue_of_yunikorn_overrides_the_label_of_new_pods() -> None:
    view = SchedulerView(queue_of_pod={"p0": GPU}, allocated={}, pending={})
    assert queue_of(pods(3, SMALL, queue=DEV), scheduler=view) == {GPU}


def test_two_namespaces_of_a_queue_are_a_single_demand() -> None:
    """The predecessor compared the demand of each namespace with the queue's whole limit."""
    conf = config(namespaces={"dev": policy("dev", DEV, "a"), "lab": policy("lab", DEV, "a")})
    result = gather(pods(2, SMALL) + pods(3, SMALL, namespace="lab", name="l", app="l"), conf)
    assert result.queues[DEV].pending_pods == 5


def test_queue_fingerprint_covers_its_descendants() -> None:
    conf, queues = config(), tree(dev_team={})
    before = demand([], conf, queues)
    after = demand(pods(1, SMALL, queue="root.anvil.dev.team"), conf, queues)
    assert pending_fingerprint(before, DEV) != pending_fingerprint(after, DEV)
    assert pending_fingerprint(before, GPU) == pending_fingerprint(after, GPU)


# --- where a pod may be -------------------------------------------------------------------------

WHOLE = (("nvidia.com/gpu", 4), ("cpu", 8000))
LESS_CARDS, FEW_CORES = (WHOLE[1], ("nvidia.com/gpu", 2)), (WHOLE[0], ("cpu", 6000))
ALIGNED = {"aligned": ((), WHOLE)}
ANY = Requirement(key="a", operator="Exists", values=())
BESIDE = PodAffinityTerm(topology_key=HOSTNAME, anti=False, expressions=(ANY,))
APART = msgspec.structs.replace(BESIDE, topology_key="rack", anti=True)


@pytest.mark.parametrize(
    ("shape", "zones", "why"),
    [
        pytest.param(ALIGNED, (FEW_CORES, WHOLE), None, id="one NUMA node has all"),
        pytest.param(ALIGNED, (LESS_CARDS, FEW_CORES),
            "requests 4 of nvidia.com/gpu, 8 of cpu on one NUMA node, and none has all of it",
            id="each lacks something else"),
        pytest.param(ALIGNED, (LESS_CARDS, LESS_CARDS), "requests 4 of nvidia.com/gpu on one NUMA "
            "node, and the largest has 2", id="none has as many cards"),
        pytest.param({"pod_affinity": (APART, BESIDE)}, (), "must be beside other pods",
            id="affinity and anti-affinity"),
    ],
)  # fmt: skip
def test_unfit_reason_names_the_numa_limit(
    shape: dict[str, Any], zones: Any, why: str | None
) -> None:
    traits = NodeTraits(labels={}, numa=NumaRoom(zones=zones, by_pod=True))
    assert describe_misfit(PodShape(request={}, **shape), (), traits) == why


# --- gangs ------------------------------------------------------------------------------------

WORKERS = TaskGroup(name="w", min_member=4, min_resource={**size(2, 8), "pods": 1})


def gang(some: list[Pod]) -> tuple[int, int]:
    """Returns how many pods of a gang have a placeholder, and how many have to be created."""
    app = GangApp(app_id="app", namespace="dev", groups=(WORKERS,), pods=tuple(some))
    result = gang_demand(app, NOW)
    return len(result.taken_over), sum(count for _, count in result.missing_pods)


def members(count: int, **changes: Any) -> list[Pod]:
    return pods(count, SMALL, task_group="w", task_groups=(WORKERS,), **changes)


@pytest.mark.parametrize(
    ("some", "expected"),
    [
        pytest.param(members(1), (0, 3), id="the first of four: three are missing"),
        pytest.param(members(6), (0, 0), id="more than the least"),
        pytest.param(members(2) + members(4, is_placeholder=True, name="tg"), (2, 0),
            id="each pending pod takes over a placeholder"),
        pytest.param(members(6) + members(4, is_placeholder=True, name="tg", node="k1"), (4, 0),
            id="more pods than placeholders: the rest counts"),
        pytest.param(members(1) + members(1, name="r", node="k1"), (0, 0),
            id="it has started: nothing is made up"),
        pytest.param(members(1, ago=900), (0, 3), id="it reserves to the end of its time"),
        pytest.param(members(1, ago=901), (0, 0), id="it has given up on placeholders"),
        pytest.param(members(1) + pods(1, {"memory": GB}, task_group="w", name="m")
            + members(1, is_placeholder=True, name="tg"), (1, 0), id="one asks for no cores"),
        pytest.param(members(1, is_rejected=True), (0, 0), id="rejected"),
    ],
)  # fmt: skip
def test_missing_gang_members_are_counted(some: list[Pod], expected: tuple[int, int]) -> None:
    assert gang(some) == expected


def test_largest_gang_is_computed_per_queue_and_ancestor() -> None:
    result = gather(members(1))
    assert result.queues[DEV].largest_gang == {"cpu": 8000, "memory": 32 * GB, "pods": 4}
    assert result.queues["root.anvil"].largest_gang == result.queues[DEV].largest_gang
    assert result.queues[GPU].largest_gang == {}
