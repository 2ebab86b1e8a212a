"""The phases of lent nodes and of conversion requests: what each fact means for each phase.

Pure. Nothing here decides whether a queue can spare a node or wants one more (`planner.py` does);
this file only reads what has happened since the last run, and moves the record after it.

- A node serves only once it is Ready with its allocatable known; its size is recorded then.
- A node is forgotten only when the batch side has it in service and Kubernetes has no such Node.
- A fact that could not be read moves nothing and restarts the idle clock.
- Every phase has a deadline; what passes it is `failed`, which still watches and recovers.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta

import msgspec

from dnm.model.cluster import BatchNode, Node
from dnm.model.config import Config
from dnm.model.plan import NodeVerdict, Reason, Verdict
from dnm.model.registry import (
    Backoff,
    ConversionRequest,
    ConverterProcess,
    Ended,
    LentNode,
    Phase,
    Registry,
)
from dnm.model.value import Resources, Value

MAX_ATTEMPTS = 3
_LONGEST_BACKOFF = timedelta(hours=1)
_UNSEEN_PODS = "not all pods could be read (it needs list on pods, cluster-wide)"


class Facts(Value):
    """What is known now. None stands for "could not be read", per kind."""

    now: datetime
    nodes: Mapping[str, Node] | None
    batch: Mapping[str, BatchNode] | None
    working_pods: Mapping[str, int] | None  # node -> pods that count; a node without: 0
    running: frozenset[ConverterProcess]
    sees_all_pods: bool = True  # False: some namespaces could not be read
    ended: Mapping[str, Ended] = {}  # request or node -> how its converter ended, or goes on

    def is_in_service(self, name: str) -> bool | None:
        """Whether Slurm has the node in service; None is unknown."""
        known = self.batch.get(name) if self.batch is not None else None
        return known.in_service if known is not None else None

    def is_unknown_to_slurm(self, name: str) -> bool:
        """Slurm was asked, and does not know the node or what it does."""
        return self.batch is not None and self.is_in_service(name) is None

    def is_drained_by_another(self, name: str, entry: LentNode) -> bool:
        """Whether a node that its converter has handed over answers, but is drained: a health check
        or an administrator did that, and one more return would lift it."""
        known = self.batch.get(name) if self.batch is not None else None
        is_away = entry.is_handed_over and name not in (self.nodes or {})
        return is_away and known is not None and known.is_drained

    def is_reserved(self, name: str) -> bool:
        """Whether a reservation holds it, perhaps its converter's: some scripts only warn when
        they can't drain a node."""
        known = self.batch.get(name) if self.batch is not None else None
        return known is not None and known.is_reserved

    def work_on(self, name: str) -> int | None:
        """Pods that count on a node; None: it can't be told that there are none."""
        pods = (self.working_pods or {}).get(name, 0)
        return pods if pods or (self.working_pods is not None and self.sees_all_pods) else None

    def is_running(self, process: ConverterProcess | None) -> bool:
        return process is not None and process in self.running


class Step(Value):
    """One node's record after this look; `entry` None: it is forgotten."""

    entry: LentNode | None
    verdict: NodeVerdict
    conversion_failed: bool = False  # backs off the node type
    wants_release: bool = False  # idle long enough, if its queue can spare it
    wants_return: bool = False  # the converter may be called for it
    note: str = ""  # what went wrong, for the log


def backoff_delay(config: Config, failures: int) -> timedelta:
    """Doubling from one check interval, an hour at most."""
    doubled: int = 2 ** min(failures, 12)
    return min(config.check_interval * doubled, _LONGEST_BACKOFF)


