"""The phase `moving` of a lent node that changes its queue without a reboot, and how facts change
it. Pure.

    serving → moving: fenced, the old queue shrunk, empty; then labels and taints exchanged in one
    change of the Node → serving the new queue, without fence

Invariants: the node counts for no queue's limit while it moves. It has one namespace's labels and
taints or the other's, never some of both. Its fence is lifted for the new namespace only once it
was seen fenced, relabelled and without pods: then no pod of the old namespace runs on it. The
progress is stored on the Node, so a run can be killed at any point. Any reason to stop, or the
deadline, moves it back to its old queue. If that fails too, an administrator is needed."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from dnm.model.charge import Charge
from dnm.model.config import Config
from dnm.model.lent import LentNode
from dnm.model.lent_state import MovePause, Moving, Serving
from dnm.model.node import Node
from dnm.model.node_type import Taint
from dnm.model.reason import Reason, ReasonText
from dnm.model.value import Value
from dnm.model.verdict import Verdict
from dnm.plan.breaker import backoff_delay
from dnm.plan.facts import (
    UNSEEN_PODS,
    Facts,
    NodeTransition,
    after_deletion,
    changed,
    fail_node,
    outcome,
    show_time,
)
from dnm.plan.phases import measure_node

MOVING = ReasonText(
    "changes its queue without a reboot",
    "`dnm hold NODE`, which stops the move until its labels are exchanged",
    name="MOVING",
)
MOVED = ReasonText("has changed its queue and serves the new one from now on", name="MOVED")
STAYS = ReasonText("does not change its queue after all and keeps serving", name="STAYS")
_POD = "a pod landed on it"


def advance_moving(config: Config, name: str, entry: LentNode, facts: Facts) -> NodeTransition:
    """Returns the transition of a node that moves to another queue, by this run's facts."""
    node = facts.node(name)
    if node is None:
        return after_deletion(name, entry, facts)
    if node.unreadable:
        return outcome(name, entry, Verdict.WAIT, Reason.UNKNOWN, node.unreadable)
    change = change_for(config, entry, move_of(entry).to)
    if move_of(entry).is_back:
        return _moving_back(config, node, entry, change, facts)
    if change.is_done(node):
        return _after_relabel(config, node, entry, facts)
    return _before_relabel(config, node, entry, facts)


def move_of(entry: LentNode) -> Moving:
    """Returns the state of a node that is in phase moving."""
    assert isinstance(entry.state, Moving)
    return entry.state


def change_for(config: Config, entry: LentNode, to: str) -> LabelChange:
    """Returns the labels and taints to exchange for a node's move to the namespace `to`."""
    return change_labels(config, entry.node_type, entry.namespace, to)


def belongs_to_other_namespace(config: Config, entry: LentNode, node: Node) -> bool:
    """Returns whether a node has labels or taints of a namespace that it does not serve. Either a
    move failed halfway, or its Node was registered again after a move, with its earlier labels."""
    if entry.moved_at is not None and node.labels.get(entry.namespace) != "true":
        return True
    to = entry.failed_move
    return bool(to) and change_for(config, entry, to).is_begun(node)


def stay(entry: LentNode, facts: Facts, **changes: object) -> LentNode:
    """Returns the entry of a node that keeps serving its queue instead of moving. Its idle time
    continues."""
    return changed(entry, **{"state": Serving(since=facts.now), "failed_move": "", **changes})


def stay_for_now(config: Config, entry: LentNode, facts: Facts, error: str = "") -> LentNode:
    """Returns the entry of a node that stays in its queue, with a pause before its next move. Each
    pause is longer: demand that comes and goes must not prevent the return of an idle node."""
    attempts = move_of(entry).attempts + 1
    pause = MovePause(attempts=attempts, until=facts.now + backoff_delay(config, attempts))
    return stay(entry, facts, state=Serving(since=facts.now, error=error, move_pause=pause))


def _stays(name: str, entry: LentNode, facts: Facts, why: str, **changes: object) -> NodeTransition:
    return outcome(name, stay(entry, facts, **changes), Verdict.KEEP, STAYS, why)


def _before_relabel(config: Config, node: Node, entry: LentNode, facts: Facts) -> NodeTransition:
    """Continues a move before the exchange of labels, unless there is a reason to keep the node."""
    name, move, pods = node.name, move_of(entry), facts.work_on(node.name)
    if pods:
        return _stays(name, entry, facts, _POD, was_used=True, idle_since=None)
    if entry.leaves:
        return _stays(name, entry, facts, "it leaves")
    if node.is_cordoned != node.carries_fence:
        why = f"kubectl uncordon {name}" if node.is_cordoned else "its fence was lifted manually"
        return _stays(name, entry, facts, why)
    if move.to not in config.namespaces:
        return _stays(name, entry, facts, f"{move.to} is not monitored any more")
    deadline = entry.since + config.join_timeout
    if facts.now > deadline:
        error = f"{name} could not be moved to {move.to} until {show_time(deadline)}"
        later = stay_for_now(config, entry, facts, error)
        why = f"{error}; tried again later"
        return outcome(name, later, Verdict.KEEP, STAYS, why)
    if pods is None:
        return outcome(name, entry, Verdict.WAIT, Reason.UNKNOWN, UNSEEN_PODS)
    after = outcome(name, entry, Verdict.MOVE, MOVING, moving_detail(entry))
    is_ready = node.is_fenced and node.is_ready and not node.is_deleting
    return msgspec.structs.replace(after, wants_relabel=is_ready)


