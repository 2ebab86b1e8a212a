"""The initial site of `dnm sandbox up` and of the demo, and dnm's configuration for it.

Two Kubernetes nodes of 64 CPUs and 128 GB have no free capacity. Three of twelve batch nodes of 128
CPUs and 256 GB have jobs. The queue `root.anvil.services.dev` has 80 vcores and 320 GB."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from dnm.lab.sandbox.cluster import Sandbox
from dnm.lab.sandbox.files import write_file
from dnm.lab.sandbox.manifests import pod_manifest

WORKSHOP_QUEUE = "root.anvil.services.dev"
NOTEBOOK_QUEUE = "root.anvil.services.notebook"
WORKSHOP_PODS = 75
QUEUES = """\
# The queues of this site. Limits are for people; dnm adds lent nodes, and removes them again.
partitions:
  - name: default
    queues:
      - name: root
        submitacl: "*"
        queues:
          - name: anvil
            queues:
              - name: services
                queues:
                  - name: notebook        # JupyterHub
                    resources:
                      guaranteed: {vcore: 16, memory: 64G}
                      max: {vcore: 120, memory: 240G}
                  - name: dev             # workshops and courses
                    resources:
                      guaranteed:
                        vcore: 8
                        memory: 32G
                      max:
                        vcore: 80
                        memory: 320G
"""

_SETTINGS = {
    "kubeconfig_path": "kubeconfig",
    "monitored_namespaces": "dev, notebook",
    "namespace_queue_paths": "namespace_queue_paths.json",
    "state_dir": "state",
    "node_convert_path": "node-convert",
    "instance_id": "sandbox",
    "node_type": "a",
    "max_converted_nodes": "8",
    "max_conversions_per_run": "2",
    "reversion_idle_seconds": "30",
    "global_cooldown_seconds": "10",
    "check_interval_seconds": "10",
    "join_timeout_seconds": "60",
    "convert_timeout_seconds": "120",
}
_LAB = {"pending_grace_seconds": "0", "shutdown_grace_seconds": "15"}


LENT = "example.org/lent"
_NODE_TYPE = f"""
[node_type:a]
labels = {LENT}={{namespace}}
taints = {LENT}={{namespace}}:NoSchedule
"""


QUOTA = {"requests.cpu": "80", "requests.memory": "320G"}


def build_site(sandbox: Sandbox, machines: int, queue_system: str = "yunikorn") -> None:
    """Creates the initial site in a sandbox; `queue_system` is yunikorn, resource_quota or none."""
    if queue_system == "yunikorn":
        sandbox.set_queues(QUEUES)
        sandbox.yunikorn.restart()
    else:
        taint = {"key": LENT, "value": "{namespace}", "effect": "NoSchedule"}
        sandbox.add_machine_type("a", labels={LENT: "{namespace}"}, taints=[taint])
    for number in (1, 2):
        name = f"k{number:02}"
        sandbox.add_node(name, cpu="64", memory="128G")
        pod = sandbox.add_pods(1, "services", cpu="62", memory="120G", name=f"portal-{number}")
        sandbox.bind(pod[0], name, "services")
    for namespace in ("dev", "notebook"):
        sandbox.add_namespace(namespace)
        if queue_system == "resource_quota":
            sandbox.create({"apiVersion": "v1", "kind": "ResourceQuota", "spec": {"hard": QUOTA},
                            "metadata": {"name": "course", "namespace": namespace}})  # fmt: skip
    names = sandbox.add_machines(machines)
    for name in names[:: max(2, machines // 3)]:
        sandbox.batch.start_job([name])


def add_workshop(
    sandbox: Sandbox, run_seconds: float | None = None, queue_system: str = "yunikorn"
) -> list[str]:
    """Creates the pods of 75 people, each with 4 CPUs and 16 GB, and returns their names. With
    ResourceQuotas it creates their Deployment only, and returns no names."""
    toleration = {"key": LENT, "operator": "Equal", "value": "dev", "effect": "NoSchedule"}
    tolerant, is_yunikorn = {"tolerations": [toleration]}, queue_system == "yunikorn"
    if queue_system == "resource_quota":
        pod = pod_manifest("session", "dev", {"cpu": "4", "memory": "16G"}, spec=tolerant)
        labels, meta = {"app": "session"}, {"name": "session", "namespace": "dev"}
        template = {"metadata": {"labels": labels}, "spec": pod["spec"]}
        spec = {"replicas": WORKSHOP_PODS, "selector": {"matchLabels": labels},
                "template": template}  # fmt: skip
        sandbox.create({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": meta,
                        "spec": spec})  # fmt: skip
        sandbox.step()
        return []
    return sandbox.add_pods(
        WORKSHOP_PODS, "dev", queue=WORKSHOP_QUEUE if is_yunikorn else "", cpu="4", memory="16G",
        name="session", run_seconds=run_seconds,
        spec=None if is_yunikorn else tolerant,
    )  # fmt: skip


def write_configuration(directory: Path, url: str, settings: Mapping[str, str]) -> Path:
    """Writes dnm's two configuration files with relative paths. Returns the path of the ini."""
    values = {**_SETTINGS, "yunikorn_url": url, **settings}
    is_yunikorn = values.get("queue_system", "yunikorn") == "yunikorn"
    if values.get("queue_system") == "resource_quota":
        values["wake_workloads"] = "true"
    for key in () if is_yunikorn else ("yunikorn_url", "namespace_queue_paths"):
        del values[key]
    lab = {key: values.pop(key, text) for key, text in _LAB.items()}
    lines, pace = (
        "".join(f"{key} = {text}\n" for key, text in entry.items()) for entry in (values, lab)
    )
    heading = "# dnm's configuration for the sandbox beside it; seconds replace minutes here.\n"
    queues = {"dev": WORKSHOP_QUEUE, "notebook": NOTEBOOK_QUEUE}
    (directory / "state").mkdir(mode=0o700, exist_ok=True)
    if is_yunikorn:
        write_file(directory / "namespace_queue_paths.json", json.dumps(queues, indent=2).encode())
    path, node_type = directory / "dnm.ini", "" if is_yunikorn else _NODE_TYPE
    write_file(path, f"{heading}[settings]\n{lines}{node_type}\n[lab]\n{pace}".encode())
    return path
