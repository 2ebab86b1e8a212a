"""The application, queue and gang of a pod, as YuniKorn reads them from labels and annotations.

The rules are those of apache/yunikorn-k8shim, pkg/common/utils/utils.go, releases 1.6 to 1.9."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from dnm.model.pod import LONGEST_GROUP, LONGEST_PATH, PodIdentity

QUEUE = "yunikorn.apache.org/queue"
_APPLICATION = "yunikorn.apache.org/app-id"
_TASK_GROUP = "yunikorn.apache.org/task-group-name"
_TASK_GROUPS = "yunikorn.apache.org/task-groups"
_PLACEHOLDER = "internal.yunikorn.apache.org/placeholder"
_PLACEHOLDER_BEFORE_1_6 = "yunikorn.apache.org/placeholder"
_PLACEHOLDER_LABEL = "placeholder"
_UNIQUE_SUFFIX = "-uniqueautogen"
_LONGEST_APP_ID = 63
_LABEL_VALUE = r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?"


class YunikornPods:
    """The reader of pods with the schedulerName yunikorn, in any namespace."""

    scheduler = "yunikorn"
    namespaces: frozenset[str] = frozenset()

    def __init__(self, queue_key: str = QUEUE) -> None:
        """Sets `queue_key`, a label and annotation by which pods of this site name their queue."""
        self._queue_key = queue_key
        queue_keys = dict.fromkeys(filter(None, (QUEUE, queue_key)))
        self.labels = (*queue_keys, _APPLICATION, "applicationId", "spark-app-selector", "queue",
                       _PLACEHOLDER_LABEL)  # fmt: skip
        self.annotations = (*queue_keys, _APPLICATION, _TASK_GROUP, _TASK_GROUPS, _PLACEHOLDER,
                            _PLACEHOLDER_BEFORE_1_6)  # fmt: skip

    def identify(
        self,
        key: tuple[str, str],
        labels: Mapping[str, str],
        annotations: Mapping[str, str],
        is_managed: bool,
    ) -> PodIdentity:
        """Returns application, queue and gang of a pod. `key`: the pod's namespace and uid."""
        rare: dict[str, Any] = {}
        if text := annotations.get(_TASK_GROUPS):
            from dnm.queues.yunikorn.task_groups import task_groups  # few pods announce a gang

            rare["task_groups"] = task_groups(text)
        if annotations or _PLACEHOLDER_LABEL in labels:
            placeholder = (
                annotations.get(_PLACEHOLDER),
                annotations.get(_PLACEHOLDER_BEFORE_1_6),
                labels.get(_PLACEHOLDER_LABEL),
            )
            rare["task_group"] = annotations.get(_TASK_GROUP, "")[:LONGEST_GROUP]
            rare["is_placeholder"] = "true" in placeholder
        return PodIdentity(
            app_id=application_id(labels, annotations, *key) if is_managed else "",
            queue=requested_queue(labels, annotations, self._queue_key),
            rare={field: value for field, value in rare.items() if value},
        )

    def label(self, application: str, queue: str) -> tuple[dict[str, str], dict[str, str]]:
        """Returns the labels and annotations that put a new pod into this application and queue. A
        path that is no valid label value is only in the annotations."""
        labels = dict.fromkeys((_APPLICATION, "applicationId"), application)
        if re.fullmatch(_LABEL_VALUE, queue):
            labels |= {QUEUE: queue, "queue": queue}
        return labels, {self._queue_key: queue, QUEUE: queue}


def application_id(
    labels: Mapping[str, str], annotations: Mapping[str, str], namespace: str, uid: str
) -> str:
    """Returns the application ID of a pod with schedulerName yunikorn (k8shim 1.6, utils.go)."""
    name = (
        labels.get(_APPLICATION)
        or annotations.get(_APPLICATION)
        or labels.get("applicationId")
        or labels.get("spark-app-selector")
        or ""
    )
    name = name[:LONGEST_PATH]
    if name.endswith(_UNIQUE_SUFFIX):
        return f"{name.removesuffix(_UNIQUE_SUFFIX)}-{uid}"
    return name or f"yunikorn-{namespace}-autogen"[:_LONGEST_APP_ID]


def requested_queue(
    labels: Mapping[str, str], annotations: Mapping[str, str], site_key: str = QUEUE
) -> str:
    """Returns the path of the queue that a pod names; empty if it names none. The label or
    annotation `site_key`, if it is configured, has precedence over YuniKorn's own keys. A name that
    does not begin with root is a queue directly below root."""
    queue = (
        labels.get(site_key)
        or annotations.get(site_key)
        or labels.get(QUEUE)
        or annotations.get(QUEUE)
        or labels.get("queue")
        or ""
    )
    path = queue[:LONGEST_PATH].lower()
    if not path or path == "root" or path.startswith("root."):
        return path
    return "root." + path.replace(".", "_dot_")