def moving_detail(entry: LentNode) -> str:
    """Returns a clause with the old and the new namespace of a moving node."""
    if move_of(entry).is_back:
        return f"back to {entry.namespace}, instead of to {move_of(entry).to}"
    return f"from {entry.namespace} to {move_of(entry).to}"


def _after_relabel(config: Config, node: Node, entry: LentNode, facts: Facts) -> NodeTransition:
    """Continues a move after the exchange of labels: the node serves, or moves back."""
    name, pods = node.name, facts.work_on(node.name)
    policy = config.namespaces.get(move_of(entry).to)
    if policy is None or (pods and node.is_cordoned):
        why = _POD if policy else f"{move_of(entry).to} is not monitored any more"
        return _move_back(node, entry, facts, why)
    if pods is None and node.is_cordoned:
        return outcome(name, entry, Verdict.WAIT, Reason.UNKNOWN, UNSEEN_PODS)
    size = measure_node(config, entry.node_type, node)
    serves = changed(
        entry, state=Serving(since=facts.now), namespace=policy.name, queue=policy.queue,
        counted=size.counted if size else entry.counted, idle_since=None, was_used=bool(pods),
        failed_move="", moved_at=facts.now, order="",
        charge=entry.charge and Charge(account=entry.charge.account, since=facts.now),
        stays_until=entry.stays_until if entry.is_kept_at(facts.now) else None,
    )  # fmt: skip
    return outcome(
        name, serves, Verdict.KEEP, MOVED, moving_detail(entry), remark=size.remark if size else ""
    )


def _move_back(node: Node, entry: LentNode, facts: Facts, why: str) -> NodeTransition:
    back = entry.with_state(since=facts.now, is_back=True)
    return outcome(
        node.name, back, Verdict.MOVE, MOVING, f"{moving_detail(back)}: {why}", wants_relabel=True
    )


def _moving_back(
    config: Config, node: Node, entry: LentNode, change: LabelChange, facts: Facts
) -> NodeTransition:
    """Continues the move of a node back to its old namespace, even with pods on the node."""
    name = node.name
    if not change.is_begun(node):
        used = {"was_used": True, "idle_since": None} if facts.work_on(name) else {}
        return _stays(name, entry, facts, f"it belongs to {entry.namespace} again", **used)
    if facts.now > entry.since + config.join_timeout:
        error = (
            f"{name} could not be returned to {entry.namespace}: exchange the labels and taints "
            f"of {move_of(entry).to} on its Node manually and uncordon it, or `dnm reset {name}` "
            "returns it to Slurm"
        )
        return fail_node(name, entry, facts.now, Reason.GAVE_UP, error)
    return outcome(name, entry, Verdict.MOVE, MOVING, moving_detail(entry), wants_relabel=True)


class LabelChange(Value):
    """The labels and taints that a move exchanges on a Node. `labels` has new values, or None for a
    label to remove. `off` are the taints to remove, `on` those to add."""

    labels: Mapping[str, str | None]
    off: tuple[Taint, ...] = ()
    on: tuple[Taint, ...] = ()

    def is_done(self, node: Node) -> bool:
        """Returns whether the Node has all new labels and taints, and none of the old ones."""
        return (
            all(node.labels.get(key) == text for key, text in self.labels.items())
            and all(taint in node.taints for taint in self.on)
            and not any(taint in node.taints for taint in self.off)
        )

    def is_begun(self, node: Node) -> bool:
        """Returns whether the Node has any label or taint that only its new namespace uses."""
        new = {key: text for key, text in self.labels.items() if text is not None}
        return any(node.labels.get(key) == text for key, text in new.items()) or any(
            taint in node.taints for taint in self.on
        )


def change_labels(config: Config, node_type: str, before: str, after: str) -> LabelChange:
    """Returns the exchange of labels and taints for a node's move between two namespaces."""
    node_type_now = config.node_types.get(node_type)
    old = {**(node_type_now.labels_for(before) if node_type_now else {}), before: "true"}
    new = {**(node_type_now.labels_for(after) if node_type_now else {}), after: "true"}
    old_taints = node_type_now.taints_for(before) if node_type_now else ()
    new_taints = node_type_now.taints_for(after) if node_type_now else ()
    removed: dict[str, str | None] = {key: None for key in old if key not in new}
    changed = {key: text for key, text in new.items() if old.get(key) != text}
    return LabelChange(
        labels={**removed, **changed},
        off=tuple(taint for taint in old_taints if taint not in new_taints),
        on=tuple(taint for taint in new_taints if taint not in old_taints),
    )
