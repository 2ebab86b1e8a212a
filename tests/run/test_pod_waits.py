"""Tests of how dnm counts pods that wait for devices of dynamic resource allocation or for their
group, read from an API server."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from dnm.kube.devices import read_devices
from dnm.kube.requests import ApiRequests, List
from dnm.lab.sandbox.cluster import Sandbox
from dnm.model.plan import Plan, StartConversion
from dnm.model.pod import Pod, PodShape
from dnm.model.pod_waits import DeviceFacts, PodWaits
from dnm.plan.uncertain_pods import describe_uncertain_pods
from tests.scenes import config
from tests.site import QUEUE, Site, set_up_workshop

pytestmark = pytest.mark.xdist_group("pod waits")  # one worker lends the node once

DRIVER = "gpu.example.org"
API = "resource.k8s.io/v1"
PLAIN = f'device.driver == "{DRIVER}"'
FULL = f"""{PLAIN} && device.attributes['{DRIVER}'].type == 'gpu'
           && device.attributes["{DRIVER}"].healthy == true"""
ONE = {"name": "gpu", "exactly": {"deviceClassName": "gpu"}}


def asking(*requests: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"devices": {"requests": list(requests), **more}}


def exactly(**more: Any) -> dict[str, Any]:
    return asking({"name": "gpu", "exactly": {"deviceClassName": "gpu", **more}})


def gpu(name: str, **more: Any) -> dict[str, Any]:
    attributes = {"type": {"string": "gpu"}, f"{DRIVER}/healthy": {"bool": True}}
    return {"name": name, "attributes": attributes, **more}


class Scene:
    """A site with the lent node a001, its published devices, and a pod with one of them."""

    def __init__(self, sandbox: Sandbox, directory: Path) -> None:
        self.sandbox = sandbox
        set_up_workshop(sandbox, 5)
        self.site = Site(sandbox, directory / "site")
        sandbox.add_pods(1, "dev", queue=QUEUE, cpu="90", memory="16G", name="first")
        self.site.run_until_rest()
        assert self.site.lent() == ["a001"]

    def make(self, kind: str, name: str, namespace: str = "", **body: Any) -> None:
        metadata = {"name": name, **({"namespace": namespace} if namespace else {})}
        self.sandbox.create({"apiVersion": API, "kind": kind, "metadata": metadata, **body})

    def offer(self, expression: str = PLAIN, *devices: dict[str, Any], slices: int = 1) -> None:
        """Creates a device class, and devices of a001 (two by default)."""
        self.make("DeviceClass", "gpu", spec={"selectors": [{"cel": {"expression": expression}}]})
        settings = devices or (gpu("gpu-0"), gpu("gpu-1"))
        pool = {"name": "a001", "generation": 1, "resourceSliceCount": slices}
        self.make("ResourceSlice", "a001-gpu", spec={
            "driver": DRIVER, "nodeName": "a001", "pool": pool, "devices": list(settings)
        })  # fmt: skip

    def allocate(self, uid: str) -> None:
        """Allocates the first device to the claim of a pod."""
        result = {"request": "gpu", "driver": DRIVER, "pool": "a001", "device": "gpu-0"}
        self.make("ResourceClaim", "first", "dev", spec=asking(ONE), status={
            "allocation": {"devices": {"results": [result]}},
            "reservedFor": [{"resource": "pods", "name": "first-0", "uid": uid}],
        })  # fmt: skip

    def wait(self, count: int, spec: dict[str, Any], cpu: str = "1", **more: Any) -> Plan:
        """Adds `count` waiting pods. Returns dnm's plan."""
        self.sandbox.add_pods(count, "dev", queue=QUEUE, cpu=cpu, spec=spec, name="w", **more)
        return self.site.plan().plan


@pytest.fixture(scope="module")
def lent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    directory = tmp_path_factory.mktemp("pod waits")
    sandbox = Sandbox(directory / "sandbox").start()
    try:
        made = Scene(sandbox, directory)
        assert not reads_of_claims(sandbox)
        yield made
    finally:
        sandbox.stop()


