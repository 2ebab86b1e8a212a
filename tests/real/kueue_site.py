"""A course on Kueue: a ClusterQueue for 20 pods on permanent nodes, and workloads with pods of
4 cores and 16 GiB."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any

from tests.real.http_api import Json
from tests.real.kueue import IN_DEV, OBJECTS, named, quota_rows
from tests.real.rig import Rig
from tests.real.site import PODS, Site, plain_pod
from tests.real.slurm_site import SlurmSite
from tests.real.unmanaged import KEY, NODE_TYPE, SECTION, UNMANAGED, taint_nodes
from tests.real_slurm import SlurmLab

QUEUE, COHORT = "a8", "dnm-a8"
LABEL = "kueue.x-k8s.io/queue-name"
OWN_LABELS = {"pool": "permanent"}
NOTHING = {"cpu": "0", "memory": "0"}
QUOTAS = {"permanent": {"cpu": "80", "memory": "320Gi"}, "lent": NOTHING}  # 20 pods
TAINT = {"key": KEY, "value": "dev", "effect": "NoSchedule"}
LENT_FLAVOR: Json = {
    "nodeLabels": {KEY: "dev"},
    "nodeTaints": [TAINT],
    "tolerations": [{**TAINT, "operator": "Equal"}],
}
JOBS = "/apis/batch/v1/namespaces/dev/jobs"
STAYS = "registry.example/stays:1"  # a Job's pods end only when a test ends them
SETTINGS: dict[str, Any] = {
    **UNMANAGED, "queue_system": "kueue", "queue_map": {"dev": QUEUE},
}  # fmt: skip
del SETTINGS["namespace_queue_paths"]


def make_course(rig: Rig, **changes: Any) -> None:
    """Creates the course's flavors, ClusterQueue (with the fields `changes`) and LocalQueue."""
    for name in ("k1", "k2"):
        rig.api.patch(f"/api/v1/nodes/{name}", {"metadata": {"labels": OWN_LABELS}})
    flavors = f"{OBJECTS}/resourceflavors"
    rig.api.post(flavors, named("ResourceFlavor", "permanent", {"nodeLabels": OWN_LABELS}))
    rig.api.post(flavors, named("ResourceFlavor", "lent", LENT_FLAVOR))
    rig.api.post(f"{OBJECTS}/clusterqueues", cluster_queue(**changes))
    queue = {"clusterQueue": QUEUE}
    rig.api.post(f"{IN_DEV}/localqueues", named("LocalQueue", "course", queue, namespace="dev"))
    rig.wait_for(lambda: is_active(rig), "the ClusterQueue is active")


def cluster_queue(name: str = QUEUE, **changes: Any) -> Json:
    fields = {"cohortName": f"dnm-{name}", "namespaceSelector": {},
              "queueingStrategy": "BestEffortFIFO",
              "resourceGroups": [quota_rows(QUOTAS)], **changes}  # fmt: skip
    spec = {key: value for key, value in fields.items() if value is not None}
    return named("ClusterQueue", name, spec)


def is_active(rig: Rig, name: str = QUEUE) -> bool:
    status = rig.api.get(f"{OBJECTS}/clusterqueues/{name}").get("status", {})
    return any(
        item["type"] == "Active" and item["status"] == "True"
        for item in status.get("conditions", ())
    )


def slurm_site(
    rig: Rig, directory: Path, kubeconfig: Path, lab: SlurmLab, **more: Any
) -> SlurmSite:
    return SlurmSite(rig, directory, kubeconfig, lab, node_type=NODE_TYPE, **SETTINGS, **more)


def converter_site(rig: Rig, directory: Path, kubeconfig: Path, **more: Any) -> Site:
    """Returns a site without Slurm, with a converter that registers Nodes with the taint of dev."""
    site = Site(rig, directory, kubeconfig, sections=SECTION, **{**SETTINGS, **more})
    taint_nodes(site)
    return site


# --- workloads ---------------------------------------------------------------------------------


def course_pod(name: str, **spec: Any) -> Json:
    return plain_pod(name, "4", "16Gi", labels={LABEL: "course"}, **spec)


def add_job(rig: Rig, name: str, pods: int, annotations: Json | None = None, **spec: Any) -> Json:
    manifest = plain_pod(name, "4", "16Gi", restartPolicy="Never")
    manifest["spec"]["containers"][0]["image"] = STAYS
    job = {
        "metadata": {"name": name, "labels": {LABEL: "course"}, "annotations": annotations or {}},
        "spec": {"parallelism": pods, "completions": pods, "suspend": True, "template": manifest,
                 **spec},
    }  # fmt: skip
    created: Json = rig.api.post(JOBS, job)
    return created


