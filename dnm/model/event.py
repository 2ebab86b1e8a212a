"""An Event for the API (events.k8s.io/v1), and the pods that may need one."""

from __future__ import annotations

from datetime import datetime

from dnm.model.value import Value


class KubeEvent(Value):
    """What `kubectl describe` shows of a Node (its `namespace` is empty) or of a Pod. `reason` and
    `action` are words in CamelCase, `note` a sentence."""

    kind: str  # Node | Pod
    namespace: str
    name: str
    uid: str
    is_warning: bool
    reason: str
    action: str
    note: str
    time: datetime


class WaitingPods(Value):
    """Equal pods that wait in vain: no node will come for them as things stand, and `sentence` says
    why. `name`, `uid`: of one of them. `is_new`: nobody has told its owner yet."""

    kind: str  # the group's fingerprint
    queue: str
    namespace: str
    name: str
    uid: str
    count: int
    sentence: str
    is_new: bool = False
