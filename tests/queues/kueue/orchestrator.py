"""The part of Kueue that sets the quota of a ClusterQueue from its CapacityProvider, as
DynamicQuotaOrchestrators with one ClusterQueue and one CapacityProvider each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dnm.lab.sandbox.api import Target
from dnm.lab.sandbox.cluster import Sandbox
from dnm.lab.sandbox.http_values import Request, ServerAnswer
from dnm.lab.sandbox.store import copy_of
from tests.server_side_apply import ApplyingApi

CONDITION = "dynamic-node-manager/ledger"
SYNCHRONIZED = "CapacitySynchronized"
OWNER = {"apiGroup": "kueue.x-k8s.io", "kind": "DynamicQuotaOrchestrator", "name": "lent-nodes"}


class OrchestratingApi(ApplyingApi):
    """The sandbox's API. Each write of a CapacityProvider sets quotas at once."""

    def _update(self, request: Request, target: Target) -> ServerAnswer:
        answer = super()._update(request, target)
        entry = self.store.get(target.kind.plural, target.namespace, target.name)
        name = target.name.removeprefix("dnm-")
        if target.kind.plural == "capacityproviders" and self.store.get("clusterqueues", "", name):
            self.store.edit("clusterqueues", "", name, lambda queue: distribute(entry, queue))
        return answer


def with_orchestrator(sandbox: Sandbox) -> None:
    """Makes a sandbox set quotas from CapacityProviders, and accept server-side apply."""
    sandbox.api = OrchestratingApi(sandbox.store, sandbox.access, sandbox.api.admission)


def distribute(provider: Any, queue: Any) -> None:
    """Sets the effective quotas of a ClusterQueue. They are those of its spec, except for amounts
    of the CapacityProvider. A quota of 0 in the spec is a share of 0."""
    if conditions_of(provider).get(SYNCHRONIZED, {}).get("status") != "True":
        return  # the last quotas stay in effect
    groups: Any = copy_of(queue["spec"]["resourceGroups"])
    for group in groups:
        for flavor in group["flavors"]:
            for row in flavor["resources"]:
                amount = capacity_of(provider, flavor["name"]).get(row["name"])
                if amount is not None and row["nominalQuota"] != "0":
                    row["nominalQuota"] = amount
    queue.setdefault("status", {})["effectiveQuotas"] = {
        "orchestratorRef": OWNER, "resourceGroups": groups,
    }  # fmt: skip


def capacity_of(provider: Mapping[str, Any], name: str = "lent") -> dict[str, str]:
    """Returns the amounts of a flavor in the status of a CapacityProvider."""
    capacity = (provider.get("status") or {}).get("capacity") or {}
    (amounts,) = [flavor["resources"] for flavor in capacity.get("flavors", ())
                  if flavor["name"] == name] or [{}]  # fmt: skip
    return dict(amounts)


def conditions_of(provider: Mapping[str, Any]) -> dict[str, Any]:
    conditions = (provider.get("status") or {}).get("conditions") or ()
    return {item["type"]: item for item in conditions}
