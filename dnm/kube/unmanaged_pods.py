"""Pods of namespaces without a queue system, as their scheduler reports them."""

from __future__ import annotations

from collections.abc import Mapping

from dnm.kube.pod_fields import ANNOTATIONS, Status, has_value
from dnm.kube.pod_reading import Identity, decode_conditions, read_group


def read_plain_identity(
    namespace: str, texts: tuple[Mapping[str, str], Mapping[str, str]]
) -> Identity:
    """Returns the identity of a pod in a namespace without a queue system, which is its queue.
    Labels and annotations of YuniKorn mean nothing there."""
    notes, labels = texts
    rare = {"group": read_group(notes, labels), "is_mirror": ANNOTATIONS["mirror"] in notes}
    return Identity(
        app_id=namespace, queue="", rare={field: value for field, value in rare.items() if value}
    )


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
