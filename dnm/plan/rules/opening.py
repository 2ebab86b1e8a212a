"""`readiness_checks`: a joining node gets no pods until the checks of its type pass. Pure.

Only then it serves, and its queue grows. If a check does not pass in time, the node is returned,
and its error names the check. A fact that could not be read neither opens nor returns a node."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

import msgspec

from dnm.demand.constraints import NodeTraits, describe_misfit, tolerates
from dnm.model.close_look import CLOSED, CloseLook, DaemonPods, FactsRequest, ImageUsers, OwnPod
from dnm.model.config import Config
from dnm.model.departure import Leaving
from dnm.model.lent import LentNode, Phase
from dnm.model.lent_state import Joining, Releasing
from dnm.model.node import Node
from dnm.model.observed import Breaker
from dnm.model.opening import OPENING_TAINT, Check, Opening, PodOrder, full_name
from dnm.model.plan import Action, DropPods, HoldClosed, StartPod
from dnm.model.reason import Reason, ReasonText
from dnm.model.registry import Registry
from dnm.model.value import Unreadable
from dnm.model.verdict import Verdict
from dnm.plan.facts import Facts, NodeTransition, changed, outcome
from dnm.plan.hooks import Additions, Leave, Rule, in_a_run
from dnm.plan.inputs import Inputs

OPENING = ReasonText(
    "is Ready, but has not passed its readiness checks yet",
    "the check that it has not passed; `kubectl describe node NODE` shows the state",
    name="OPENING",
)
NOT_OPENED = ReasonText(
    "did not pass its readiness checks in time and is returned",
    "a fix for the check that it did not pass; then `dnm reset TYPE` ends the back-off",
    name="NOT_OPENED",
)
_MOST_IMAGES = 10  # that are pulled onto one node
_OF_KUBERNETES = "node.kubernetes.io/"  # taints that every DaemonSet's pods tolerate
_OF_IMAGES = ("images", "image")


class _Gate(NamedTuple):
    """A joining node with the facts that decide whether its readiness checks pass."""

    node: Node
    entry: LentNode
    steps: tuple[Check, ...]
    opening: Opening
    look: CloseLook
    tenants: Collection[str]  # the monitored namespaces

    @property
    def traits(self) -> NodeTraits:
        """Returns the Node's labels, and its taints except those that dnm and Kubernetes will
        remove."""
        taints = tuple(
            taint
            for taint in self.node.taints
            if taint.key != OPENING_TAINT and not taint.key.startswith(_OF_KUBERNETES)
        )
        return NodeTraits(labels=self.node.labels, taints=taints, name=self.node.name)

    @property
    def waiting(self) -> list[ImageUsers]:
        """Returns the pending pods, with their images, that could run on this node."""
        return [
            image_users
            for image_users in self.look.waiting
            if not describe_misfit(image_users.shape, (), self.traits)
        ]

    @property
    def puller(self) -> str:
        """Returns the name (`namespace/name`) of dnm's pod that pulls images on this node."""
        return f"{self.entry.namespace}/{_pod_name('images', self.node.name)}"

    def probe(self, step: Check) -> str:
        """Returns the name (`namespace/name`) of the pod that runs this check on this node."""
        return f"{step.name.partition('/')[0]}/{_pod_name('probe', self.node.name)}"

    def images_of(self, step: Check) -> tuple[str, ...]:
        return (step.name,) if step.kind == "image" else self.opening.images


def _pod_name(purpose: str, node: str) -> str:
    return f"dnm-{purpose}-{node}"


def _steps(config: Config, entry: LentNode) -> tuple[Check, ...]:
    node_type = config.node_types.get(entry.node_type)
    return node_type.readiness_checks if node_type else ()


def list_looks(config: Config, registry: Registry, nodes: Sequence[Node]) -> Iterator[FactsRequest]:
    """Yields a request to read facts about each node with readiness checks: joining nodes, failed
    nodes that may still join, and Nodes that may have just joined for a request. The last ones are
    included so that dnm pulls their images from the first run on."""
    own_nodes = registry.nodes_of(config.instance_id, Phase.JOINING, Phase.FAILED)
    for name, entry in own_nodes.items():
        if steps := _steps(config, entry):
            yield FactsRequest(
                node=name,
                namespace=entry.namespace,
                kinds=frozenset(step.kind for step in steps),
                pods=entry.opening.pods if entry.opening else (),
            )
    for request in registry.requests:
        node_type = config.node_types.get(request.node_type)
        kinds = (
            frozenset(step.kind for step in node_type.readiness_checks)
            if node_type
            else frozenset()
        )
        for node in nodes if kinds else ():
            is_new = node.name not in registry.nodes and node.name not in request.nodes_before
            is_labelled = node.labels.get(request.namespace) == "true"
            if is_new and is_labelled and config.type_of(node.name) == request.node_type:
                yield FactsRequest(node=node.name, namespace=request.namespace, kinds=kinds)


