"""The verdict of the scheduler on a pod, where no queue system holds pods back."""

from __future__ import annotations

from dnm.kube.pod_fields import Status, has_value
from dnm.kube.pod_reading import decode_conditions


def is_undecided(status: Status) -> bool:
    """Returns whether the scheduler has not reported an unbound pod as unschedulable, or has chosen
    a node from which it evicts other pods first."""
    if status.nominated_node_name:
        return True
    conditions = decode_conditions(status.conditions) if has_value(status.conditions) else ()
    return not any(
        condition.type == "PodScheduled"
        and condition.status == "False"
        and condition.reason == "Unschedulable"
        for condition in conditions
    )
