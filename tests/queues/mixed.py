"""Sites with two namespaces that may have different queue systems, and troubles of one of them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from dnm.kube.client import KubeClient
from dnm.lab.sandbox.cluster import Sandbox
from dnm.lab.sandbox.yunikorn_config import CONFIGS_NAME
from dnm.model.kueue import LEDGER
from dnm.model.lent import Phase
from tests.builders import a_config
from tests.queue_kit import ONE_LIMIT
from tests.queues.kueue.objects import (
    LABEL,
    a_cluster_queue,
    a_flavor,
    a_local_queue,
    a_pod_set,
    a_workload,
)
from tests.queues.ledgers import store_ledger
from tests.server_side_apply import with_apply
from tests.site import Site

FOR = "example.org/for"
LAST = "dynamic-node-manager/last"  # in the Lease: who acted last
NODE_TYPE = f"""
[node_type:a]
labels = {LABEL}=true
taints = {FOR}={{namespace}}:NoSchedule
"""
DOCUMENT = ONE_LIMIT.replace("x\n", "dev\n").replace("80}}\n", "80, memory: 320G}}\n")
_CPU, _MEMORY = "100", "200G"  # of a pod: one on each node


class Half:
    """A namespace with its queue system, on a sandbox with another one. Its queue has a limit of 80
    cores, unless the system is `none`."""

    def __init__(self, sandbox: Sandbox, namespace: str, system: str) -> None:
        self.sandbox, self.namespace, self.system = sandbox, namespace, system
        self._pods: list[str] = []
        self._workloads = 0
        self.queue = f"root.{namespace}" if system == "yunikorn" else namespace
        sandbox.add_namespace(namespace)
        if system == "yunikorn":
            sandbox.set_queues(DOCUMENT)
        elif system == "kueue":
            nothing = {"cpu": "0", "memory": "0"}
            sandbox.create(a_cluster_queue(namespace, {"permanent": nothing, "lent": nothing}))
            sandbox.create(a_local_queue(namespace, namespace))
        elif system == "resource_quota":
            self._create_quota()

    def _create_quota(self) -> None:
        """Creates the quota by a request, so that the API server records who wrote its limits."""
        quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "q"},
                 "spec": {"hard": {"requests.cpu": "900", "requests.memory": "9T"}}}  # fmt: skip
        session = KubeClient.connect(a_config(kubeconfig_path=self.sandbox.kubeconfig)).requests
        url = f"/api/v1/namespaces/{self.namespace}/resourcequotas"
        session.session.write("POST", url, quota)

    @property
    def section(self) -> str:
        return f"\n[namespace:{self.namespace}]\nqueue_system = {self.system}\n"

    def request(self, count: int) -> None:
        """Creates `count` pending pods, each of which needs a node."""
        toleration = {"key": FOR, "operator": "Equal", "value": self.namespace}
        spec: dict[str, Any] = {"tolerations": [toleration]}
        if self.system == "kueue":
            self._workloads += 1
            pods = a_pod_set(count, _CPU, _MEMORY, spec=spec)
            name = f"{self.namespace}-{self._workloads}"
            self.sandbox.create(a_workload(name, [pods], namespace=self.namespace))
            return
        self._pods += self.sandbox.add_pods(
            count, self.namespace, queue=self.queue if self.system == "yunikorn" else "",
            cpu=_CPU, memory=_MEMORY, spec=spec, name=f"p{len(self._pods)}",
        )  # fmt: skip

    def end(self) -> None:
        """Ends all pods of the namespace."""
        self.sandbox.finish_pods(self._pods, self.namespace)
        for number in range(1, self._workloads + 1):
            self.sandbox.delete("workloads", f"{self.namespace}-{number}", self.namespace)
        self._pods, self._workloads = [], 0

    def limit(self) -> Any:
        """Returns the limit of the namespace's queue in the cluster."""
        if self.system == "yunikorn":
            return self.sandbox.queues_text()
        if self.system == "resource_quota":
            quota: Any = self.sandbox.get("resourcequotas", "q", self.namespace)
            return quota["spec"]["hard"]
        cohort = self.sandbox.get("cohorts", f"dnm-{self.namespace}") or {}
        return (cohort.get("spec") or {}).get("resourceGroups")


