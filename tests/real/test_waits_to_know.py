"""Tests of pods that wait for more than capacity (gates, device claims, groups): dnm's decision
about each while the scheduler is stopped, and then the real scheduler's."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from typing import NamedTuple

import pytest

from tests.real.conftest import MakeSite
from tests.real.documented import documented
from tests.real.http_api import Json
from tests.real.pod_groups import LABEL, ROLE, make_pod_groups
from tests.real.pod_kinds import gang
from tests.real.rig import Rig
from tests.real.site import DEV, PODS, Site, pod
from tests.real.versions import YUNIKORNS

DRIVER, CLASS = "gpu.example.org", "gpu.example.org"
RESOURCE = "/apis/resource.k8s.io/v1"


class Wait(NamedTuple):
    """A kind of waiting pods. `reason` is dnm's reason not to count them, or empty."""

    pods: Callable[[], list[Json]]
    reason: str = ""


def some(count: int, **spec: object) -> Callable[[], list[Json]]:
    return lambda: [pod(f"p{n}", DEV, "2", "1Gi", **dict(spec)) for n in range(count)]


def claiming(template: str) -> list[Json]:
    return [{"name": "gpu", "resourceClaimTemplateName": template}]


NOTE = "scheduling.k8s.io/group-name"
WAITS = {  # the rows of docs/real.md
    "2 with a gate": Wait(some(2, schedulingGates=[{"name": "example.org/later"}]),
                          "2 not counted, held back by a scheduling gate"),
    "2 with a claim": Wait(some(2, resourceClaims=claiming("one")),
                           f"no lent node of type a has published devices of {CLASS}"),
    "1 whose claim has a selector": Wait(some(1, resourceClaims=claiming("picky")),
                                         "asks in gpu for more than a count of one class"),
    "1 whose claim is of no class": Wait(some(1, resourceClaims=claiming("odd")),
                                         "there is no DeviceClass missing"),
    "2 with `spec.schedulingGroup`": Wait(some(2, schedulingGroup={"podGroupName": "four"})),
    "2 of a PodGroup of 4, scheduler-plugins'": Wait(some(2, labels={LABEL: "four"})),
    "2 of a PodGroup of 4, Volcano's": Wait(some(2, annotations={NOTE: "four"})),
    "2 of a PodGroup that is not there": Wait(some(2, labels={LABEL: "none"}),
                                              "there is no PodGroup none in namespace dev"),
    "2 of a task group of 4, YuniKorn's": Wait(lambda: gang("gang", 4, 2, "2")(DEV)),
}  # fmt: skip


def make_classes(rig: Rig) -> None:
    """Adds a class of devices, templates of claims, and the PodGroups of two other schedulers."""
    driver = {"cel": {"expression": f'device.driver == "{DRIVER}"'}}
    rig.create(f"{RESOURCE}/deviceclasses",
               {"metadata": {"name": CLASS}, "spec": {"selectors": [driver]}})  # fmt: skip
    chosen = {"cel": {"expression": f'device.attributes["{DRIVER}"].memory > 40'}}
    for name, asks in (
        ("one", {"deviceClassName": CLASS}),
        ("odd", {"deviceClassName": "missing"}),
        ("picky", {"deviceClassName": CLASS, "selectors": [chosen]}),
    ):
        requests = {"devices": {"requests": [{"name": "gpu", "exactly": asks}]}}
        rig.create(f"{RESOURCE}/namespaces/dev/resourceclaimtemplates",
                   {"metadata": {"name": name}, "spec": {"spec": requests}})  # fmt: skip
    make_pod_groups(rig)


def bind_role(rig: Rig) -> None:
    rig.shell(f"kubectl create clusterrolebinding {ROLE} --clusterrole {ROLE} "
              "--serviceaccount yunikorn:dynamic-node-manager")  # fmt: skip


@pytest.fixture(params=YUNIKORNS)
def waiting_rig(request: pytest.FixtureRequest, rig: Rig) -> Iterator[Rig]:
    rig.use_scheduler(request.param)
    make_classes(rig)
    bind_role(rig)
    try:
        yield rig
    finally:
        rig.shell(f"kubectl delete clusterrolebinding {ROLE}")
        rig.remove_pods("dev")  # before the scheduler starts again


def make(rig: Rig, manifests: list[Json]) -> None:
    for manifest in manifests:
        rig.api.post(PODS, manifest)


def remove(rig: Rig, name: str) -> None:
    rig.api.delete(f"/api/v1/namespaces/dev/pods/{name}?gracePeriodSeconds=0")


def hold(rig: Rig, held: bool) -> None:
    """Suspends or resumes the scheduler."""
    rig.servers["yunikorn"].send(signal.SIGSTOP if held else signal.SIGCONT)


def pending(site: Site) -> int:
    """Returns how many pending pods dnm counts, computed from their CPUs."""
    queues = {queue["queue"]: queue for queue in site.json("status", "--live")["queues"]}
    return int(queues[DEV]["pending"].get("cpu", 0)) // 2000


def bound(rig: Rig) -> list[str]:
    return [entry["metadata"]["name"] for entry in rig.pods("dev") if entry["spec"].get("nodeName")]