@pytest.fixture
def scene(lent: Scene) -> Iterator[Scene]:
    """Yields the scene, which is built once, and removes what a test adds."""
    sandbox = lent.sandbox
    before = names_in(sandbox)
    sandbox.requests.clear()
    yield lent
    sandbox.faults.clear()
    with sandbox.lock:
        for name in names_in(sandbox) - before:
            sandbox.store.remove(*name)


def reads_of_claims(sandbox: Sandbox) -> list[Any]:
    kinds = ("deviceclasses", "resourceslices", "resourceclaims", "resourceclaimtemplates")
    return [pair for kind in (*kinds, "podgroups") for pair in sandbox.requests.lists(kind)]


def names_in(sandbox: Sandbox) -> set[tuple[str, str, str]]:
    """Returns (plural, namespace, name) of each object in the sandbox."""
    return {
        (plural, item["metadata"].get("namespace", ""), item["metadata"]["name"])
        for plural, objects in sandbox.store.dump()["objects"].items()
        for item in objects
    }


def uid_of(sandbox: Sandbox, name: str) -> str:
    return str((sandbox.get("pods", name, "dev") or {})["metadata"]["uid"])


def by_template(name: str = "one") -> dict[str, Any]:
    return {"resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": name}]}


def lends(plan: Plan) -> int:
    return sum(
        action.request.count for action in plan.actions if isinstance(action, StartConversion)
    )


NOT_PLAIN = "ResourceClaimTemplate one asks in gpu for more than a count of one class"
NOT_PUBLISHED = "no lent node of type a has published devices of gpu in a ResourceSlice"
CLAIMS: dict[str, tuple[dict[str, Any], str, tuple[Any, ...], int | str]] = {
    # claim of a template, class, devices -> additional nodes for three pods, or the problem
    "a device each": (exactly(), PLAIN, (), 1),
    "of a class with attributes": (exactly(), FULL, (), 1),
    "two each": (exactly(count=2), PLAIN, (), 3),
    "more than a node has": (exactly(count=3), PLAIN, (), "gpu"),
    "less than none": (exactly(count=-5), PLAIN, (), NOT_PLAIN),
    "all that match": (exactly(allocationMode="All"), PLAIN, (), NOT_PLAIN),
    "chosen by an expression": (exactly(selectors=[{"cel": {"expression": "true"}}]), PLAIN, (),
                                NOT_PLAIN),
    "the first that can be had": (asking({"name": "gpu", "firstAvailable": [{"name": "x"}]}),
                                  PLAIN, (), NOT_PLAIN),
    "for an administrator": (exactly(adminAccess=True), PLAIN, (), NOT_PLAIN),
    "two of one board": (asking(ONE, constraints=[{"matchAttribute": "x/y"}]), PLAIN, (),
                         "relates its devices to each other"),
    "of a class that is not there": (asking({"name": "gpu", "exactly": {"deviceClassName": "no"}}),
                                     PLAIN, (), "there is no DeviceClass no"),
    "of a class that dnm can't judge": (exactly(), f"!({PLAIN})", (),
                                        "by an expression that dnm does not evaluate"),
    "of another driver": (exactly(), 'device.driver == "other"', (), NOT_PUBLISHED),
    "of another attribute": (exactly(), f'device.attributes["{DRIVER}"].type == "mig"', (),
                             NOT_PUBLISHED),
    "of partitions": (exactly(), PLAIN, (gpu("p", consumesCounters=[{"counterSet": "c"}]),),
                      NOT_PUBLISHED),
    "of tainted devices": (exactly(), PLAIN, (gpu("t", taints=[{"effect": "NoSchedule"}]),),
                           NOT_PUBLISHED),
}  # fmt: skip


