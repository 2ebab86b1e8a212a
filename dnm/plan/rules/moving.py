"""Phase `moving`: a lent node changes its queue without a reboot. What each fact means in it. Pure.

    serving → moving: fenced, the old queue shrunk, empty; then labels and taints exchanged in one
    change of the Node → serving the new queue, opened

Invariants: the node counts for no queue's limit while it moves. It carries one namespace's labels
and taints or the other's, never some of both. It is opened for the new namespace only once it has
been seen, fenced and relabelled for it, without pods: no pod that came for the old namespace is on
it then. How far it is stands on the Node, so that a run that was killed at any point has nothing to
remember. Whatever comes in between, and a deadline in the end, bring it back to its old queue; only
where that fails too is a person asked.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from dnm.model.config import Config
from dnm.model.lent import Charge, LentNode, Move, Phase
from dnm.model.node import Node
from dnm.model.node_type import Taint
from dnm.model.reason import Reason, Why
from dnm.model.value import Value
from dnm.model.verdict import Verdict
from dnm.plan.breaker import backoff_delay
from dnm.plan.facts import (
    UNSEEN_PODS,
    Facts,
    NodeTransition,
    becomes,
    changed,
    enter_phase,
    fails,
    left_kubernetes,
    show_time,
)
from dnm.plan.phases import measure_node

MOVING = Why(
    "changes its queue without a reboot",
    "`dnm hold NODE`, until its labels are exchanged",
    name="MOVING",
)
MOVED = Why("has changed its queue and serves the new one from now on", name="MOVED")
STAYS = Why("does not change its queue after all and serves on", name="STAYS")
_POD = "a pod landed on it"


def advance_moving(config: Config, name: str, entry: LentNode, facts: Facts) -> NodeTransition:
    """What this run's facts make of a node that changes its queue."""
    node = facts.node(name)
    if node is None:
        return left_kubernetes(name, entry, facts)
    if node.unreadable:
        return becomes(name, entry, Verdict.WAIT, Reason.UNKNOWN, node.unreadable)
    if entry.move is None:  # as no dnm writes it
        return _stays(name, entry, facts, "nothing says where it was to go")
    move, change = move_of(config, entry)
    if move.goes_back:
        return _back(config, node, entry, change, facts)
    if change.is_done(node):
        return _relabelled(config, node, entry, facts)
    return _not_relabelled(config, node, entry, facts)


def move_of(config: Config, entry: LentNode) -> tuple[Move, LabelChange]:
    """Returns where a node moves, and what of its Node is exchanged for that."""
    assert entry.move is not None
    return entry.move, change_labels(config, entry.node_type, entry.namespace, entry.move.to)


def is_another_s(config: Config, entry: LentNode, node: Node) -> bool:
    """Whether a node carries what is another namespace's: its move has failed half way, or it has
    moved and its Node was registered anew since, with what its kubelet has for the old one."""
    if entry.moved_at is not None and node.labels.get(entry.namespace) != "true":
        return True
    return entry.move is not None and move_of(config, entry)[1].is_begun(node)


def stay(entry: LentNode, facts: Facts, **changes: object) -> LentNode:
    """Returns the entry of a node that serves the queue on that it was to leave: idle for as long
    as it has been."""
    return enter_phase(entry, Phase.SERVING, facts.now, **{"move": None, **changes})


def stay_for_now(config: Config, entry: LentNode, facts: Facts, **changes: object) -> LentNode:
    """Returns the same for one that does not move again at once, and each time later: demand that
    comes and goes keeps no idle node from going back."""
    attempts = entry.attempts + 1
    again = facts.now + backoff_delay(config, attempts)
    return stay(entry, facts, attempts=attempts, retry_after=again, **changes)


def _stays(name: str, entry: LentNode, facts: Facts, why: str, **changes: object) -> NodeTransition:
    return becomes(name, stay(entry, facts, **changes), Verdict.KEEP, STAYS, why)


def _not_relabelled(config: Config, node: Node, entry: LentNode, facts: Facts) -> NodeTransition:
    """It is its old namespace's still, and serves that on whenever anything speaks for it."""
    assert entry.move is not None
    name, pods = node.name, facts.work_on(node.name)
    if pods:
        return _stays(name, entry, facts, _POD, was_used=True, idle_since=None)
    if entry.leaves:
        return _stays(name, entry, facts, "it leaves")
    if node.is_cordoned != node.carries_fence:
        why = f"kubectl uncordon {name}" if node.is_cordoned else "its fence was lifted by hand"
        return _stays(name, entry, facts, why)
    if entry.move.to not in config.namespaces:
        return _stays(name, entry, facts, f"{entry.move.to} is not monitored any more")
    deadline = entry.since + config.join_timeout
    if facts.now > deadline:
        error = f"{name} could not be given to {entry.move.to} until {show_time(deadline)}"
        later = stay_for_now(config, entry, facts, error=error)
        why = f"{error}; tried again later"
        return becomes(name, later, Verdict.KEEP, STAYS, why)
    if pods is None:
        return becomes(name, entry, Verdict.WAIT, Reason.UNKNOWN, UNSEEN_PODS)
    after = becomes(name, entry, Verdict.MOVE, MOVING, moving_detail(entry))
    is_ready = node.is_fenced and node.is_ready and not node.is_deleting
    return msgspec.structs.replace(after, wants_relabel=is_ready)