def scheduler_result(rig: Rig, has_claims: bool) -> str:
    """Resumes the scheduler. Returns its decision about the current pods, for the table."""
    server = rig.servers["yunikorn"]
    before = server.log.stat().st_size
    hold(rig, False)
    if has_claims and rig.scheduler.startswith("1.9"):
        rig.wait_for(lambda: not server.is_up, "YuniKorn ends")
        assert b"panic: " in server.log.read_bytes()[before:]
        return "ends with a panic"
    make(rig, [pod("after", DEV, "1", "1Gi")])
    rig.wait_for(lambda: "after" in bound(rig), "a pod that came later is bound")
    rig.wait_for(lambda: not (rig.queue(DEV).get("pendingResource") or {}).get("vcore"), "rest")
    rig.wait_for(lambda: rig.running("dev") == len(bound(rig)), "all that are bound run")
    count = len([name for name in bound(rig) if name != "after"])
    claims = rig.api.get(f"{RESOURCE}/namespaces/dev/resourceclaims")["items"]
    assert not any(claim.get("status", {}).get("allocation") for claim in claims)
    return f"binds {count}" + (", without a device" if has_claims and count else "")


@pytest.mark.parametrize("name", WAITS)
def test_dnm_and_the_scheduler_treat_waiting_pods_as_documented(
    waiting_rig: Rig, make_site: MakeSite, name: str
) -> None:
    rig, wait = waiting_rig, WAITS[name]
    manifests = wait.pods()
    hold(rig, True)
    make(rig, manifests)
    site = make_site(yunikorn_url=None)
    counted, plan = pending(site), site.dnm("plan").stdout
    assert wait.reason in plan, plan
    if "schedulingGroup" in name:  # this release of Kubernetes does not know it
        assert not [entry for entry in rig.pods("dev") if "schedulingGroup" in entry["spec"]]
    has_claims = "resourceClaims" in manifests[0]["spec"]
    result = f"{counted}", scheduler_result(rig, has_claims)
    print(f"\n| {name} | {' | '.join(result)} | (YuniKorn {rig.scheduler})")
    assert result == documented("pods that wait", rig.scheduler)[name]


def test_devices_count_after_the_scheduler_allocated_a_device(
    rig: Rig, make_site: MakeSite
) -> None:
    """First dnm lacks the role to read devices, then no lent node has published any. Then YuniKorn
    binds a pod without allocating a device, and at last a client allocates one."""
    rig.use_scheduler(YUNIKORNS[0])
    make_classes(rig)
    site = make_site(yunikorn_url=None)
    make(rig, [pod("big", DEV, "70", "16Gi")])
    site.run_until(lambda: site.lent and rig.running("dev") == 1, "a node is lent")
    (node,) = site.lent
    hold(rig, True)
    make(rig, some(3, resourceClaims=claiming("one"))())
    reported = site.json("check")["checks"]
    assert any("permission to list deviceclasses" in f"{item}" for item in reported)
    bind_role(rig)
    try:
        site.dnm("run")
        events = rig.shell("kubectl describe pod -n dev p0")
        assert "NoNodeLent" in events and "no lent node of type a has published" in events
        assert "no lent node of type a has published" in site.dnm("explain", "dev/p0").stdout
        publish(rig, node, 2)
        hold(rig, False)
        here = {"nodeSelector": {"kubernetes.io/hostname": node}}
        remove(rig, "p0")
        make(rig, [pod("p0", DEV, "2", "1Gi", resourceClaims=claiming("one"), **here)])
        rig.wait_for(lambda: rig.running("dev") == 4, "all are bound")
        hold(rig, True)
        for name in ("p1", "p2"):
            remove(rig, name)
        make(rig, [pod(f"q{n}", DEV, "2", "1Gi", resourceClaims=claiming("one")) for n in range(3)])
        assert "dnm has not seen the scheduler start a pod" in site.dnm("plan").stdout
        allocate(rig, node, "p0")
        plan = site.dnm("plan", code=None).stdout
        assert "not counted" not in plan and "needs 1 of type a" in plan, plan
    finally:
        rig.shell(f"kubectl delete clusterrolebinding {ROLE}")


def publish(rig: Rig, node: str, count: int) -> None:
    """Publishes `count` devices of a node, as a driver does."""
    pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
    devices = [{"name": f"gpu-{number}"} for number in range(count)]
    spec = {"driver": DRIVER, "nodeName": node, "pool": pool, "devices": devices}
    rig.create(f"{RESOURCE}/resourceslices", {"metadata": {"name": node}, "spec": spec})


def allocate(rig: Rig, node: str, name: str) -> None:
    """Allocates a device to a claim, as a scheduler does that supports devices."""
    held = rig.api.get(f"/api/v1/namespaces/dev/pods/{name}")
    (claim,) = held["status"]["resourceClaimStatuses"]
    result = {"request": "gpu", "driver": DRIVER, "pool": node, "device": "gpu-0"}
    holder = {"resource": "pods", "name": name, "uid": held["metadata"]["uid"]}
    status = {"allocation": {"devices": {"results": [result]}}, "reservedFor": [holder]}
    path = f"{RESOURCE}/namespaces/dev/resourceclaims/{claim['resourceClaimName']}"
    rig.api.patch(f"{path}/status", {"status": status})