def add_gang(rig: Rig, name: str, pods: int, total: int) -> None:
    """Creates `pods` pods of a group, which Kueue admits once `total` pods of it exist."""
    labels = {LABEL: "course", "kueue.x-k8s.io/pod-group-name": name}
    annotations = {"kueue.x-k8s.io/pod-group-total-count": str(total)}
    there = len(rig.pods("dev"))
    for number in range(there, there + pods):
        rig.api.post(PODS, plain_pod(
            f"{name}-{number:02}", "4", "16Gi", labels=labels, annotations=annotations,
        ))  # fmt: skip


def end_job(rig: Rig, name: str) -> None:
    """Ends all running pods of a Job successfully, as their kubelets would."""
    for pod in rig.pods("dev"):
        metadata = pod["metadata"]
        owners = [owner["name"] for owner in metadata.get("ownerReferences", ())]
        if name in owners and pod["status"].get("phase") == "Running":
            done = {"exitCode": 0, "reason": "Completed"}
            statuses = [{"name": "main", "image": STAYS, "imageID": "", "ready": False,
                         "restartCount": 0, "state": {"terminated": done}}]  # fmt: skip
            body = {"status": {"phase": "Succeeded", "containerStatuses": statuses}}
            rig.api.patch(f"{PODS}/{metadata['name']}/status", body)


def workloads(rig: Rig) -> list[Json]:
    return list(rig.api.get(f"{IN_DEV}/workloads")["items"])


def has_condition(workload: Json, kind: str) -> bool:
    conditions = workload.get("status", {}).get("conditions", ())
    return any(item["type"] == kind and item["status"] == "True" for item in conditions)


def evicted(rig: Rig) -> list[str]:
    """Returns the names of the Workloads that Kueue has evicted."""
    return [item["metadata"]["name"] for item in workloads(rig) if has_condition(item, "Evicted")]


def list_steps(rig: Rig, job: Json) -> dict[str, float]:
    """Returns step -> seconds since a Job was created, until its first pod runs on a lent node. The
    API server's times are whole seconds."""
    (workload,) = workloads(rig)
    cohort = rig.api.get(f"{OBJECTS}/cohorts/{COHORT}")["metadata"]["managedFields"]
    nodes = [rig.api.get(f"/api/v1/nodes/{name}") for name in rig.nodes() - {"k1", "k2"}]
    pods = rig.pods("dev")
    times = {
        "last node joins": max(node["metadata"]["creationTimestamp"] for node in nodes),
        "quota is written": max(item["time"] for item in cohort if item["manager"] == "dnm"),
        "quota is reserved": _time_of(workload, "QuotaReserved"),
        "first pod is created": min(pod["metadata"]["creationTimestamp"] for pod in pods),
        "first pod is scheduled": min(_time_of(pod, "PodScheduled") for pod in pods),
        "first pod starts": min(pod["status"]["startTime"] for pod in pods),
    }
    began = datetime.fromisoformat(job["metadata"]["creationTimestamp"])
    return {
        step: (datetime.fromisoformat(when) - began).total_seconds() for step, when in times.items()
    }


def _time_of(thing: Json, kind: str) -> str:
    (condition,) = [item for item in thing["status"]["conditions"] if item["type"] == kind]
    return str(condition["lastTransitionTime"])


def lent_quota(rig: Rig, name: str = COHORT) -> dict[str, int]:
    """Returns the quota of lent nodes in the Cohort, in cores and GiB."""
    spec = rig.api.get(f"{OBJECTS}/cohorts/{name}").get("spec", {})
    return {
        row["name"]: parse_amount(row["nominalQuota"])
        for group in spec.get("resourceGroups", ())
        for flavor in group["flavors"]
        for row in flavor["resources"]
    }


def parse_amount(text: str) -> int:
    """Parses a quantity into cores or GiB. Raises ValueError for another unit."""
    factors = {"Gi": 1, "Ti": 1024}
    return int(text[:-2]) * factors[text[-2:]] if text[-2:] in factors else int(text)


def ledger(rig: Rig, name: str = COHORT) -> str:
    notes = rig.api.get(f"{OBJECTS}/cohorts/{name}")["metadata"].get("annotations", {})
    return str(notes.get("dynamic-node-manager/ledger", ""))


def quota_of(nodes: int) -> dict[str, int]:
    """Returns the quota that this number of lent nodes gives."""
    return {"cpu": 128 * nodes, "memory": 256 * nodes}


def return_all(rig: Rig, site: Site) -> None:
    """Plays runs until all nodes are returned and no lent quota is left. No Workload may be
    evicted. Kueue may release quota after the pods have ended: then the next run lowers it."""
    site.run_until(site.has_returned_nodes, "every node is returned", 120)
    if lent_quota(rig) != quota_of(0):
        site.run_until(lambda: lent_quota(rig) == quota_of(0), "no lent quota is left", 60)
    assert not ledger(rig)
    assert rig.nodes() == {"k1", "k2"} and not evicted(rig)
