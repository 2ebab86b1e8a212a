"""The scheduler's decision about a pod, if no queue system holds pods back."""

from __future__ import annotations

from collections.abc import Mapping

from dnm.kube.pod_fields import Status, has_value
from dnm.kube.pod_reading import decode_conditions


def read_verdict(status: Status) -> Mapping[str, bool]:
    """Returns two fields of an unbound pod: `is_undecided` if the scheduler has not reported the
    pod as unschedulable, `is_nominated` if the scheduler evicts other pods from a node for it."""
    if status.nominated_node_name:
        return {"is_undecided": True, "is_nominated": True}
    return {} if _is_unschedulable(status) else {"is_undecided": True}


def _is_unschedulable(status: Status) -> bool:
    conditions = decode_conditions(status.conditions) if has_value(status.conditions) else ()
    return any(
        condition.type == "PodScheduled"
        and condition.status == "False"
        and condition.reason == "Unschedulable"
        for condition in conditions
    )