@pytest.mark.parametrize("name", CLAIMS)
def test_device_claim_is_counted_or_its_problem_reported(scene: Scene, name: str) -> None:
    """a001 has two devices, one of them allocated. Three pods of one each need one more node."""
    asks, expression, devices, result = CLAIMS[name]
    scene.offer(expression, *devices)
    scene.allocate(uid_of(scene.sandbox, "first-0"))
    scene.make("ResourceClaimTemplate", "one", "dev", spec={"spec": asks})
    plan = scene.wait(3, by_template())
    (queue,) = plan.queues
    if isinstance(result, int):
        assert lends(plan) == result and not plan.notes, queue.sentence
        assert not any(
            "deviceclass" in f"{queue_status.pending}" for queue_status in plan.status.values()
        )
        return
    assert lends(plan) == 0
    if name == "more than a node has":
        assert "requests 3 deviceclass.resource.kubernetes.io/gpu, an empty node" in queue.sentence
        return
    assert "3 not counted, requesting devices by resourceClaims" in queue.sentence
    (note,) = plan.notes
    assert "3 pods like dev/w-0: " in note and result in note
    (event,) = plan.waiting
    assert (event.name, event.count) == ("w-0", 3) and event.uid == uid_of(scene.sandbox, "w-0")
    assert result in event.sentence
    assert result in scene.site.command("explain", "dev/w-0").stdout
    assert result in scene.site.command("check", "--wide").stdout


def shared(scene: Scene) -> None:
    scene.make("ResourceClaim", "own", "dev", spec=asking(ONE))


def has_taken(scene: Scene) -> None:
    scene.make("ResourceClaim", "own", "dev", spec=asking(ONE), status={"allocation": {}})


OWN = {"resourceClaims": [{"name": "gpu", "resourceClaimName": "own"}]}
CLAIMED = {
    # pods, their number, the devices -> additional nodes, or the problem
    "a claim of its own": (OWN, 1, shared, 0),
    "a claim that two share": (OWN, 2, shared, "ResourceClaim own has its devices already, or"),
    "a claim that has its device": (OWN, 1, has_taken, "ResourceClaim own has its devices already"),
    "a claim that is not there": (OWN, 1, lambda scene: None, "there is no ResourceClaim own in"),
    "a template that is not there": (by_template("none"), 1, lambda scene: None,
                                     "there is no ResourceClaimTemplate none in namespace dev"),
    "a claim of a newer form": ({"resourceClaims": [{"name": "gpu", "newer": {}}]}, 1,
                                lambda scene: None, "there is no ResourceClaimTemplate  in"),
    "a group that may share": (
        {**by_template(), "schedulingGroup": {"podGroupName": "g"}}, 1, lambda scene: None,
        "it belongs to a PodGroup, and its pods may share a claim"),
    "slices that are not all there": (by_template(), 1, lambda scene: scene.sandbox.edit(
        "resourceslices", "a001-gpu",
        lambda item: item["spec"]["pool"].update(resourceSliceCount=2)), NOT_PUBLISHED),
    "no role": (by_template(), 1, lambda scene: scene.sandbox.fault(
        "status", path="resourceslices", code=403), "the permission to list resourceslices"),
    "an older server": (by_template(), 1, lambda scene: scene.sandbox.fault(
        "status", path="deviceclasses", code=404), "does not serve /apis/resource.k8s.io/v1"),
}  # fmt: skip


@pytest.mark.parametrize("name", CLAIMED)
def test_unusual_device_claims_are_reported(scene: Scene, name: str) -> None:
    spec, count, prepare, result = CLAIMED[name]
    scene.offer()
    scene.allocate(uid_of(scene.sandbox, "first-0"))
    scene.make("ResourceClaimTemplate", "one", "dev", spec={"spec": exactly()})
    prepare(scene)
    plan = scene.wait(count, spec)
    assert lends(plan) == 0 and not plan.errors
    if result == 0:
        assert not plan.notes and plan.status[QUEUE].pending_pods == count
        return
    assert str(result) in "; ".join(plan.notes), plan.notes
    assert str(result) in scene.site.command("check", "--wide").stdout
    assert plan.status[QUEUE].pending_pods == 0


def test_scheduler_that_allocates_no_devices_is_lent_no_node(scene: Scene) -> None:
    """YuniKorn 1.8 allocates no devices: it would bind the pods, and they would never start."""
    scene.offer()
    scene.allocate("a pod that is gone")
    scene.make("ResourceClaimTemplate", "one", "dev", spec={"spec": exactly()})
    plan = scene.wait(3, by_template())
    assert lends(plan) == 0
    assert "dnm has not seen the scheduler start a pod" in plan.notes[0]


