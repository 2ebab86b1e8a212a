"""slurm-bridge on a real Slurm 26.05: a controller that acts like it (`Bridge`), and its own
controllers, built from a checkout, with another scheduler (`RealBridge`).

`Bridge` is a node controller and a scheduler, with slurm-bridge's own labels, taints and Reasons.
All else is real: Nodes, pods, and their eviction for a NoExecute taint; Slurm's nodes of state
EXTERNAL, without a slurmd; its external jobs, one for each pod."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Self

from dnm.model.errors import SlurmError
from tests.converters.bridge_world import LABEL as EXTERNAL
from tests.converters.bridge_world import PARTITIONS
from tests.real.checkouts import SLURM_BRIDGE
from tests.real.http_api import Api, ApiError, Json
from tests.real.rig import Rig
from tests.real.slinky import GROUP, Controller
from tests.real.slurm_roots import programs_of
from tests.real_slurm import SlurmLab
from tests.slurmrestd import allow_tokens, slurmrestd, write_token

SUITE = "forky"
NAMESPACE = "bridged"  # the namespace of the pods that slurm-bridge schedules
BRIDGED_PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
SCHEDULER = "slurm-bridge-scheduler"
MANAGED = {"key": f"{GROUP}/managed-node", "value": SCHEDULER, "effect": "NoExecute"}
JOB = f"scheduler.{GROUP}/slurm-jobid"
FINALIZER = f"scheduler.{GROUP}/finalizer"
REST_PORT = "6820"
HEALTH = "http://127.0.0.1:8081"
REASON = "slurm-bridge: "
PASS = 0.5  # seconds; slurm-bridge checks every half minute, and on changes
TAINT_LAG = 4  # passes from the end of the record to the end of the taint
# The features of nodes select these partitions.
CONFIGURATION = """\
MaxNodeCount=64
NodeSet=b Feature=b
NodeSet=c Feature=c
PartitionName=b Nodes=b MaxTime=INFINITE State=UP
PartitionName=c Nodes=c MaxTime=INFINITE State=UP
"""


class BridgedSlurm(SlurmLab):
    """A site's Slurm to which slurm-bridge adds nodes, with the ordinary nodes `nodes`. Tests read
    its JSON output, which dnm does not use."""

    def __init__(self, directory: Path, nodes: Sequence[str]) -> None:
        super().__init__(directory, nodes, CONFIGURATION, programs_of(SUITE))
        self.patience = 5
        allow_tokens(self)

    def read(self, kind: str) -> list[Json]:
        """Returns Slurm's `nodes`, `jobs` (also just ended ones) or `reservations`."""
        rows: list[Json] = json.loads(self.run("scontrol", "--json", "show", kind))[kind]
        return rows

    def nodes_now(self) -> dict[str, Json]:
        return {entry["name"]: entry for entry in self.read("nodes")}

    def jobs_now(self) -> dict[str, Json]:
        return {str(entry["job_id"]): entry for entry in self.read("jobs")}

    def forget_external(self) -> None:
        """Removes everything that a test has left in Slurm."""
        for job, entry in self.jobs_now().items():
            if set(entry["job_state"]) & {"PENDING", "RUNNING"}:
                self.run("scancel", job)
        for reservation in self.read("reservations"):
            self.run("scontrol", "delete", f"ReservationName={reservation['name']}")
        for partition in ("b", "c"):
            with suppress(SlurmError):  # it exists
                self.run("scontrol", "create", f"PartitionName={partition}", f"Nodes={partition}")
        self.wait_for(self._has_forgotten, 60)

    def _has_forgotten(self) -> bool:
        external = [
            name for name, entry in self.nodes_now().items() if "EXTERNAL" in entry["state"]
        ]
        for name in external:
            with suppress(SlurmError):  # not yet
                self.run("scontrol", "delete", f"NodeName={name}")
        return not external