def with_failure(
    config: Config, before: Backoff | None, asked: int, now: datetime, error: str
) -> Backoff:
    """After a failed conversion: the next one waits longer and asks for fewer."""
    failures = (before.failures if before else 0) + 1
    most = min(asked, before.ask_at_most) if before else asked
    return Backoff(
        failures=failures,
        until=now + backoff_delay(config, failures),
        ask_at_most=max(1, most // 2),
        last_error=error,
    )


def request_ended(request: ConversionRequest, end: Ended, now: datetime) -> ConversionRequest:
    """With what its converter named; the time to join counts from now. Where it failed and named
    none, late nodes are adopted, but nobody counts on them."""
    request = _named(request, end)
    return msgspec.structs.replace(
        request,
        ended=True,
        is_given_up=bool(end.error and not request.names),
        since=now,
        error=end.error,
    )


def _named(request: ConversionRequest, end: Ended) -> ConversionRequest:
    """With the names that were heard before and those that stand there now."""
    names = tuple(dict.fromkeys((*request.names, *end.names)))
    return msgspec.structs.replace(request, names=names)


def return_ended(config: Config, entry: LentNode, end: Ended, now: datetime) -> LentNode:
    """When it may be tried again, unless Slurm has the node by then."""
    wait = backoff_delay(config, entry.attempts) if end.error else config.join_timeout
    return _with(
        entry,
        converter=None,
        error=end.error,
        retry_after=now + wait,
        is_handed_over=not end.error and end.exit_code == 0,
    )


def conversion_error(request_id: str, error: str) -> str:
    """The line of a conversion whose converter failed."""
    return f"action=convert request={request_id} error={error!r}"


def return_error(name: str, error: str) -> str:
    """The line of a return whose converter failed."""
    return f"action=return node={name} error={error!r}"


def size_of(node: Node, expected: Resources) -> dict[str, int] | None:
    """What the node brings, by its allocatable; None while a resource its type promises is missing
    (a device plugin registers its resource after the node is Ready)."""
    if any(node.allocatable.get(resource, 0) <= 0 for resource in expected):
        return None
    return {resource: amount for resource, amount in node.allocatable.items() if amount > 0}


def without_future(config: Config, registry: Registry, now: datetime) -> Registry:
    """Times that a host with a wrong clock wrote: nothing has begun after now, and nothing waits
    for longer than it would if it began to wait now."""
    longest = max(_LONGEST_BACKOFF, config.convert_timeout + config.join_timeout)
    return msgspec.structs.replace(
        registry,
        nodes={
            name: _with(
                entry,
                since=min(entry.since, now),
                retry_after=entry.retry_after and min(entry.retry_after, now + longest),
            )
            for name, entry in registry.nodes.items()
        },
        requests=tuple(
            msgspec.structs.replace(request, since=min(request.since, now))
            for request in registry.requests
        ),
        breakers={
            queue: msgspec.structs.replace(
                one, tripped_at=one.tripped_at and min(one.tripped_at, now)
            )
            for queue, one in registry.breakers.items()
        },
        backoffs={
            name: msgspec.structs.replace(one, until=min(one.until, now + _LONGEST_BACKOFF))
            for name, one in registry.backoffs.items()
        },
    )


def advance_node(config: Config, name: str, entry: LentNode, facts: Facts) -> Step:
    """What this run's facts make of one recorded node."""
    if entry.owner != config.instance_id:
        return _stay(name, entry, Verdict.KEEP, Reason.NOT_OURS, f"instance {entry.owner}")
    if facts.nodes is None:
        kept = _with(entry, idle_since=None) if entry.phase is Phase.SERVING else entry
        return _stay(name, kept, Verdict.WAIT, Reason.UNKNOWN, "the Nodes could not be read")
    node = facts.nodes.get(name)
    if node is not None and node.mark and node.mark.instance not in ("", entry.owner):
        # It was given back and lent again by another, or the other was first to mark it.
        detail = f"its Node carries the mark of instance {node.mark.instance}"
        return _stay(name, None, Verdict.KEEP, Reason.NOT_OURS, detail)
    return _BY_PHASE[entry.phase](config, name, entry, facts)


def _with(entry: LentNode, **changes: object) -> LentNode:
    return msgspec.structs.replace(entry, **changes)


def enter_phase(entry: LentNode, phase: Phase, now: datetime, **changes: object) -> LentNode:
    """A new phase starts its own clock, tries and error."""
    fresh: dict[str, object] = {
        "attempts": 0, "is_handed_over": False, "retry_after": None, "error": "", "converter": None,
    }  # fmt: skip
    return _with(entry, phase=phase, since=now, **{**fresh, **changes})


def _stay(
    name: str, entry: LentNode | None, verdict: Verdict, reason: Reason, detail: str = ""
) -> Step:
    return Step(
        entry=entry,
        verdict=NodeVerdict(node=name, verdict=verdict, reason=reason, detail=detail),
    )


def _clock(instant: datetime) -> str:
    return f"{instant:%Y-%m-%d %H:%M:%S} UTC"


def _joining(config: Config, name: str, entry: LentNode, facts: Facts) -> Step:
    assert facts.nodes is not None
    node = facts.nodes.get(name)
    if node is not None and node.is_ready and not node.is_deleting:
        expected = config.node_types[entry.node_type].size if _type_known(config, entry) else {}
        size = size_of(node, expected)
        if size is not None:
            joined = enter_phase(entry, Phase.SERVING, facts.now, counted=size)
            return _stay(name, joined, Verdict.KEEP, Reason.JOINED)
    in_service = facts.is_in_service(name) and not facts.is_reserved(name)
    if node is None and in_service and not facts.is_running(entry.converter):
        step = _stay(name, None, Verdict.FAILED, Reason.GONE, "its conversion was rolled back")
        return msgspec.structs.replace(step, conversion_failed=True)
    deadline = entry.since + config.join_timeout
    if facts.now <= deadline:
        return _stay(name, entry, Verdict.WAIT, Reason.JOINING, f"until {_clock(deadline)}")
    why = "is not in Kubernetes" if node is None else _why_not_joined(config, entry, node)
    error = (
        f"{name} {why} since {_clock(entry.since)}; look at it, then `dnm reset {name}` "
        "to give it back to Slurm"
    )
    failed = enter_phase(entry, Phase.FAILED, facts.now, error=error, converter=entry.converter)
    step = _stay(name, failed, Verdict.FAILED, Reason.LATE, error)
    return msgspec.structs.replace(step, conversion_failed=True)


def _type_known(config: Config, entry: LentNode) -> bool:
    return entry.node_type in config.node_types


def _why_not_joined(config: Config, entry: LentNode, node: Node) -> str:
    if node.is_deleting:
        return "is being deleted from Kubernetes"
    if not node.is_ready:
        return "is in Kubernetes but not Ready"
    expected = config.node_types[entry.node_type].size
    missing = sorted(name for name in expected if node.allocatable.get(name, 0) <= 0)
    return f"is Ready but offers no {', '.join(missing)}"


def _serving(config: Config, name: str, entry: LentNode, facts: Facts) -> Step:
    assert facts.nodes is not None
    node = facts.nodes.get(name)
    if node is None:
        return _left_kubernetes(name, entry, facts)
    if node.is_cordoned_by_another:
        held = _with(entry, idle_since=None)
        return _stay(name, held, Verdict.KEEP, Reason.HELD_BY_ADMIN, f"kubectl uncordon {name}")
    entry = _grown(entry, node)
    pods = facts.work_on(name)
    if pods is None:
        unknown = _with(entry, idle_since=None)
        return _stay(name, unknown, Verdict.WAIT, Reason.UNKNOWN, _UNSEEN_PODS)
    if pods:
        used = _with(entry, idle_since=None, was_used=True)
        # Pods of a dead node stay Terminating until a person removes them.
        detail = "" if node.is_ready else f"but it is NotReady; kubectl describe node {name}"
        return _stay(name, used, Verdict.KEEP, Reason.IN_USE, detail)
    return _idle(config, name, entry, facts.now)


def _grown(entry: LentNode, node: Node) -> LentNode:
    """A resource that registers late (a GPU's device plugin) is counted from then on. Growth only:
    a plugin that restarts shows zero for a moment."""
    if not node.is_ready:
        return entry
    larger = {
        resource: max(amount, entry.counted.get(resource, 0))
        for resource, amount in node.allocatable.items()
        if amount > 0
    }
    counted = {**entry.counted, **larger}
    return entry if counted == entry.counted else _with(entry, counted=counted)


def _idle(config: Config, name: str, entry: LentNode, now: datetime) -> Step:
    policy = config.namespaces.get(entry.namespace)
    timeout = policy.reversion_idle if policy else timedelta(seconds=600)
    # A clock that stands in the future was set by a host whose time was wrong.
    since = min(entry.idle_since or now, now)
    idle = _with(entry, idle_since=since)
    if now < since + timeout:
        detail = f"since {_clock(since)}, goes back after {_clock(since + timeout)}"
        return _stay(name, idle, Verdict.KEEP, Reason.IDLE, detail)
    detail = f"since {_clock(since)}"
    step = _stay(name, idle, Verdict.REVERT, Reason.IDLE_LONG_ENOUGH, detail)
    return msgspec.structs.replace(step, wants_release=True)


def _left_kubernetes(name: str, entry: LentNode, facts: Facts) -> Step:
    """Its Node is gone and dnm did not return it: forgotten if Slurm has it, else a person's."""
    in_service = facts.is_in_service(name)
    if in_service:
        return _stay(name, None, Verdict.KEEP, Reason.GONE, "Slurm has it in service")
    # Its queue must shrink, whatever Slurm says: a node that is not there serves nobody.
    slurm = "can't be asked about it" if in_service is None else "does not have it in service"
    error = (
        f"the Node of {name} is gone and Slurm {slurm}: make sure that kubeconfig_path still names "
        f"the cluster it was lent to, then return it by hand, or let dnm do it: `dnm reset {name}`"
    )
    failed = enter_phase(entry, Phase.FAILED, facts.now, error=error)
    return _stay(name, failed, Verdict.FAILED, Reason.GONE, error)


def _releasing(config: Config, name: str, entry: LentNode, facts: Facts) -> Step:
    assert facts.nodes is not None
    node = facts.nodes.get(name)
    if node is None:
        return _left_kubernetes(name, entry, facts)
    pods = facts.work_on(name)
    if pods is None:
        return _stay(name, entry, Verdict.WAIT, Reason.UNKNOWN, _UNSEEN_PODS)
    if pods:
        serves = enter_phase(entry, Phase.SERVING, facts.now, idle_since=None, was_used=True)
        return _stay(name, serves, Verdict.KEEP, Reason.DEMAND_RETURNED, "a pod landed on it")
    if node.is_cordoned != node.carries_fence:
        # Somebody cordoned it first, or has lifted our cordon: either way it is his to decide.
        serves = enter_phase(entry, Phase.SERVING, facts.now, idle_since=None)
        if node.is_cordoned:
            detail = f"kubectl uncordon {name}"
            return _stay(name, serves, Verdict.KEEP, Reason.HELD_BY_ADMIN, detail)
        detail = "its fence was lifted by hand"
        return _stay(name, serves, Verdict.KEEP, Reason.DEMAND_RETURNED, detail)
    if facts.is_unknown_to_slurm(name) and facts.now > entry.since + config.join_timeout:
        return _unreturnable(name, entry, facts)
    step = _stay(name, entry, Verdict.REVERT, Reason.FENCED)
    return msgspec.structs.replace(step, wants_return=node.is_fenced)


def _unreturnable(name: str, entry: LentNode, facts: Facts) -> Step:
    error = (
        f"Slurm was asked and can't say whether it has {name}, so dnm can't give it back: do it by "
        f"hand, under the name that Slurm knows, then `dnm forget {name}`"
    )
    failed = enter_phase(entry, Phase.FAILED, facts.now, error=error)
    return _stay(name, failed, Verdict.FAILED, Reason.GAVE_UP, error)


def _returning(config: Config, name: str, entry: LentNode, facts: Facts) -> Step:
    assert facts.nodes is not None
    node, in_service = facts.nodes.get(name), facts.is_in_service(name)
    if facts.is_running(entry.converter):
        return _stay(name, entry, Verdict.WAIT, Reason.RETURNING, "a converter is at work")
    if in_service and node is None:
        return _stay(name, None, Verdict.REVERT, Reason.RETURNED)
    if entry.converter is not None:
        entry = return_ended(config, entry, facts.ended.get(name, Ended()), facts.now)
        if entry.error:
            step = _not_returned(config, name, entry, facts)
            return msgspec.structs.replace(step, note=return_error(name, entry.error))
    return _not_returned(config, name, entry, facts)


def _not_returned(config: Config, name: str, entry: LentNode, facts: Facts) -> Step:
    """Its converter has ended, and the node is not simply back."""
    assert facts.nodes is not None
    node, in_service = facts.nodes.get(name), facts.is_in_service(name)
    if in_service:
        error = (
            f"Slurm has {name} in service and Kubernetes still has its Node: drain it in Slurm or "
            f"`kubectl delete node {name}`, whichever is wrong"
        )
        failed = enter_phase(entry, Phase.FAILED, facts.now, error=error)
        return _stay(name, failed, Verdict.FAILED, Reason.GAVE_UP, error)
    pods = facts.work_on(name) if node is not None else 0
    if pods is None:
        return _stay(name, entry, Verdict.WAIT, Reason.UNKNOWN, _UNSEEN_PODS)
    if pods:
        serves = enter_phase(entry, Phase.SERVING, facts.now, idle_since=None, was_used=True)
        return _stay(name, serves, Verdict.KEEP, Reason.DEMAND_RETURNED, "a pod runs on it")
    if node is not None and node.is_cordoned_by_another:
        # Without our own fence it is not given back, and an administrator's is not ours to take.
        return _stay(name, entry, Verdict.WAIT, Reason.HELD_BY_ADMIN, f"kubectl uncordon {name}")
    return _return_again(config, name, entry, facts)


def _return_again(config: Config, name: str, entry: LentNode, facts: Facts) -> Step:
    retry_after = entry.retry_after or entry.since
    if facts.now < retry_after:
        detail = f"until {_clock(retry_after)}" + (f"; {entry.error}" if entry.error else "")
        return _stay(name, entry, Verdict.WAIT, Reason.RETURNING, detail)
    if facts.is_unknown_to_slurm(name) and facts.now > entry.since + config.join_timeout:
        return _unreturnable(name, entry, facts)
    if facts.is_in_service(name) is None:
        detail = "Slurm could not be asked whether it has the node"
        return _stay(name, entry, Verdict.WAIT, Reason.UNKNOWN, detail)
    if facts.is_drained_by_another(name, entry):
        error = (
            f"{name} was given back, and Slurm has it drained since: see `sinfo -R -n {name}`. It "
            f"is forgotten once it is resumed; `dnm reset {name}` gives it back once more"
        )
        failed = enter_phase(entry, Phase.FAILED, facts.now, error=error)
        return _stay(name, failed, Verdict.FAILED, Reason.GAVE_UP, error)
    if entry.attempts >= MAX_ATTEMPTS:
        why = entry.error or "it did not end"
        error = (
            f"{name} was not back in Slurm after {entry.attempts} tries ({why}); look at it, then "
            f"`dnm reset {name}` to try again, or `dnm forget {name}` once it is back"
        )
        failed = enter_phase(entry, Phase.FAILED, facts.now, error=error)
        return _stay(name, failed, Verdict.FAILED, Reason.GAVE_UP, error)
    step = _stay(name, entry, Verdict.REVERT, Reason.RETRY, entry.error)
    return msgspec.structs.replace(step, wants_return=True)


def _failed(config: Config, name: str, entry: LentNode, facts: Facts) -> Step:
    """Waits for a person, and watches: what mends itself is taken up again."""
    assert facts.nodes is not None
    node, in_service = facts.nodes.get(name), facts.is_in_service(name)
    if node is None and in_service:
        return _stay(name, None, Verdict.KEEP, Reason.RETURNED)
    if node is not None and in_service is False and not node.is_cordoned:
        joining = enter_phase(entry, Phase.JOINING, facts.now)
        step = _joining(config, name, joining, facts)
        if step.entry is not None and step.entry.phase is Phase.SERVING:
            return step
    return _stay(name, entry, Verdict.FAILED, Reason.GAVE_UP, entry.error)


_BY_PHASE = {
    Phase.JOINING: _joining,
    Phase.SERVING: _serving,
    Phase.RELEASING: _releasing,
    Phase.RETURNING: _returning,
    Phase.FAILED: _failed,
}


class RequestStep(Value):
    """One request after this look: the nodes it brought, and what is left of it."""

    request: ConversionRequest | None
    joined: Mapping[str, LentNode] = {}
    conversion_failed: bool = False
    note: str = ""


def advance_request(
    config: Config, request: ConversionRequest, taken: frozenset[str], facts: Facts
) -> RequestStep:
    """Adopts the nodes that a conversion brought.

    A node is the request's if it did not exist before and either the converter named it or it has
    the type's name and carries the namespace's label. `taken` are nodes that are recorded already.
    While the converter is at work only what it has named is taken up: another host's look alike,
    and those that it is still to bring would then be more than were asked for.
    """
    if facts.nodes is None:
        return RequestStep(request=request)
    said = facts.ended.get(request.id, Ended())
    ended_now = not request.ended and not facts.is_running(request.converter)
    if ended_now:
        # After the run that started it, or that run was killed.
        request = request_ended(request, said, facts.now)
    elif not request.ended:
        request = _named(request, said)
    step = _adopt(config, request, taken, facts)
    if ended_now and request.error:
        step = msgspec.structs.replace(
            step,
            conversion_failed=request.is_given_up,
            note=conversion_error(request.id, request.error),
        )
    return step


def _adopt(
    config: Config, request: ConversionRequest, taken: frozenset[str], facts: Facts
) -> RequestStep:
    assert facts.nodes is not None
    named = [name for name in request.names if name not in taken]
    others = [name for name in sorted(facts.nodes) if name not in taken and name not in named]
    came = [name for name in named if _is_brought_by(config, request, name, facts)]
    # Of those that nobody named no more than are missing: another host may have brought some.
    arrived = [name for name in others if _is_brought_by(config, request, name, facts)]
    if request.ended:
        came += arrived[: max(request.count - len(came), 0)]
    joined = {name: _newly_lent(request, name, facts.now) for name in came}
    left = max(request.count - len(joined), 0)
    rest = msgspec.structs.replace(request, count=left)
    if left == 0 and rest.ended:
        return RequestStep(request=None, joined=joined)
    if rest.ended and facts.now > rest.since + config.join_timeout:
        note = (
            f"request={request.id} type={request.node_type} missing={left} did not join in time: "
            f"{request.error or 'its converter reported no error'}; the log has what it said "
            f"(converter={request.id}), `dnm nodes` how Slurm has the nodes now"
        )
        return RequestStep(
            request=None, joined=joined, conversion_failed=not request.is_given_up, note=note
        )
    return RequestStep(request=rest, joined=joined)


def _is_brought_by(config: Config, request: ConversionRequest, name: str, facts: Facts) -> bool:
    """A word on the converter's stdout is only taken for a node if Slurm knows it, if it has the
    type's name, or if a Node of that name has come with the namespace's label."""
    node = facts.nodes.get(name) if facts.nodes else None
    is_of_type = config.type_of(name) == request.node_type
    is_named = name in request.names
    if node is None:
        return request.ended and is_named and (is_of_type or name in (facts.batch or {}))
    if name in request.known_nodes or node.mark is not None:
        return False  # a mark, ours too, was set when it joined for something else
    is_labelled = node.labels.get(request.namespace) == "true"
    return is_of_type + is_labelled + is_named >= 2


def _newly_lent(request: ConversionRequest, name: str, now: datetime) -> LentNode:
    return LentNode(
        node_type=request.node_type,
        namespace=request.namespace,
        queue=request.queue,
        owner=request.owner,
        phase=Phase.JOINING,
        since=now,
        converter=request.converter,
    )
