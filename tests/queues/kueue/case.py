"""Kueue for the contract tests: only its objects, without Kueue's controller. The tests check what
dnm reads and writes."""

from __future__ import annotations

from typing import Any

from dnm.lab.sandbox.cluster import Sandbox
from dnm.model.config import NamespacePolicy
from dnm.model.quantity import parse_kubernetes
from tests.builders import a_config
from tests.queues.kueue.objects import (
    a_cluster_queue,
    a_flavor,
    a_provider,
    in_queue,
    lent_texts,
    provided,
)
from tests.queues.kueue.orchestrator import CONDITION, capacity_of, conditions_of, with_orchestrator
from tests.queues.ledgers import ledger_of, store_ledger
from tests.server_side_apply import with_apply

_FREE = {"cpu": "80", "memory": "320G"}


class KueueCase:
    """A ClusterQueue with the flavor of lent nodes and a quota, and one without the flavor."""

    queue, unlimited, baseline = "a8", "free", 80_000

    def __init__(self, sandbox: Sandbox) -> None:
        self.sandbox = sandbox
        with_apply(sandbox)
        sandbox.create(self.make_queue())
        sandbox.create(a_cluster_queue(self.unlimited, {"permanent": _FREE}))
        sandbox.create(a_flavor())
        self.config = a_config(
            namespaces={
                name: NamespacePolicy(
                    name=name, queue=queue, node_types=("a",), queue_system="kueue"
                )
                for name, queue in (("dev", self.queue), ("free", self.unlimited))
            },
            kubeconfig_path=sandbox.kubeconfig,
        )

    def make_queue(self) -> dict[str, Any]:
        return a_cluster_queue(self.queue, {"permanent": _FREE, "lent": _FREE})

    def _cohort(self) -> Any:
        return self.sandbox.get("cohorts", f"dnm-{self.queue}") or {"metadata": {}}

    def stored(self) -> Any:
        queues = [self.sandbox.get("clusterqueues", name) for name in (self.queue, self.unlimited)]
        return [queue and queue["spec"] for queue in queues], self.stored_cores(), self.ledger()

    def stored_cores(self) -> int | None:
        """Returns the ClusterQueue's own quota plus that of its Cohort, which dnm raises."""
        groups = (self._cohort().get("spec") or {}).get("resourceGroups") or []
        rows = [row for group in groups for row in group["flavors"][0]["resources"]]
        lent = [row["nominalQuota"] for row in rows if row["name"] == "cpu"] or ["0"]
        return parse_kubernetes("cpu", _FREE["cpu"]) + parse_kubernetes("cpu", lent[0])

    def change_elsewhere(self) -> None:
        def change(item: Any) -> None:
            item["metadata"].setdefault("labels", {})["example.org/owner"] = "courses"

        self.sandbox.edit("cohorts", f"dnm-{self.queue}", change)

    def ledger(self) -> str:
        return ledger_of(self._cohort())

    def replace_ledger(self, text: str) -> None:
        store_ledger(self.sandbox, "cohorts", f"dnm-{self.queue}", text)


class QuotaInQueueCase(KueueCase):
    """A ClusterQueue that has its lent quota itself, and is in no Cohort."""

    def make_queue(self) -> dict[str, Any]:
        return in_queue(
            a_cluster_queue(self.queue, {"permanent": _FREE, "lent": _FREE}, cohortName=None)
        )

    def _queue(self) -> Any:
        return self.sandbox.get("clusterqueues", self.queue)

    def stored(self) -> Any:
        return super().stored(), len(self.sandbox.objects("cohorts"))

    def stored_cores(self) -> int | None:
        return parse_kubernetes("cpu", lent_texts(self._queue())["cpu"])

    def change_elsewhere(self) -> None:
        def change(item: Any) -> None:
            item["metadata"].setdefault("labels", {})["example.org/owner"] = "courses"
            item["spec"]["queueingStrategy"] = "StrictFIFO"

        self.sandbox.edit("clusterqueues", self.queue, change)

    def ledger(self) -> str:
        return ledger_of(self._queue())

    def replace_ledger(self, text: str) -> None:
        store_ledger(self.sandbox, "clusterqueues", self.queue, text)


class ProviderCase(KueueCase):
    """A ClusterQueue whose lent quota is in a CapacityProvider, beside the part of Kueue that takes
    it from there."""

    baseline = 0

    def __init__(self, sandbox: Sandbox) -> None:
        super().__init__(sandbox)
        with_orchestrator(sandbox)
        sandbox.create(a_provider(self.queue))

    def make_queue(self) -> dict[str, Any]:
        quotas = {"permanent": _FREE, "lent": {"cpu": "1", "memory": "1"}}
        return provided(a_cluster_queue(self.queue, quotas, cohortName=None))

    def _provider(self) -> Any:
        return self.sandbox.get("capacityproviders", f"dnm-{self.queue}")

    def stored(self) -> Any:
        return super().stored(), self._provider()["spec"], len(self.sandbox.objects("cohorts"))

    def stored_cores(self) -> int | None:
        return parse_kubernetes("cpu", capacity_of(self._provider()).get("cpu", "0"))

    def change_elsewhere(self) -> None:
        def change(item: Any) -> None:
            item["metadata"].setdefault("labels", {})["example.org/owner"] = "courses"

        self.sandbox.edit("capacityproviders", f"dnm-{self.queue}", change)

    def ledger(self) -> str:
        return str(conditions_of(self._provider()).get(CONDITION, {}).get("message", ""))

    def replace_ledger(self, text: str) -> None:
        def change(item: Any) -> None:
            kept = [entry for entry in item["status"]["conditions"] if entry["type"] != CONDITION]
            entry = {"type": CONDITION, "status": "True", "reason": "Tested", "message": text}
            item["status"]["conditions"] = [*kept, *([entry] if text else [])]

        self.sandbox.edit("capacityproviders", f"dnm-{self.queue}", change)