def moving_detail(entry: LentNode) -> str:
    """Returns from whom to whom."""
    assert entry.move is not None
    if entry.move.goes_back:
        return f"back to {entry.namespace}, which it was to leave for {entry.move.to}"
    return f"from {entry.namespace} to {entry.move.to}"


def _relabelled(config: Config, node: Node, entry: LentNode, facts: Facts) -> NodeTransition:
    """It is the new namespace's by all that its Node carries."""
    assert entry.move is not None
    name, pods = node.name, facts.work_on(node.name)
    policy = config.namespaces.get(entry.move.to)
    if policy is None or (pods and node.is_cordoned):
        why = _POD if policy else f"{entry.move.to} is not monitored any more"
        return _turns_back(node, entry, facts, why)
    if pods is None and node.is_cordoned:
        return becomes(name, entry, Verdict.WAIT, Reason.UNKNOWN, UNSEEN_PODS)
    size = measure_node(config, entry.node_type, node)
    serves = enter_phase(
        entry, Phase.SERVING, facts.now, namespace=policy.name, queue=policy.queue,
        counted=size.counted if size else entry.counted, idle_since=None, was_used=bool(pods),
        move=None, moved_at=facts.now, order="",
        charge=entry.charge and Charge(account=entry.charge.account, since=facts.now),
        stays_until=entry.stays_until if entry.is_kept_at(facts.now) else None,
    )  # fmt: skip
    return becomes(
        name, serves, Verdict.KEEP, MOVED, moving_detail(entry), remark=size.remark if size else ""
    )


def _turns_back(node: Node, entry: LentNode, facts: Facts, why: str) -> NodeTransition:
    assert entry.move is not None
    back = changed(entry, since=facts.now, move=msgspec.structs.replace(entry.move, goes_back=True))
    return becomes(
        node.name, back, Verdict.MOVE, MOVING, f"{moving_detail(back)}: {why}", wants_relabel=True
    )


def _back(
    config: Config, node: Node, entry: LentNode, change: LabelChange, facts: Facts
) -> NodeTransition:
    """It becomes its old namespace's again, with the pods that are on it."""
    assert entry.move is not None
    name = node.name
    if not change.is_begun(node):
        used = {"was_used": True, "idle_since": None} if facts.work_on(name) else {}
        return _stays(name, entry, facts, f"it is {entry.namespace}'s again", **used)
    if facts.now > entry.since + config.join_timeout:
        error = (
            f"{name} could not be returned to {entry.namespace}: exchange the labels and taints "
            f"of {entry.move.to} on its Node by hand and uncordon it, or `dnm reset {name}` gives "
            "it back to Slurm"
        )
        return fails(name, entry, facts.now, Reason.GAVE_UP, error)
    return becomes(name, entry, Verdict.MOVE, MOVING, moving_detail(entry), wants_relabel=True)


class LabelChange(Value):
    """`labels`: as they are to be, None where there is to be none. `off`, `on`: taints."""

    labels: Mapping[str, str | None]
    off: tuple[Taint, ...] = ()
    on: tuple[Taint, ...] = ()

    def is_done(self, node: Node) -> bool:
        """Returns whether the Node carries all of the new namespace, and nothing of the old."""
        return (
            all(node.labels.get(key) == text for key, text in self.labels.items())
            and all(taint in node.taints for taint in self.on)
            and not any(taint in node.taints for taint in self.off)
        )

    def is_begun(self, node: Node) -> bool:
        """Returns whether the Node carries anything that is the new namespace's alone."""
        new = {key: text for key, text in self.labels.items() if text is not None}
        return any(node.labels.get(key) == text for key, text in new.items()) or any(
            taint in node.taints for taint in self.on
        )


def change_labels(config: Config, node_type: str, before: str, after: str) -> LabelChange:
    """Returns what differs between nodes of a type that are lent to these two namespaces."""
    known = config.node_types.get(node_type)
    old = {**(known.labels_for(before) if known else {}), before: "true"}
    new = {**(known.labels_for(after) if known else {}), after: "true"}
    was = known.taints_for(before) if known else ()
    will = known.taints_for(after) if known else ()
    gone: dict[str, str | None] = {key: None for key in old if key not in new}
    changed = {key: text for key, text in new.items() if old.get(key) != text}
    return LabelChange(
        labels={**gone, **changed},
        off=tuple(taint for taint in was if taint not in will),
        on=tuple(taint for taint in will if taint not in was),
    )