class Bridge(Controller):
    """A controller that acts like slurm-bridge. `refused` has Slurm's refusals. `ended` has each
    job that ended while its pod existed; the pod is then deleted."""

    def __init__(self, rig: Rig, slurm: BridgedSlurm) -> None:
        super().__init__(rig, PASS)
        self.rig, self.slurm = rig, slurm
        self.refused: list[str] = []
        self.ended: list[str] = []
        self._unknown: Counter[str] = Counter()  # passes since Slurm has no record of it
        self._jobs: dict[str, str] = {}  # job -> its pod

    def step(self) -> None:
        self._keep_nodes()
        self._schedule()

    def end(self, name: str) -> None:
        """Ends the pod, as its program would."""
        self.api.delete(f"{BRIDGED_PODS}/{name}", {"gracePeriodSeconds": 0})

    def _keep_nodes(self) -> None:
        nodes = self.api.get("/api/v1/nodes")["items"]
        partitions = {entry["name"] for entry in self.slurm.read("partitions")}
        facts = self.slurm.nodes_now()
        for node in nodes:
            self._register(node, facts.get(node["metadata"]["name"]), partitions)
        facts = self.slurm.nodes_now()
        for node in nodes:
            self._taint(node, node["metadata"]["name"] in facts)
            self._follow_cordon(node, facts.get(node["metadata"]["name"]))

    def _change(self, *command: str) -> str:
        """Runs a command of Slurm, and notes a refusal; the next pass tries again."""
        try:
            return self.slurm.run(*command)
        except SlurmError as error:
            self.refused.append(str(error))
            return ""

    # --- the node controller ---------------------------------------------------------------------

    def _register(self, node: Json, record: Json | None, partitions: set[str]) -> None:
        name, metadata = node["metadata"]["name"], node["metadata"]
        if EXTERNAL in metadata["labels"]:
            reported = metadata.get("annotations", {}).get(PARTITIONS, "")
            wanted = [item.strip() for item in reported.split(",")]
            if not set(wanted) <= partitions:
                return
            features = ",".join(wanted)
            if record is None:
                self._change(
                    "scontrol", "create", f"NodeName={name}", "State=EXTERNAL",
                    f"CPUs={node['status']['capacity']['cpu']}", f"Feature={features}",
                    f"RealMemory={megabytes(node)}", "NodeAddr=127.0.0.1",
                )  # fmt: skip
            elif record["features"] != wanted:
                both = (f"AvailableFeatures={features}", f"ActiveFeatures={features}")
                self._change("scontrol", "update", f"NodeName={name}", *both)
        elif record is not None and "EXTERNAL" in record["state"]:
            if "DRAIN" not in record["state"]:
                self._drain(name, f"{REASON}removing external node {name}")  # doubled prefix
            elif not set(record["state"]) & {"ALLOCATED", "MIXED", "COMPLETING"}:
                self._change("scontrol", "delete", f"NodeName={name}")

    def _drain(self, name: str, why: str) -> None:
        self._change(
            "scontrol", "update", f"NodeName={name}", "State=DRAIN", f"Reason={REASON}{why}"
        )

    def _taint(self, node: Json, is_known: bool) -> None:
        """Taints each Node with a name that Slurm knows; removes the taint from others later."""
        name, taints = node["metadata"]["name"], node["spec"].get("taints", [])
        self._unknown[name] = 0 if is_known else self._unknown[name] + 1
        is_tainted = any(taint["key"] == MANAGED["key"] for taint in taints)
        if is_known and not is_tainted:
            self._set_taint(name, [MANAGED])
        elif is_tainted and self._unknown[name] > TAINT_LAG:
            self._set_taint(name, [])

    def _set_taint(self, name: str, wanted: list[Json]) -> None:
        """Sets slurm-bridge's taint; reads the Node again if another client wrote it meanwhile."""
        for _ in range(50):
            node = self.node(name)
            other = [
                item for item in node["spec"].get("taints", []) if item["key"] != MANAGED["key"]
            ]
            version = {"resourceVersion": node["metadata"]["resourceVersion"]}
            body = {"metadata": version, "spec": {"taints": [*other, *wanted]}}
            try:
                self.api.patch(f"/api/v1/nodes/{name}", body)
                return
            except ApiError as error:
                if error.code != 409:
                    raise

    def _follow_cordon(self, node: Json, record: Json | None) -> None:
        """Drains cordoned nodes, unless they are drained; lifts only drains of its own."""
        if record is None:
            return
        name, is_drained = node["metadata"]["name"], "DRAIN" in record["state"]
        is_cordoned = node["spec"].get("unschedulable", False)
        why = f"Corresponding Kubernetes node (/{name}) is"
        if is_cordoned and not is_drained:
            self._drain(name, f"{why} unschedulable")
        is_theirs = not record["reason"] or REASON.strip() in record["reason"]
        if not is_cordoned and is_drained and is_theirs:
            message = f"Reason={REASON}{why} schedulable"
            self._change("scontrol", "update", f"NodeName={name}", "State=UNDRAIN", message)

    # --- the scheduler ---------------------------------------------------------------------------

    def _schedule(self) -> None:
        pods = {pod["metadata"]["name"]: pod for pod in self.api.get(BRIDGED_PODS)["items"]}
        jobs = self.slurm.jobs_now()
        for job, name in list(self._jobs.items()):
            if name not in pods:
                del self._jobs[job]
                self._change("scancel", job)
        for name, pod in pods.items():
            job = pod["metadata"].get("labels", {}).get(JOB)
            if "deletionTimestamp" in pod["metadata"]:
                continue
            if job is None:
                self._submit(name)
            elif jobs[job]["job_state"] == ["RUNNING"]:
                if "nodeName" not in pod["spec"]:
                    self._bind(name, jobs[job]["nodes"])
            elif jobs[job]["job_state"] != ["PENDING"]:
                self._lose(name, jobs[job]["job_state"])

    def _lose(self, name: str, state: Json) -> None:
        """Deletes the pod of a job that has ended, and records that."""
        self.ended.append(f"{name}: {state}")
        self.api.delete(f"{BRIDGED_PODS}/{name}", {"gracePeriodSeconds": 0})

    def _submit(self, name: str) -> None:
        """Submits a job without a script, for a whole node."""
        job = self._change(
            "sbatch", "--parsable", "--external", "--exclusive", "-N1", "-p", "b", "-D", "/tmp"
        )
        if not job:
            return
        self._jobs[job] = name
        pods = json.dumps({"pods": [f"{NAMESPACE}/{name}"]})
        self._change("scontrol", "update", f"JobId={job}", f"AdminComment={pods}")
        self._mark(name, {"labels": {JOB: job}})

    def _mark(self, name: str, metadata: Json) -> None:
        self.api.patch(f"{BRIDGED_PODS}/{name}", {"metadata": metadata})

    def _bind(self, name: str, node: str) -> None:
        target = {"apiVersion": "v1", "kind": "Node", "name": node}
        body = {"apiVersion": "v1", "kind": "Binding", "target": target, "metadata": {"name": name}}
        self.api.post(f"{BRIDGED_PODS}/{name}/binding", body)


