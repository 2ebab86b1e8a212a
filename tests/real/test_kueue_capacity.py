"""Lent quota in a CapacityProvider, on a real API server with the CRDs of Kueue. Its manager of
0.20 is not built here, so the test sets the effective quotas itself."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.real.http_api import ApiError, Json
from tests.real.kueue import CRDS, GROUP, IN_DEV, KINDS, OBJECTS, Kueue, apply, named, quota_rows
from tests.real.kueue_site import (
    LENT_FLAVOR,
    NOTHING,
    QUEUE,
    QUOTAS,
    cluster_queue,
    converter_site,
    parse_amount,
    quota_of,
)
from tests.real.namespaces import REPOSITORY
from tests.real.rig import Rig
from tests.real.site import PODS, Site, plain_pod
from tests.real.unmanaged import EVERYTHING, KEY

PROVIDERS = f"/apis/{GROUP}/v1alpha1/capacityproviders"
NAME = "dnm-a8"
NOTE = {"dynamic-node-manager/lent-quota-in": "capacity-provider"}
CONTROLLER = "dynamic-node-manager/lent-nodes"
LEDGER = "dynamic-node-manager/ledger"
SPEC: Json = {"controllerName": CONTROLLER, "orchestratedFlavors": [{"name": "lent"}]}
SHARE = {"cpu": "1", "memory": "1"}
DEFINITION: Json = yaml.safe_load((Path(__file__).parent / "capacity_providers.yaml").read_text())


def definitions(kueue: Kueue) -> Iterator[Json]:
    """Yields Kueue's CRDs as in 0.20: only v1beta2, with effective quotas of ClusterQueues."""
    for definition in kueue.definitions():
        spec = definition["spec"]
        spec["versions"] = [item for item in spec["versions"] if item["name"] == "v1beta2"]
        spec.pop("conversion", None)
        for version in spec["versions"]:
            version["storage"] = True
            if spec["names"]["kind"] == "ClusterQueue":
                fields = version["schema"]["openAPIV3Schema"]["properties"]
                groups = fields["spec"]["properties"]["resourceGroups"]
                owner = {"type": "object", "additionalProperties": {"type": "string"}}
                fields["status"]["properties"]["effectiveQuotas"] = {
                    "type": "object", "required": ["orchestratorRef", "resourceGroups"],
                    "properties": {"orchestratorRef": owner, "resourceGroups": groups},
                }  # fmt: skip
        if spec["versions"]:
            yield definition
    yield DEFINITION


@pytest.fixture
def capacity_rig(plain_rig: Rig) -> Iterator[Rig]:
    """Yields the real cluster with the CRDs of Kueue, and without its manager."""
    kueue, rig = Kueue(plain_rig), plain_rig
    names = [item["metadata"]["name"] for item in definitions(kueue)]
    for definition in definitions(kueue):
        apply(rig, f"{CRDS}/{definition['metadata']['name']}", definition)
    rig.wait_for(lambda: kueue.is_served() and rig.api.answers(PROVIDERS), "its kinds are served")
    try:
        yield rig
    finally:
        rig.api.ask("DELETE", PROVIDERS)
        for kind in KINDS:
            rig.wait_for(partial(kueue.is_without, kind), f"no {kind} are left")
        for name in names:
            rig.api.delete(f"{CRDS}/{name}")
        rig.wait_for(lambda: not rig.api.answers(OBJECTS), "the kinds of Kueue are gone")


def make_course(rig: Rig) -> None:
    """Creates flavors, an active ClusterQueue with a share of lent quota, and its LocalQueue."""
    flavors, queues = f"{OBJECTS}/resourceflavors", f"{OBJECTS}/clusterqueues"
    rig.api.post(flavors, named("ResourceFlavor", "permanent", {}))
    rig.api.post(flavors, named("ResourceFlavor", "lent", LENT_FLAVOR))
    groups = [quota_rows({**QUOTAS, "lent": SHARE})]
    queue = cluster_queue(cohortName=None, resourceGroups=groups)
    queue["metadata"]["annotations"] = NOTE
    rig.api.post(queues, queue)
    active = condition("Active", "Ready")
    rig.api.patch(f"{queues}/{QUEUE}/status", {"status": {"conditions": [active]}})
    leads = {"clusterQueue": QUEUE}
    rig.api.post(f"{IN_DEV}/localqueues", named("LocalQueue", "course", leads, namespace="dev"))


def condition(kind: str, reason: str) -> Json:
    return {"type": kind, "status": "True", "reason": reason, "message": "",
            "lastTransitionTime": "2026-11-30T08:00:00Z"}  # fmt: skip


def add_provider(rig: Rig, **spec: Any) -> None:
    manifest = {"apiVersion": f"{GROUP}/v1alpha1", "kind": "CapacityProvider",
                "metadata": {"name": NAME}, "spec": {**SPEC, **spec}}  # fmt: skip
    rig.api.post(PROVIDERS, manifest)


def provider_of(rig: Rig) -> Json:
    provider: Json = rig.api.get(f"{PROVIDERS}/{NAME}")
    return provider


def texts_of(rig: Rig) -> dict[str, str]:
    """Returns the lent quota in the status of the CapacityProvider."""
    capacity = provider_of(rig).get("status", {}).get("capacity", {})
    return {key: text for item in capacity.get("flavors", ()) for key, text in
            item["resources"].items()}  # fmt: skip


def conditions_of(rig: Rig) -> dict[str, Json]:
    return {item["type"]: item for item in provider_of(rig)["status"]["conditions"]}


