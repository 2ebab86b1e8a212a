"""The reasons of decisions, with their texts."""

from __future__ import annotations

from msgspec.structs import force_setattr

from dnm.model.value import Value


class Why(Value, kw_only=False):
    """A reason. `text`: the sentence that people read, details follow behind a colon. `change`:
    what a person, or time, can change of it; empty: nothing has to. `pods_are_told`: by an Event,
    since time alone does not end it soon. `name`: the word of documents and metrics."""

    text: str
    change: str = ""
    pods_are_told: bool = False
    name: str = ""

    def __set_name__(self, owner: type, name: str) -> None:
        force_setattr(self, "name", name)


class Reason:
    """The reasons of the spine; those of a rule stand in its file."""

    # queues
    ENOUGH = Why("has room and quota for all its pods")
    LACKS_QUOTA = Why("its pods need more quota than the queue has")
    LACKS_ROOM = Why("its pods fit the quota but no node has room for them")
    LACKS_BOTH = Why("its pods need more quota and more nodes")
    NEARLY_FULL = Why("demand is above the headroom mark")
    MIN_NODES = Why("fewer nodes are ready than shall be")
    NOTHING_HELPS = Why(
        "no new node would help its pending pods",
        "pods that ask for what a node type has; `dnm check` names them",
        pods_are_told=True,
    )
    ON_THE_WAY = Why("nodes that are on their way will be enough")
    TOO_YOUNG = Why(
        "its pods have been pending for a few seconds only",
        "time: pods count once they have been pending for 20 seconds",
    )
    CAPPED = Why(
        "a cap is reached",
        "a node that goes back, or a higher cap in the configuration",
        pods_are_told=True,
    )
    NO_BATCH_NODE = Why(
        "no batch node can be lent now",
        "a batch node that falls idle; `dnm nodes` says why none can be lent",
        pods_are_told=True,
    )
    BRIDGE_EVICTS = Why(
        "slurm-bridge would have the pods evicted from nodes of its types",
        "slurm-bridge kept off these names (docs/slinky.md)",
        pods_are_told=True,
    )
    BATCH_NOT_ASKED = Why("which batch nodes can be lent has not been asked yet")
    COOLDOWN = Why(
        "the cooldown after the last lending is not over",
        "time: half a minute after nodes were last lent",
    )
    BACKOFF = Why(
        "lending nodes of this type has failed, and backs off",
        "time, or `dnm reset TYPE` once the reason is mended",
        pods_are_told=True,
    )
    BREAKER = Why(
        "nodes that it got went unused; it waits for another chance or `dnm reset`",
        "its next chance, or `dnm reset QUEUE` once the reason is mended",
        pods_are_told=True,
    )
    PAUSED = Why("dnm is paused", "`dnm resume`", pods_are_told=True)
    QUEUE_UNREADABLE = Why(
        "the queue document can't be used",
        "a queue document that can be used; `dnm queues check`",
        pods_are_told=True,
    )
    DEMAND_UNREADABLE = Why(
        "its pods could not be read", "an API server that can be read; `dnm check`"
    )
    OTHERS_FIRST = Why(
        "other queues come first for the nodes that can be lent",
        "a higher priority of its namespace, or more nodes that can be lent",
        pods_are_told=True,
    )
    # nodes
    CLAIMED = Why("is claimed in Slurm and not lent")
    BY_HAND = Why("came to Kubernetes by hand, and is not recorded")
    JOINING = Why("waits for the Node to be Ready")
    JOINED = Why("has joined and serves its queue from now on")
    IN_USE = Why("pods are running on it", "its pods ending")
    IDLE = Why(
        "is idle and waits for its idle time to pass",
        "pods that land on it, or time: reversion_idle_seconds, longer where that has paid",
    )
    NEEDED = Why(
        "is idle but its queue would need it again",
        "pending pods that end, or that get room elsewhere",
    )
    KEPT_READY = Why("is kept ready by min_nodes", "a lower min_nodes of its namespace")
    ASKED_FOR = Why("was asked for by a person, and stays until its time is over")
    HELD = Why("is held by `dnm hold`", "`dnm unhold NODE`")
    HELD_BY_ADMIN = Why("is cordoned by an administrator", "`kubectl uncordon NODE`")
    LEAVING = Why(
        "is fenced, and goes back once its pods have ended",
        "`dnm hold NODE` keeps it; `dnm return NODE --evict` asks its pods to go; it is never "
        "emptied by force",
    )
    IDLE_LONG_ENOUGH = Why("has been idle long enough and goes back")
    BUDGET = Why(
        "may go back, but this run returns no more",
        "the next run: as many go back in one as max_conversions_per_run lets",
    )
    FENCED = Why("is fenced and looked at once more before it goes back")
    DEMAND_RETURNED = Why("is wanted again and serves on")
    RETURNING = Why("is on its way back to Slurm")
    RETURNED = Why("is back in Slurm and gone from Kubernetes")
    GONE = Why("has left Kubernetes without dnm")
    EVICTS = Why(
        "has its pods evicted by Slinky's taint, and serves nobody",
        "the taint coming off, or `dnm reset NODE`",
    )
    LATE = Why("did not join in time", "a look at the node, then `dnm reset NODE`")
    RETRY = Why("will be tried again")
    GAVE_UP = Why(
        "needs a person",
        "a person: what the error says, then `dnm reset NODE` or `dnm forget NODE`",
    )
    NOT_OURS = Why("belongs to another instance")
    UNKNOWN = Why("can't be judged: a fact about it could not be read")


OF_THE_SPINE = tuple(var for var in vars(Reason).values() if isinstance(var, Why))