class Trouble(NamedTuple):
    """A trouble of the queue of `dev`. `begin` causes it and returns a function that ends it;
    `names` is part of the message about it; `calm` is the queue system of the other namespace. With
    `is_of_writes`, dnm notices it only when it writes, and may lend nodes until then."""

    system: str
    calm: str
    names: str
    begin: Callable[[Half], Callable[[], object]]
    is_of_writes: bool = False
    timeout: float = 30.0  # seconds of a request


def _answers(
    code: int, path: str, *methods: str
) -> Callable[[Half], Callable[[], object]]:  # the API server's refusal of one kind of request
    def begin(half: Half) -> Callable[[], object]:
        half.sandbox.fault("status", path=path, methods=methods, code=code)
        return half.sandbox.faults.clear

    return begin


def _hangs(path: str) -> Callable[[Half], Callable[[], object]]:
    def begin(half: Half) -> Callable[[], object]:
        half.sandbox.fault("slow", path=path, methods=("GET",), seconds=2.5)
        return half.sandbox.faults.clear

    return begin


def _text(text: str) -> Callable[[Half], Callable[[], object]]:
    def begin(half: Half) -> Callable[[], object]:
        before = half.sandbox.queues_text()
        half.sandbox.set_queues(text)
        return lambda: half.sandbox.set_queues(before)

    return begin


def _ledger(plural: str, name: str, namespace: str, text: str) -> Any:
    def begin(half: Half) -> Callable[[], object]:
        item: Any = half.sandbox.get(plural, name, namespace)
        before = item["metadata"]["annotations"][LEDGER]
        store_ledger(half.sandbox, plural, name, text, namespace)
        return lambda: store_ledger(half.sandbox, plural, name, before, namespace)

    return begin


def _unclear_quota(half: Half) -> Callable[[], object]:
    """Changes a limit and breaks the ledger, so that only an administrator knows the baseline."""
    item: Any = half.sandbox.get("resourcequotas", "q", "dev")
    hard = dict(item["spec"]["hard"])
    restore = _ledger("resourcequotas", "q", "dev", "{")(half)

    def set_hard(limits: dict[str, str]) -> None:
        half.sandbox.edit("resourcequotas", "q", lambda it: it["spec"].update(hard=limits), "dev")

    def end() -> None:
        set_hard(hard)
        restore()

    set_hard({**hard, "requests.cpu": "1000"})
    return end


_MAPS, _QUOTAS = "yunikorn/configmaps", "namespaces/dev/resourcequotas"
TROUBLES = {
    "document-is-no-yaml": Trouble(
        "yunikorn", "none", "the queue document can't be read", _text("partitions: [\n")
    ),
    "document-cannot-be-read": Trouble("yunikorn", "none", "503", _answers(503, _MAPS, "GET")),
    "document-cannot-be-written": Trouble(
        "yunikorn", "none", "403", _answers(403, _MAPS, "PUT", "PATCH"), is_of_writes=True
    ),
    "document-has-an-invalid-ledger": Trouble(
        "yunikorn", "none", "ledger", _ledger("configmaps", CONFIGS_NAME, "yunikorn", "{")
    ),
    "quota-cannot-be-read": Trouble("resource_quota", "none", "503", _answers(503, _QUOTAS, "GET")),
    "quota-of-a-namespace-cannot-be-read": Trouble(
        "resource_quota", "resource_quota", "503", _answers(503, _QUOTAS, "GET")
    ),
    "quota-of-a-namespace-is-not-answered": Trouble(
        "resource_quota", "resource_quota", "resourcequotas of namespace dev", _hangs(_QUOTAS),
        timeout=2.0,
    ),
    "workloads-of-a-namespace-cannot-be-read": Trouble(
        "resource_quota", "resource_quota", "503", _answers(503, "namespaces/dev/jobs", "GET")
    ),
    "quota-cannot-be-written": Trouble(
        "resource_quota", "none", "403", _answers(403, _QUOTAS, "PATCH"), is_of_writes=True
    ),
    "quota-of-a-namespace-cannot-be-written": Trouble(
        "resource_quota", "resource_quota", "403", _answers(403, _QUOTAS, "PATCH"),
        is_of_writes=True,
    ),
    "quota-of-a-namespace-has-a-question": Trouble(
        "resource_quota", "resource_quota", "ResourceQuota dev/q",
        _unclear_quota,
    ),
    "cohorts-cannot-be-read": Trouble("kueue", "none", "503", _answers(503, "/cohorts", "GET")),
    "cohort-cannot-be-written": Trouble(
        "kueue", "none", "403", _answers(403, "/cohorts/dnm-dev", "PATCH")
    ),
    "cohort-of-a-queue-cannot-be-written": Trouble(
        "kueue", "kueue", "403", _answers(403, "/cohorts/dnm-dev", "PATCH")
    ),
}  # fmt: skip


