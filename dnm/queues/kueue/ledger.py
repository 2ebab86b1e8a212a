"""The ledger: an annotation of the Cohort with the nodes that its quota contains. Amounts are
quantities of Kubernetes under the names of the API. Pure."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from dnm.model.errors import DnmError
from dnm.model.kueue import Cohort
from dnm.model.quantity import add_to, kube_resources
from dnm.model.value import Resources, Value

VERSION = 1
Nodes = Mapping[str, Mapping[str, str]]


class CohortLedger(Value, omit_defaults=True):
    """A ledger. `cohort`: the name of its Cohort. `instances`: instance -> node -> quantities.
    `quota`: the quota that dnm wrote with this ledger, above `baseline` (in a ClusterQueue)."""

    version: int = VERSION
    cohort: str = ""
    instances: Mapping[str, Nodes] = {}
    quota: Mapping[str, str] = {}
    baseline: Mapping[str, str] = {}
    earlier: CohortLedger | None = None  # in the registry: until the write of this one is seen

    @property
    def amounts(self) -> Resources:
        """Returns the quota that dnm wrote together with this ledger, in dnm's units."""
        return kube_resources(self.quota)

    @property
    def total(self) -> dict[str, int]:
        """Returns the sum of the resources of all nodes of all instances."""
        total: dict[str, int] = {}
        for size in (size for nodes in self.instances.values() for size in nodes.values()):
            add_to(total, kube_resources(size))
        return total


def encode_ledger(ledger: CohortLedger) -> str:
    """Returns the text of the annotation; empty if no node is lent and no quota is left."""
    is_needed = ledger.instances or ledger.quota
    return msgspec.json.encode(ledger, order="sorted").decode() if is_needed else ""


def ledger_of(cohort: Cohort) -> CohortLedger | None:
    """Returns the ledger of a Cohort; None if there is none, if it is unreadable, or if it belongs
    to another Cohort."""
    try:
        ledger = msgspec.json.decode(cohort.ledger or "{}", type=CohortLedger)
        _ = ledger.amounts, ledger.total, kube_resources(ledger.baseline)  # every quantity is one
    except (msgspec.MsgspecError, DnmError, RecursionError):
        return None
    return ledger if (ledger.version, ledger.cohort) == (VERSION, cohort.name) else None


def encode_record(ledgers: Mapping[str, CohortLedger]) -> str:
    """Returns the text for the registry: the ledger of each Cohort."""
    kept = {name: item for name, item in ledgers.items() if item != CohortLedger(cohort=name)}
    return msgspec.json.encode(kept, order="sorted").decode() if kept else ""


def decode_record(text: str | None) -> dict[str, CohortLedger]:
    """Returns the ledgers of the registry; none if the text is of another queue system."""
    try:
        return msgspec.json.decode(text or "{}", type=dict[str, CohortLedger])
    except (msgspec.MsgspecError, RecursionError):
        return {}


def current_instances(
    ledger: CohortLedger | None, quota: Resources, recorded: CohortLedger | None
) -> Mapping[str, Nodes]:
    """Returns the nodes of all instances in a Cohort's quota. The registry's record is used if the
    annotation is lost, or if the record alone has the current quota. A Cohort without quota
    contains no node."""
    if ledger is None:
        return recorded.instances if recorded and any(quota.values()) else {}
    if recorded and _differ(ledger.amounts, quota) and not _differ(recorded.amounts, quota):
        return recorded.instances
    return ledger.instances


def _differ(left: Resources, right: Resources) -> bool:
    return any(left.get(name, 0) != right.get(name, 0) for name in {*left, *right})