class RealBridge(Bridge):
    """slurm-bridge's own controllers of nodes and workloads, over slurmrestd. When a pod succeeds,
    they end its job; the test deletes the pod once they release it."""

    def __enter__(self) -> Self:
        rig, slurm = self.rig, self.slurm
        with ExitStack() as stack:
            url = stack.enter_context(slurmrestd(slurm, REST_PORT))
            settings = {"schedulerName": SCHEDULER, "slurmRestApi": url, "partition": "b",
                        "managedNamespaces": [NAMESPACE], "mcsLabel": "kubernetes"}  # fmt: skip
            config = slurm.directory / "slurm-bridge.yaml"
            config.write_text(json.dumps(settings))
            token = write_token(slurm, slurm.directory / "slurm-bridge.token")
            rig.add(
                "slurm-bridge",
                [str(SLURM_BRIDGE.program), "--config", str(config), "--metrics-bind-address", "0",
                 "--health-probe-bind-address", HEALTH.removeprefix("http://")],
                lambda: Api(HEALTH).answers("/readyz"),
                KUBECONFIG=rig.kubeconfig(), SLURM_JWT_FILE=str(token),
            )  # fmt: skip
            stack.callback(lambda: rig.servers.pop("slurm-bridge").stop())
            rig.servers["slurm-bridge"].start()
            rig.note_versions({"slurm-bridge": SLURM_BRIDGE.version})
            super().__enter__()
            self._servers = stack.pop_all()
        return self

    def __exit__(self, *what: object) -> None:
        with self._servers:
            super().__exit__(*what)

    def _keep_nodes(self) -> None:
        """Does what else a cluster does: deletes ended pods, and gives nodes an address. Without
        one, slurmctld would block for ten seconds at each node."""
        for name, node in self.slurm.nodes_now().items():
            if "EXTERNAL" in node["state"] and node["address"] == name:
                self._change("scontrol", "update", f"NodeName={name}", "NodeAddr=127.0.0.1")
        for pod in self.api.get(BRIDGED_PODS)["items"]:
            if is_done(pod) and not pod["metadata"].get("finalizers"):
                super().end(pod["metadata"]["name"])

    def end(self, name: str) -> None:
        self.api.patch(
            f"{BRIDGED_PODS}/{name}/status", {"status": {"phase": "Succeeded"}}, "strategic"
        )

    def _change(self, *command: str) -> str:
        return "" if command[0] == "scancel" else super()._change(*command)

    def _lose(self, name: str, state: Json) -> None:
        """Records that a job ended before its pod; the workload controller deletes the pod."""
        pod = self.api.get(f"{BRIDGED_PODS}/{name}")
        if not is_done(pod) and f"{name}: {state}" not in self.ended:
            self.ended.append(f"{name}: {state}")

    def _mark(self, name: str, metadata: Json) -> None:
        super()._mark(name, {**metadata, "finalizers": [FINALIZER]})


def is_done(pod: Json) -> bool:
    return bool(pod["status"].get("phase") == "Succeeded")


def megabytes(node: Json) -> int:
    """Returns the memory of a Node, which has it in Gi, in MB."""
    return int(node["status"]["capacity"]["memory"].removesuffix("Gi")) * 1024