class MixedSite:
    """A site with two namespaces: `dev` gets the trouble, which must not affect `notebook`. The
    argument `dev` is its section in the ini, `keys` are other keys."""

    def __init__(
        self, sandbox: Sandbox, directory: Path, trouble: Trouble, dev: str = "", **keys: int
    ) -> None:
        if "kueue" in (trouble.system, trouble.calm):
            with_apply(sandbox)
            sandbox.create(a_flavor("permanent"))
            sandbox.create(a_flavor(nodeTaints=[], tolerations=[], nodeLabels={LABEL: "true"}))
        taint = {"key": FOR, "value": "{namespace}", "effect": "NoSchedule"}
        sandbox.add_machine_type("a", labels={LABEL: "true"}, taints=[taint])
        sandbox.add_namespace("dnm")
        sandbox.add_machines(20)
        sandbox.add_node("k1", cpu="1", memory="1G")
        self.sandbox = sandbox
        self.dev = Half(sandbox, "dev", trouble.system)
        self.calm = Half(sandbox, "notebook", trouble.calm)
        self.site = Site(
            sandbox, directory / "site", monitored_namespaces="dev, notebook",
            queue_system=trouble.system, request_timeout_seconds=trouble.timeout,
            sections=NODE_TYPE + dev + self.calm.section,
            **{"max_converted_nodes": 20, "max_conversions_per_run": 20, **keys},
            **self._queue_map(directory, trouble.system),
        )  # fmt: skip

    @staticmethod
    def _queue_map(directory: Path, system: str) -> dict[str, str]:
        path = directory / "map.json"
        Site.write(path, '{"dev": "root.dev"}\n' if system == "yunikorn" else "{}\n")
        return {"namespace_queue_paths": str(path)} if system in ("yunikorn", "kueue") else {}

    def run(self, number: int = 1) -> list[str]:
        """Plays `number` runs, a minute apart. Returns their errors and the queues' reasons."""
        errors: list[str] = []
        for _ in range(number):
            result = self.site.run()
            errors += [*result.plan.errors, *(result.outcome.errors if result.outcome else ())]
            errors += [verdict.sentence for verdict in result.plan.queues]
            self.sandbox.tick(60)
        return errors

    def leave_lease(self) -> None:
        """Leaves the Lease as a run does that is killed before it ends."""

        def hold(item: Any) -> None:
            item["spec"]["holderIdentity"] = item["metadata"]["annotations"][LAST]

        self.sandbox.edit("leases", "dnm-prod", hold, "dnm")

    @property
    def is_lease_held(self) -> bool:
        lease: Any = self.sandbox.get("leases", "dnm-prod", "dnm")
        return bool(lease["spec"].get("holderIdentity"))

    def is_open(self, name: str) -> bool:
        """Returns whether pods can start on a node."""
        node: Any = self.sandbox.get("nodes", name)
        return not node["spec"].get("unschedulable")

    def nodes(self, half: Half) -> dict[str, Phase]:
        """Returns node -> phase of the nodes that are lent to one of the namespaces."""
        nodes = self.site.registry.nodes.items()
        return {name: node.phase for name, node in nodes if node.namespace == half.namespace}
