"""The task groups of a gang application, in the annotation of its first pod (yunikorn-k8shim 1.3 to
1.9, docs of gang scheduling)."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from typing import Annotated, Any

import msgspec

from dnm.model.pod import LONGEST_GROUP, MOST_RESOURCES, MOST_TASK_GROUPS, TaskGroup
from dnm.model.quantity import QuantityError, kube_resources


def task_groups(annotation_text: str) -> tuple[TaskGroup, ...]:
    """Returns the task groups (parts of a gang) in the text of an annotation. An unreadable text is
    no gang, as for the scheduler (k8shim pkg/cache/utils.go, GetTaskGroupsFromAnnotation). If a
    gang is too large, returns only one group or resource beyond the bound, by which
    `gangs.is_beyond_counting` detects this."""
    if not annotation_text:
        return ()
    try:
        entries = msgspec.json.decode(annotation_text, type=list[dict[str, Any]] | None) or []
        return tuple(_task_group(entry) for entry in entries[: MOST_TASK_GROUPS + 1])
    except (msgspec.DecodeError, QuantityError, RecursionError):
        return ()


class _TaskGroupEntry(msgspec.Struct, rename="lower"):
    """A task group in the annotation. Keys may have any case, as in Go's JSON. The scheduler
    refuses the whole annotation if one entry lacks its name, member or resource."""

    name: Annotated[str, msgspec.Meta(min_length=1)]
    minMember: Annotated[int, msgspec.Meta(ge=1, le=2**31 - 1)]  # Go: int32
    minResource: dict[str, str | int | float]


def _task_group(raw: Mapping[str, Any]) -> TaskGroup:
    entry = msgspec.convert({key.lower(): value for key, value in raw.items()}, _TaskGroupEntry)
    wanted = dict(islice(entry.minResource.items(), MOST_RESOURCES + 1))
    names = {name: "cpu" if name == "vcore" else name for name in wanted}  # the shim knows both
    size = kube_resources({names[name]: str(amount) for name, amount in wanted.items()})
    if min(size.values(), default=0) < 0 or "pods" in size or len(size) < len(wanted):
        raise QuantityError(f"task group {entry.name}: an amount is negative or given twice")
    return TaskGroup(
        name=entry.name[:LONGEST_GROUP],
        min_member=entry.minMember,
        min_resource={**size, "pods": 1},
    )