def test_claims_are_not_read_without_pods_that_wait_for_them(scene: Scene) -> None:
    plan = scene.wait(1, {}, cpu="200")
    assert plan.status[QUEUE].pending_pods == 1
    assert not reads_of_claims(scene.sandbox)


GROUP = {"schedulingGroup": {"podGroupName": "train"}}
GROUPS = {
    # policy of the group, number of existing pods -> counted pods, and the problem
    "a gang": ({"gang": {"minCount": 4}}, 2, 4, ""),
    "a whole gang": ({"gang": {"minCount": 4}}, 6, 6, ""),
    "a group without a minimum": ({"basic": {}}, 2, 2, ""),
    "a group that is not there": (None, 2, 2, "there is no PodGroup train in namespace dev"),
    "beyond counting": ({"gang": {"minCount": 2_000_000}}, 2, 0, ""),
}


@pytest.mark.parametrize("name", GROUPS)
def test_pod_group_counts_as_a_gang(scene: Scene, name: str) -> None:
    """dnm also counts pods of the group that do not exist yet. Four pods of 24 cores fit a node."""
    policy, there, counts, problem = GROUPS[name]
    if policy is not None:
        scene.sandbox.create({
            "apiVersion": "scheduling.k8s.io/v1beta1", "kind": "PodGroup",
            "metadata": {"name": "train", "namespace": "dev"}, "spec": {"schedulingPolicy": policy},
        })  # fmt: skip
    plan = scene.wait(there, GROUP, cpu="24")
    assert plan.status[QUEUE].pending_pods == counts
    assert problem in "; ".join(plan.notes) and bool(problem) == bool(plan.notes)
    assert bool(lends(plan)) == bool(counts)
    if name == "beyond counting":
        assert "2 not counted, of a gang that requests more than dnm counts" in (
            plan.queues[0].sentence)  # fmt: skip
    if problem:
        assert problem in scene.site.command("explain", "dev/w-0").stdout
        assert problem in scene.site.command("check", "--wide").stdout


def test_unreadable_pod_group_counts_for_its_existing_pods(scene: Scene) -> None:
    scene.sandbox.fault("status", path="podgroups", code=403)
    plan = scene.wait(2, GROUP, cpu="24")
    assert plan.status[QUEUE].pending_pods == 2 and not plan.errors
    assert "the permission to list podgroups" in plan.notes[0]


def test_tenant_with_many_problems_leaves_the_notes_of_other_tenants() -> None:
    shape = PodShape(request={})
    names = [*(("dev", f"w-{number:02}") for number in range(30)), ("gpu", "one")]
    pods = [Pod(namespace=where, name=name, shape=shape) for where, name in names]
    unverified = {f"{where}/{name}": f"no claim {name}" for where, name in names}
    lines = describe_uncertain_pods(config(), PodWaits(unclear=unverified), pods)
    assert lines[:2] == ("1 pod like dev/w-00: no claim w-00", "1 pod like gpu/one: no claim one")
    assert len(lines) == 11 and lines[-1] == "and 21 more such causes"


class Pages:
    """A client that returns one page of each kind, of which that of claims is given."""

    list_items = ApiRequests.list_items

    def asking(self, *_: str) -> nullcontext[None]:
        return nullcontext()

    def __init__(self, claims: bytes) -> None:
        self.claims = claims

    def collect(
        self, kind_list: List, read: Callable[[bytes], Iterable[Any]], most: int
    ) -> list[Any]:
        is_of_claims = kind_list.kind == "ResourceClaimList"
        page = self.claims if is_of_claims else b'{"items": []}'
        return [item for _ in range(50 if is_of_claims else 1) for item in read(page)]


def test_selectors_of_device_claims_are_not_kept_in_memory() -> None:
    """A tenant's claim is as large as etcd permits: 32 requests with 32 long expressions each."""
    long = [{"cel": {"expression": "x" * 10_000}}] * 10
    claim = {"metadata": {"namespace": "dev", "name": "own"}, "spec": exactly(selectors=long)}
    pages: Any = Pages(json.dumps({"items": [claim]}).encode())
    tracemalloc.start()
    try:
        facts = read_devices(pages, ["dev"])
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert isinstance(facts, DeviceFacts) and facts.claims["dev", "own"].why
    assert peak < 2_000_000  # of 5 MB read