# --- transitions ----------------------------------------------------------------------------------


def keep_closed(inputs: Inputs, after: Mapping[str, NodeTransition]) -> dict[str, NodeTransition]:
    """Keeps nodes in phase joining that would now serve, if one of their readiness checks fails."""
    transitions = dict(after)
    for name, transition in after.items():
        node, entry = inputs.facts.node(name), transition.entry
        if entry is None or entry.owner != inputs.config.instance_id or node is None:
            continue
        if _steps(inputs.config, entry):
            transitions[name] = _kept_closed(inputs, node, transition, entry)
    return transitions


def _kept_closed(
    inputs: Inputs, node: Node, after: NodeTransition, entry: LentNode
) -> NodeTransition:
    is_new = after.verdict.reason is Reason.JOINED
    is_shut = entry.opening is not None and not entry.opening.is_open and entry.leaves is None
    if entry.phase is Phase.SERVING and (is_new or is_shut):
        return _check_steps(inputs, node, after, entry)
    if entry.phase is Phase.JOINING:
        opening = _with_step(entry.opening, "node", inputs.now)
        return msgspec.structs.replace(after, entry=changed(entry, opening=opening))
    if after.verdict.reason is Reason.LATE and node.is_ready:
        size = inputs.config.node_types[entry.node_type].size
        lacking = ", ".join(name for name in sorted(size) if node.allocatable.get(name, 0) <= 0)
        step = Check(kind="resources", within=inputs.config.join_timeout)
        opening = _with_step(entry.opening, "node", inputs.now)
        why = f"it offers no {lacking}"
        return _return_unopened(inputs, node.name, entry, opening, step, why) if lacking else after
    return after


def _with_step(opening: Opening | None, step: str, now: datetime) -> Opening:
    opening = opening or Opening()
    seen = opening.held.get(step)
    if seen is not None and seen <= now:  # by a clock that is right
        return opening
    return msgspec.structs.replace(opening, held={**opening.held, step: now})


def _check_steps(
    inputs: Inputs, node: Node, after: NodeTransition, entry: LentNode
) -> NodeTransition:
    """Records the checks that a Ready node passes. It serves if all pass, and is returned if one
    takes too long."""
    now, steps = inputs.now, _steps(inputs.config, entry)
    opening = _with_step(_with_step(entry.opening, "node", now), "ready", now)
    look = inputs.facts.close.get(node.name)
    if look is None or isinstance(look, Unreadable):
        why = look.error if look is not None else "the next run reads it closely"
        return _keep_joining(inputs, node.name, entry, msgspec.structs.replace(opening, why=why))
    gate = _with_pods(_Gate(node, entry, steps, opening, look, inputs.config.namespaces))
    lacks = {step.text: why for step in steps if (why := _describe_lack(step, gate))}
    held = {text: at for text, at in opening.held.items() if text not in lacks}
    held |= {step.text: now for step in steps if step.text not in {*held, *lacks}}
    why = next(iter(lacks.values()), "")
    opening = msgspec.structs.replace(gate.opening, held=held, why=why, is_open=not lacks)
    if not lacks:
        return msgspec.structs.replace(after, entry=changed(entry, opening=opening))
    is_kept = node.name in inputs.registry.held
    for step in () if is_kept else steps:
        is_late = now > held["ready"] + step.within
        if step.text in lacks and (is_late or _has_failed(step, gate)):
            return _return_unopened(inputs, node.name, entry, opening, step, lacks[step.text])
    return _keep_joining(inputs, node.name, entry, opening)


def _keep_joining(inputs: Inputs, name: str, entry: LentNode, opening: Opening) -> NodeTransition:
    before = inputs.registry.nodes.get(name)
    since = before.since if before is not None and before.phase is Phase.JOINING else inputs.now
    state = Joining(since=since, error=entry.error)
    joins = changed(entry, state=state, counted={}, opening=opening)
    return outcome(name, joins, Verdict.WAIT, OPENING, opening.why)


