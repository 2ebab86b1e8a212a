"""The reasons that dnm gives for its decisions, with their texts for people."""

from __future__ import annotations

from msgspec.structs import force_setattr

from dnm.model.value import Value


class ReasonText(Value, kw_only=False):
    """A reason for a decision. `text` is for people; details follow after a colon. `change` is what
    ends it, e.g. an administrator's next step or time, or empty if nothing must change.
    `has_pod_event`: pods get an Event about it, since time alone does not end it soon. `name` is
    for documents and metrics. `planned_text` replaces `text` while the action is only planned."""

    text: str
    change: str = ""
    has_pod_event: bool = False
    name: str = ""
    planned_text: str = ""

    def __set_name__(self, owner: type, name: str) -> None:
        force_setattr(self, "name", name)


class Reason:
    """The reasons for decisions of the planner's core. Each option defines its own in its file."""

    # queues
    ENOUGH = ReasonText("its pods need no more nodes")
    LACKS_QUOTA = ReasonText("its pods need more quota than the queue has")
    LACKS_NODES = ReasonText("no node has free capacity for its pods")
    LACKS_BOTH = ReasonText("its pods need more quota and more nodes")
    NEARLY_FULL = ReasonText("its demand exceeds the headroom share of its limit")
    MIN_NODES = ReasonText("fewer nodes are ready than min_nodes requires")
    NOTHING_HELPS = ReasonText(
        "no new node would help its pending pods",
        "pods that request only what a node type has; `dnm check` names them",
        has_pod_event=True,
    )
    ON_THE_WAY = ReasonText("its joining nodes will be enough")
    TOO_YOUNG = ReasonText(
        "its pods have been pending for a few seconds only",
        "time: pods count once they have been pending for 20 seconds",
    )
    CAPPED = ReasonText(
        "a cap is reached",
        "a node that is returned, or a higher cap in the configuration",
        has_pod_event=True,
    )
    NO_BATCH_NODE = ReasonText(
        "no batch node can be lent now",
        "an idle batch node; `dnm nodes` shows why none can be lent",
        has_pod_event=True,
    )
    INCOMPLETE = ReasonText(
        "too few nodes can be lent for any of its Workloads",
        "as many idle batch nodes, and caps as high, as a Workload needs as a whole",
        has_pod_event=True,
    )
    BRIDGE_EVICTS = ReasonText(
        "slurm-bridge would evict the pods from nodes of its types",
        "node names that slurm-bridge does not manage; docs/slinky.md shows how",
        has_pod_event=True,
    )
    BATCH_NOT_ASKED = ReasonText("the list of batch nodes has not been read yet")
    COOLDOWN = ReasonText(
        "the cooldown after the last lending is not over",
        "time: half a minute after nodes were last lent",
    )
    BACKOFF = ReasonText(
        "lending nodes of this type has failed and is in back-off",
        "time, or `dnm reset TYPE` after the cause is fixed",
        has_pod_event=True,
    )
    BREAKER = ReasonText(
        "its lent nodes stayed unused; it waits for a retry or `dnm reset`",
        "its next retry, or `dnm reset QUEUE` after the cause is fixed",
        has_pod_event=True,
    )
    PAUSED = ReasonText("dnm is paused", "`dnm resume`", has_pod_event=True)
    QUEUE_UNREADABLE = ReasonText(
        "the limits cannot be used",
        "the step that `dnm check` names",
        has_pod_event=True,
    )
    DEMAND_UNREADABLE = ReasonText(
        "its pods could not be read", "access to the API server: `dnm check` shows what fails"
    )
    OUTRANKED = ReasonText(
        "other queues have precedence for the nodes that can be lent",
        "a higher priority of its namespace, or more nodes that can be lent",
        has_pod_event=True,
    )
    # nodes
    CLAIMED = ReasonText("is claimed in Slurm and not lent")
    MANUAL = ReasonText("was moved to Kubernetes manually and is not recorded")
    JOINING = ReasonText("waits for the Node to be Ready")
    JOINED = ReasonText("has joined and serves its queue from now on")
    IN_USE = ReasonText("pods are running on it", "the end of its pods")
    IDLE = ReasonText(
        "is idle and waits for its idle time to pass",
        "pods that start on it, or time: reversion_idle_seconds, longer after pods came back soon",
    )
    NEEDED = ReasonText(
        "is idle but its queue would need it again",
        "pending pods that end, or that find free capacity elsewhere",
    )
    KEPT_READY = ReasonText("is kept ready by min_nodes", "a lower min_nodes of its namespace")
    ASKED_FOR = ReasonText(
        "was lent or extended manually and stays until its time is over",
        "time, or `dnm return NODE`",
    )
    HELD = ReasonText("is held by `dnm hold`", "`dnm unhold NODE`")
    HELD_BY_ADMIN = ReasonText("is cordoned by an administrator", "`kubectl uncordon NODE`")
    LEAVING = ReasonText(
        "is fenced and will be returned when its pods have ended",
        "`dnm hold NODE` keeps it, `dnm return NODE --evict` evicts its pods; dnm never deletes "
        "pods by force",
        planned_text="will be fenced and will be returned when its pods have ended",
    )
    IDLE_LONG_ENOUGH = ReasonText("has been idle long enough and will be returned")
    BUDGET = ReasonText(
        "may be returned, but this run returns no more nodes",
        "the next run: each returns at most max_conversions_per_run nodes",
    )
    FENCED = ReasonText("is fenced; a later run checks it again before it is returned")
    DEMAND_RETURNED = ReasonText("is needed again and continues to serve")
    RETURNING = ReasonText("is being returned to Slurm")
    RETURNED = ReasonText("is back in Slurm and removed from Kubernetes")
    LEFT = ReasonText("has left Kubernetes without dnm")
    EVICTS = ReasonText(
        "has Slinky's taint, which evicts its pods, and serves no queue",
        "the removal of the taint, or `dnm reset NODE`",
    )
    LATE = ReasonText("did not join in time", "a check of the node, then `dnm reset NODE`")
    RETRY = ReasonText("will be tried again")
    GAVE_UP = ReasonText(
        "needs an administrator",
        "the step that its error names, then `dnm reset NODE` or `dnm forget NODE`",
    )
    FOREIGN = ReasonText("belongs to another instance")
    UNKNOWN = ReasonText("cannot be decided: a fact about it could not be read")


CORE_REASONS = tuple(var for var in vars(Reason).values() if isinstance(var, ReasonText))