def distribute(rig: Rig) -> dict[str, int]:
    """Sets the quotas of the ClusterQueue as a DynamicQuotaOrchestrator with this CapacityProvider
    does; returns the lent quota."""
    groups = [quota_rows({**QUOTAS, "lent": texts_of(rig)})]
    owner = {"apiGroup": GROUP, "kind": "DynamicQuotaOrchestrator", "name": "lent-nodes"}
    quotas = {"orchestratorRef": owner, "resourceGroups": groups}
    path = f"{OBJECTS}/clusterqueues/{QUEUE}/status"
    rig.api.patch(path, {"status": {"effectiveQuotas": quotas}})
    return {name: parse_amount(text) for name, text in texts_of(rig).items()}


def add_workload(rig: Rig, pods: int) -> None:
    template = plain_pod("main", "4", "16Gi", restartPolicy="Never")
    sets = [{"name": "main", "count": pods, "template": template}]
    spec = {"active": True, "queueName": "course", "podSets": sets}
    rig.api.post(f"{IN_DEV}/workloads", named("Workload", "workshop", spec, namespace="dev"))


def admit(rig: Rig, pods: int) -> None:
    """Reserves lent quota for the Workload and creates its pods, as Kueue does."""
    usage = {"cpu": str(4 * pods), "memory": f"{16 * pods}Gi"}
    assignment = {"name": "main", "count": pods, "resourceUsage": usage,
                  "flavors": dict.fromkeys(usage, "lent")}  # fmt: skip
    admission = {"clusterQueue": QUEUE, "podSetAssignments": [assignment]}
    conditions = [condition("QuotaReserved", "QuotaReserved"), condition("Admitted", "Admitted")]
    path = f"{IN_DEV}/workloads/workshop/status"
    rig.api.patch(path, {"status": {"admission": admission, "conditions": conditions}})
    for number in range(pods):
        pod = plain_pod(f"w{number:02}", "4", "16Gi", nodeSelector={KEY: "dev"},
                        tolerations=[EVERYTHING])  # fmt: skip
        rig.api.post(PODS, pod)


def finish(rig: Rig) -> None:
    rig.remove_work()
    rig.api.delete(f"{IN_DEV}/workloads/workshop")


def code_of_write(rig: Rig, version: str) -> int:
    """Returns the answer to a dry run of a status under this resourceVersion."""
    capacity = {"flavors": [{"name": "lent", "resources": {"cpu": "1"}}]}
    manifest = {"apiVersion": f"{GROUP}/v1alpha1", "kind": "CapacityProvider",
                "metadata": {"name": NAME, "resourceVersion": version},
                "status": {"capacity": capacity}}  # fmt: skip
    path = f"{PROVIDERS}/{NAME}/status?dryRun=All&fieldManager=dnm&force=true"
    try:
        rig.api.patch(path, manifest, "apply")
    except ApiError as error:
        return error.code
    return 200


def test_lent_quota_is_in_a_capacity_provider(
    capacity_rig: Rig, kubeconfig_without_yunikorn: Path, tmp_path: Path
) -> None:
    """The roles suffice. Each write has quota, zeros and condition together, and is refused under
    another version. Quota that the ClusterQueue does not have is reported."""
    rig = capacity_rig
    for role in ("rbac-kueue", "rbac-kueue-capacity-provider"):
        rig.shell(f"kubectl apply -f {REPOSITORY}/etc/{role}.yaml")
    make_course(rig)
    site = converter_site(rig, tmp_path / "site", kubeconfig_without_yunikorn)
    assert f"CapacityProvider {NAME}: it does not exist" in site.dnm("check", code=1).stdout
    add_provider(rig)
    assert site.json("check")["ok"]
    site.dnm("run")
    assert texts_of(rig) == NOTHING and list(conditions_of(rig)) == ["CapacitySynchronized"]
    assert "effective quota" in site.dnm("check", code=1).stdout
    distribute(rig)
    assert site.json("check")["ok"]

    version = provider_of(rig)["metadata"]["resourceVersion"]
    assert code_of_write(rig, version) == 200
    patch = {"metadata": {"annotations": {"dynamic-node-manager/fence": "prod 2"}}}
    rig.api.patch(f"{PROVIDERS}/{NAME}", patch)
    assert code_of_write(rig, version) == 409

    add_workload(rig, 30)
    site.run_until(lambda: distribute(rig) == quota_of(2), "two nodes are in the quota", 120)
    site.run_until(lambda: ready_nodes(rig, site) == 2, "two nodes are open", 120)
    assert all(name in conditions_of(rig)[LEDGER]["message"] for name in site.lent)
    since = conditions_of(rig)["CapacitySynchronized"]["lastTransitionTime"]
    admit(rig, 30)
    rig.wait_for(lambda: rig.running("dev") == 30, "the workshop runs")
    site.dnm("run")
    assert distribute(rig) == quota_of(2) and site.json("check")["ok"]

    finish(rig)
    site.run_until(site.has_returned_nodes, "every node is returned", 120)
    assert distribute(rig) == quota_of(0) and texts_of(rig) == NOTHING
    assert list(conditions_of(rig)) == ["CapacitySynchronized"]
    assert conditions_of(rig)["CapacitySynchronized"]["lastTransitionTime"] == since
    assert not rig.api.get(f"{OBJECTS}/cohorts")["items"] and rig.nodes() == {"k1", "k2"}


def ready_nodes(rig: Rig, site: Site) -> int:
    """Returns how many lent nodes accept pods."""
    nodes = [rig.api.get(f"/api/v1/nodes/{name}") for name in rig.nodes() & set(site.lent)]
    return sum(not node["spec"].get("unschedulable") for node in nodes)