def _return_unopened(
    inputs: Inputs, name: str, entry: LentNode, opening: Opening, step: Check, why: str
) -> NodeTransition:
    text = f"{step.text}: {why}"
    error = f"{name} did not pass its readiness checks and is returned: {text}"
    of_pods = step.kind == "images"
    released = changed(
        entry.leave(Leaving.NOT_OPENED),
        state=Releasing(since=inputs.now, error=error),
        counted={},
        opening=msgspec.structs.replace(opening, of_pods=of_pods),
    )
    transition = outcome(name, released, Verdict.FAILED, NOT_OPENED, text, note=error)
    return msgspec.structs.replace(transition, conversion_failed=not of_pods)


def open_breakers(inputs: Inputs, registry: Registry) -> Registry:
    """Trips the circuit breaker of each queue that has just lost a node because an image of its
    pods was missing. The queue then gets one node at a time, after longer and longer pauses, even
    if its pods do not change. Other queues still get nodes."""
    breakers = dict(registry.breakers)
    for queue in {entry.queue for entry in _left_for_images(inputs, registry)}:
        before = breakers.get(queue, Breaker())
        if before.tripped_at is None or before.demand:  # for another reason
            breakers[queue] = Breaker(
                unused=before.unused + 1, tripped_at=inputs.now, trips=before.trips + 1
            )
    return msgspec.structs.replace(registry, breakers=breakers)


def _left_for_images(inputs: Inputs, registry: Registry) -> Iterator[LentNode]:
    for name, entry in registry.nodes.items():
        before = inputs.registry.nodes.get(name)
        has_just_left = before is not None and before.leaves != entry.leaves
        of_pods = entry.opening is not None and entry.opening.of_pods
        if has_just_left and entry.leaves == Leaving.NOT_OPENED and of_pods:
            yield entry


# --- the steps ------------------------------------------------------------------------------------


def _describe_lack(step: Check, gate: _Gate) -> str:
    """Returns why a readiness check does not pass, as a clause, or an empty text if it passes."""
    match step.kind:
        case "condition":
            status = gate.look.conditions.get(step.name, "not there")
            is_wrong = status != step.status
            return f"the condition {step.name} is {status}, not {step.status}" if is_wrong else ""
        case "taint":
            is_there = any(taint.key == step.name for taint in gate.node.taints)
            return f"it still has the taint {step.name}" if is_there else ""
        case "daemonsets":
            return _describe_daemon(required_daemons(gate.look.daemons, gate.tenants, gate.traits))
        case "daemonset":
            named = [daemon for daemon in gate.look.daemons if daemon.name == step.name]
            return _describe_daemon(named) if named else f"no DaemonSet {step.name} exists"
        case "probe":
            return _describe_probe(step, gate)
    return _describe_image(gate.images_of(step), gate)


def required_daemons(
    daemons: Iterable[DaemonPods], tenants: Collection[str], traits: NodeTraits
) -> list[DaemonPods]:
    """Returns the DaemonSets that select a node with these traits, and that the check `daemonsets`
    requires on it. A DaemonSet in a monitored namespace belongs to a tenant and is not required;
    the check `daemonset` can name it."""
    return [
        daemon
        for daemon in daemons
        if daemon.name.partition("/")[0] not in tenants
        and not describe_misfit(daemon.shape, (), traits)
    ]


def _describe_daemon(daemons: Sequence[DaemonPods]) -> str:
    lacking = [daemon for daemon in daemons if not daemon.is_ready]
    if not lacking:
        return ""
    first = next(
        (daemon for daemon in lacking if not tolerates(daemon.shape.tolerations, CLOSED)), None
    )
    if first is not None:
        return (
            f"DaemonSet {first.name} does not tolerate {OPENING_TAINT}: add the toleration, or "
            "name the required ones in readiness_checks (daemonset NAMESPACE/NAME)"
        )
    more = f", and {len(lacking) - 1} more" if len(lacking) > 1 else ""
    return f"DaemonSet {lacking[0].name} {lacking[0].why}{more}"


def _describe_image(images: Sequence[str], gate: _Gate) -> str:
    pod = gate.look.pods.get(gate.puller, OwnPod())
    there = gate.look.images | pod.pulled
    lacking = [image for image in images if full_name(image) not in there]
    if not lacking:
        return ""
    more = f", and {len(lacking) - 1} more," if len(lacking) > 1 else ""
    refusal = gate.opening.refused.get(gate.puller, "")
    trouble = f"dnm may not pull it: {refusal}" if refusal else pod.why
    return f"image {lacking[0]}{more} is not on it" + (f": {trouble}" if trouble else " yet")


