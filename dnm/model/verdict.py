"""What is said of a node or a queue in a run: the answer, and the reason as people read it."""

from __future__ import annotations

from enum import Enum

from dnm.model.value import Value


class Verdict(Enum):
    """The answer for one node or queue in this run."""

    KEEP = "keep"
    WAIT = "wait"
    CONVERT = "convert"
    REVERT = "revert"
    MOVE = "move"
    FAILED = "failed"


VERDICT_WORDS = {"convert": "lend", "revert": "return"}
"""What people read of a verdict, by what documents say of it; others are the word themselves."""
QUEUE_WORDS = {**VERDICT_WORDS, "keep": "nothing"}
"""The same of a queue: it is not the queue that is kept."""


OTHERS_DRAIN = "drained in Slurm by another, and stays so when it is back"
"""Stands behind the reason of a verdict on a lent node, with `node_conditions`, and before Slurm's
own Reason."""


class Reason(Enum):
    """Why; the value is the sentence shown to people, details follow behind a colon."""

    # queues
    ENOUGH = "has room and quota for all its pods"
    LACKS_QUOTA = "its pods need more quota than the queue has"
    LACKS_ROOM = "its pods fit the quota but no node has room for them"
    LACKS_BOTH = "its pods need more quota and more nodes"
    NEARLY_FULL = "demand is above the headroom mark"
    MIN_NODES = "fewer nodes are ready than shall be"
    NOTHING_HELPS = "no new node would help its pending pods"
    ON_THE_WAY = "nodes that are on their way will be enough"
    TOO_YOUNG = "its pods have not been pending for pending_grace_seconds yet"
    CAPPED = "a cap is reached"
    NO_BATCH_NODE = "no batch node can be lent now"
    BATCH_FLOOR = "as few nodes are left to Slurm as batch_floor allows"
    BRIDGE_EVICTS = "slurm-bridge would have the pods evicted from nodes of its types"
    HOURS_SPENT = "the node-hours of its namespace's week are used up"
    KUBELET_SETTINGS = "kubelets of its node types would not start with their settings"
    BATCH_NOT_ASKED = "which batch nodes can be lent has not been asked yet"
    COOLDOWN = "the cooldown after the last lending is not over"
    BACKOFF = "lending nodes of this type has failed, and backs off"
    BREAKER = "nodes that it got went unused; it waits for changed demand or `dnm reset`"
    PAUSED = "dnm is paused"
    QUEUE_UNREADABLE = "the queue document can't be used"
    DEMAND_UNREADABLE = "its pods could not be read"
    OTHERS_FIRST = "other queues come first for the nodes that can be lent"
    # nodes
    CLAIMED = "is claimed in Slurm and not lent"
    BY_HAND = "came to Kubernetes by hand, and is not recorded"
    JOINING = "waits for the Node to be Ready"
    JOINED = "has joined and serves its queue from now on"
    IN_USE = "pods are running on it"
    IDLE = "is idle and waits for its idle time to pass"
    NEEDED = "is idle but its queue would need it again"
    KEPT_READY = "is kept ready by min_nodes"
    ASKED_FOR = "was asked for by a person, and stays until its time is over"
    HELD = "is held by `dnm hold`"
    HELD_BY_ADMIN = "is cordoned by an administrator"
    LEAVING = "is fenced, and goes back once its pods have ended"
    IDLE_LONG_ENOUGH = "has been idle long enough and goes back"
    BUDGET = "may go back, but this run returns no more"
    FENCED = "is fenced and looked at once more before it goes back"
    DEMAND_RETURNED = "is wanted again and serves on"
    RETURNING = "is on its way back to Slurm"
    MOVING = "changes its queue without a reboot"
    MOVED = "has changed its queue and serves the new one from now on"
    STAYS = "does not change its queue after all and serves on"
    RETURNED = "is back in Slurm and gone from Kubernetes"
    GONE = "has left Kubernetes without dnm"
    EVICTS = "has its pods evicted by Slinky's taint, and serves nobody"
    LATE = "did not join in time"
    RETRY = "will be tried again"
    GAVE_UP = "needs a person"
    NOT_OURS = "belongs to another instance"
    UNKNOWN = "can't be judged: a fact about it could not be read"


class Objection(Value):
    """Why something that is wanted is not done; without one it may be."""

    reason: Reason
    detail: str = ""

    @property
    def sentence(self) -> str:
        """As people read it."""
        return f"{self.reason.value}: {self.detail}" if self.detail else self.reason.value


class NodeVerdict(Value):
    node: str
    verdict: Verdict
    reason: Reason
    detail: str = ""

    @property
    def sentence(self) -> str:
        return f"{self.reason.value}: {self.detail}" if self.detail else self.reason.value


class QueueVerdict(Value):
    """`pods` names pods of several people: the record may have it, an Event on a pod may not."""

    queue: str
    verdict: Verdict
    reason: Reason
    detail: str = ""
    pods: str = ""

    @property
    def sentence(self) -> str:
        said = "; ".join(filter(None, (self.detail, self.pods)))
        return f"{self.reason.value}: {said}" if said else self.reason.value

    @property
    def without_pods(self) -> str:
        """The sentence that names no pod."""
        return f"{self.reason.value}: {self.detail}" if self.detail else self.reason.value