def _describe_probe(step: Check, gate: _Gate) -> str:
    key = gate.probe(step)
    pod = gate.look.pods.get(key)
    if pod is not None and pod.phase == "Succeeded":
        return ""
    if refusal := gate.opening.refused.get(key):
        return f"the probe {step.name} could not be started: {refusal}"
    if pod is None:
        return f"the probe {step.name} has not run yet"
    ended = "has failed" if pod.phase == "Failed" else f"is {pod.phase or 'Pending'}"
    return f"the probe {step.name} {ended}" + (f": {pod.why}" if pod.why else "")


def _has_failed(step: Check, gate: _Gate) -> bool:
    """Returns whether a readiness check has failed for good, so that waiting cannot help."""
    pod = gate.look.pods.get(gate.probe(step)) if step.kind == "probe" else None
    return pod is not None and pod.phase == "Failed"


# --- dnm's own pods -------------------------------------------------------------------------------


def _with_pods(gate: _Gate) -> _Gate:
    """Records the images that the node needs, and the pods that dnm must start on it: one that
    pulls images, and a probe once all other checks pass."""
    opening, wants_all = gate.opening, any(step.kind == "images" for step in gate.steps)
    if wants_all and not opening.images:
        images = dict.fromkeys(
            image for image_users in gate.waiting for image in image_users.images
        )
        opening = msgspec.structs.replace(opening, images=tuple(images)[:_MOST_IMAGES])
        gate = gate._replace(opening=opening)
    lacks = [step for step in gate.steps if step.kind != "probe" and _describe_lack(step, gate)]
    wanted = set(opening.pods)
    if any(step.kind in _OF_IMAGES for step in lacks):
        wanted.add(gate.puller)
    if not lacks:
        wanted |= {gate.probe(step) for step in gate.steps if step.kind == "probe"}
    return gate._replace(opening=msgspec.structs.replace(opening, pods=tuple(sorted(wanted))))


def list_actions(config: Config, registry: Registry, facts: Facts) -> list[Action]:
    """Returns actions on joining nodes: to set or remove a taint, or start or delete dnm's pods."""
    actions: list[Action] = []
    for name, entry in sorted(registry.nodes.items()):
        node, opening = facts.node(name), entry.opening
        if node is None or entry.owner != config.instance_id:
            continue
        is_tainted = any(taint.key == OPENING_TAINT for taint in node.taints)
        if entry.phase is Phase.JOINING and not is_tainted and _steps(config, entry):
            actions.append(HoldClosed(node=name, is_closed=True))
        is_shut = opening is not None and not opening.is_open and bool(_steps(config, entry))
        if entry.phase is Phase.SERVING and is_tainted and entry.leaves is None and not is_shut:
            actions.append(HoldClosed(node=name, is_closed=False))
        look = facts.close.get(name)
        if opening is None or not opening.pods:
            continue
        if entry.phase is not Phase.JOINING:
            actions.append(DropPods(node=name))
        elif isinstance(look, CloseLook):
            steps = _steps(config, entry)
            gate = _Gate(node, entry, steps, opening, look, config.namespaces)
            actions += [StartPod(node=name, pod=missing_pod) for missing_pod in _missing_pods(gate)]
    return actions


def _missing_pods(gate: _Gate) -> Iterator[PodOrder]:
    opening, look, node = gate.opening, gate.look, gate.node.name
    missing = {*opening.pods} - {*look.pods} - {*opening.refused}
    steps = [step for step in gate.steps if step.kind in _OF_IMAGES]
    images = dict.fromkeys(image for step in steps for image in gate.images_of(step))
    lacking = tuple(image for image in images if full_name(image) not in look.images)
    if gate.puller in missing and lacking:
        secrets = {name for image_users in gate.waiting for name in image_users.secrets}
        yield PodOrder(
            namespace=gate.entry.namespace,
            name=_pod_name("images", node),
            images=lacking,
            secrets=tuple(sorted(secrets)),
        )
    for step in gate.steps:
        if step.kind == "probe" and gate.probe(step) in missing:
            namespace, _, template = step.name.partition("/")
            yield PodOrder(namespace=namespace, name=_pod_name("probe", node), template=template)


def _add_actions(inputs: Inputs, registry: Registry, noted: Registry) -> Additions:
    actions = list_actions(inputs.config, registry, inputs.facts)
    return Additions(registry=noted, actions=tuple(actions))


RULE = Rule(
    reasons=(OPENING, NOT_OPENED),
    looks_at=list_looks,
    annotates=keep_closed,
    records=in_a_run(open_breakers),
    leave=Leave(
        word=Leaving.NOT_OPENED, reason="it did not pass the readiness checks of its type in time"
    ),
    adds=_add_actions,
)
