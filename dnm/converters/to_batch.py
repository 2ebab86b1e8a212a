"""The stages of a return to batch: check, drain, reset, delete, boot, health, return.

The Node is deleted only when it is empty and after the reset, when the earlier kubelet can't
register it again. Slurm's drain is lifted only if slurmd has registered after the reset, the health
hook succeeds and Kubernetes has no such Node. Only dnm's own drain is lifted."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from dnm.converters import claim, marks, to_k8s
from dnm.converters.claim import RESERVING, InSlurm
from dnm.converters.conversion import DryRun, NodeConversion, Program, Stage, check_hooks
from dnm.converters.journal import PREVIOUS_DRAIN
from dnm.converters.marks import refuse_other_instance
from dnm.converters.preempt import make_good
from dnm.converters.reservation import own_reservations, release
from dnm.converters.slurm.commands import resume_command
from dnm.converters.slurm.text import SlurmNode
from dnm.model.cluster import PodOnNode
from dnm.model.errors import ConverterError, KubeError

HOOKS = ("reset", "leave", "clear", "health")  # the first one is required
CORDONED = "cordoned"  # keys of the journal's facts: dnm cordoned the Node
_SLURMD_BEFORE = "slurmd started before"
_RESET_AT = "reset at"
_CLOCK_SKEW = timedelta(seconds=30)  # between this host and the node


class AlreadyBack(ConverterError):
    """The error if Slurm already has the node, so that a return has nothing to do."""


def check(conversion: NodeConversion) -> str:
    """Raises an error unless the node can be returned: this instance has lent it, it has no work,
    and Slurm's state is known. Raises AlreadyBack if Slurm has it in service."""
    state = claim.in_slurm(conversion)
    node, reservations = state.node, state.own
    refuse_other_instance(conversion.settings, node)
    if state.in_service and not reservations and not _is_our_drain(conversion, node):
        raise AlreadyBack(_in_service(conversion, state))
    state.refuse_work()
    # A node that was resumed after its reset answers at the next ping; the last stage waits for it.
    was_resumed = is_resumed(conversion, "drain") and "DRAIN" not in node.state.flags
    if not (was_resumed and conversion.journal.is_done("boot")):
        state.refuse_unknown()
    if not (reservations or _is_our_drain(conversion, node) or was_resumed):
        held = f"drained: {node.reason}" if "DRAIN" in node.state.flags else node.state.text
        if conversion.journal.has_begun(
            to_k8s.FIRST_IRREVERSIBLE
        ) and not conversion.journal.is_done("reset"):
            raise ConverterError(
                f"{node.name} was prepared for Kubernetes, never reset, and Slurm has it {held}, "
                "without dnm's mark: nothing is done. To let it be reset and returned: "
                f"scontrol update nodename={node.name} state=drain "
                f"reason='dnm:{conversion.settings.instance}'"
            )
        if conversion.kube.read_node(conversion.node) is None:
            raise AlreadyBack(f"it is not lent, and Slurm has it {held}; nothing is done to it")
        raise ConverterError(
            f"{node.name} is not lent by '{conversion.settings.instance}': no reservation "
            f"{conversion.reservation}, no drain of dnm ({held}); nothing is done"
        )
    check_hooks(conversion.settings, *HOOKS)
    return f"lent: {node.state.text}"


def _in_service(conversion: NodeConversion, state: InSlurm) -> str:
    shown = f"Slurm has it in service ({state}): nothing is done to it"
    if conversion.kube.read_node(conversion.node) is not None:
        raise ConverterError(
            f"{shown}, but Kubernetes has it too: cordon it there and check which is right"
        )
    return shown


def _is_our_drain(conversion: NodeConversion, node: SlurmNode) -> bool:
    """Returns whether this instance drained the node. The drain of the predecessor's script counts
    if dnm's reservation holds the node."""
    if marks.is_own_reason(conversion.settings, reason := marks.reason_of_drain(node)):
        return True
    is_predecessors = marks.is_predecessors_reason(conversion.settings, reason)
    return is_predecessors and bool(own_reservations(conversion))


def is_resumed(conversion: NodeConversion, first: str) -> bool:
    """Returns whether an earlier call may have lifted the drain: it began this stage or a claim."""
    return conversion.journal.has_begun(first) or bool(conversion.journal.facts.get(RESERVING))


def drain(conversion: NodeConversion) -> str:
    """Cordons the Node and evicts pods, except those that may stay, e.g. of DaemonSets. --force
    also evicts pods that nothing recreates, and ignores pods that never end since their kubelet is
    gone. Even --force respects disruption budgets. After a failure dnm lifts its own cordon."""
    node = conversion.kube.read_node(conversion.node)
    if node is None:
        return "Kubernetes has no such Node"
    if not node.is_cordoned and not conversion.journal.facts.get(CORDONED):
        conversion.writer.remember({CORDONED: "yes"})
    try:
        conversion.wait_until(
            lambda: _drain_once(conversion), conversion.settings.drain_timeout_seconds
        )
    except ConverterError as error:
        if conversion.settings.force and not _evict(conversion, _pods_that_leave(conversion)):
            return f"continues although not empty (--force): {error}"
        _uncordon(conversion)
        raise
    return "empty"


def _drain_once(conversion: NodeConversion) -> str:
    node = conversion.kube.read_node(conversion.node)
    if node is None:
        return ""
    if not node.is_cordoned:
        conversion.kube.set_cordon(conversion.node, True)
    pods = _pods_that_leave(conversion)
    lost = [pod for pod in pods if pod.loss and not pod.is_terminating]
    if lost and not conversion.settings.force:
        raise ConverterError(f"{_named(lost)}: {lost[0].loss}; --force evicts nevertheless")
    blocked = _evict(conversion, pods)
    if not pods:
        return ""
    return f"{_named(pods)} on it" + (f": {blocked[0]}" if blocked else "")


def _pods_that_leave(conversion: NodeConversion) -> list[PodOnNode]:
    return [pod for pod in conversion.kube.read_pods_to_evict(conversion.node) if not pod.stays]


def _evict(conversion: NodeConversion, pods: list[PodOnNode]) -> list[str]:
    """Evicts the pods. Returns the reasons for which disruption budgets keep some of them."""
    return [
        blocked
        for pod in pods
        if not pod.is_terminating and (blocked := conversion.kube.evict(pod))
    ]


def _named(pods: list[PodOnNode]) -> str:
    more = f" and {len(pods) - 3} more" if len(pods) > 3 else ""
    return f"pod {', '.join(pod.key for pod in pods[:3])}{more}"


def _uncordon(conversion: NodeConversion) -> None:
    if not conversion.journal.facts.get(CORDONED):
        return
    try:
        conversion.kube.set_cordon(conversion.node, False)
        conversion.writer.remember({CORDONED: ""})
    except KubeError as error:
        conversion.log(f"could not be uncordoned: {error}")


def reset(conversion: NodeConversion) -> str:
    """Runs the site's hooks that end all work on the machine: `leave` and `clear` (optional) clean
    up, `reset` power-cycles. Checks before each that no other host has returned the node."""
    node = conversion.read_node()
    started = node.slurmd_started.isoformat() if node.slurmd_started else ""
    conversion.writer.remember({_SLURMD_BEFORE: started, _RESET_AT: datetime.now(UTC).isoformat()})
    for name in ("leave", "clear", "reset"):
        check_still_out(conversion)
        conversion.run_hook(name, is_required=name == "reset")
    return ""


def check_still_out(conversion: NodeConversion) -> None:
    """Raises ConverterError if Slurm has the node in service, or if a slurmd pod is on it, which
    may have jobs under another node name. A machine with work is never reset, even with --force."""
    slurmds: list[PodOnNode] = []

    def look() -> str:
        pods = conversion.kube.read_pods_to_evict(conversion.node)
        slurmds[:] = [pod for pod in pods if pod.stays and pod.is_work]
        return ""

    conversion.wait_until(look, conversion.settings.drain_timeout_seconds)
    if slurmds:
        raise ConverterError(
            f"{_named(slurmds)} of a NodeSet on it could lose jobs: it is not reset"
        )
    state = claim.in_slurm(conversion)
    if state.in_service is not False:
        raise ConverterError(
            f"Slurm may have {conversion.node} in service ({state}): it is not touched; "
            "check the node"
        )


def delete(conversion: NodeConversion) -> str:
    def look() -> str:
        if conversion.kube.read_node(conversion.node) is None:
            return ""
        conversion.kube.delete_node(conversion.node)
        is_deleted = conversion.kube.read_node(conversion.node) is None
        return "" if is_deleted else "the Node is still there"

    conversion.wait_until(look, conversion.settings.drain_timeout_seconds)
    return "the Node is gone"


def boot(conversion: NodeConversion) -> str:
    """Waits for a slurmd that started after the reset. A reset ends any earlier slurmd and jobs."""
    facts = conversion.journal.facts
    before = facts.get(_SLURMD_BEFORE, "")
    reset_at = datetime.fromisoformat(facts[_RESET_AT]) - _CLOCK_SKEW

    def look() -> str:
        node = conversion.slurm.read_node(conversion.node)
        started = node.slurmd_started
        if started is None or (before and started <= datetime.fromisoformat(before)):
            return f"slurmd has not registered again ({node.state.text})"
        if started < reset_at:
            return f"slurmd was started at {started:%H:%M:%S}, before the reset"
        if "NOT_RESPONDING" in node.state.flags or node.state.base not in ("IDLE", "DOWN"):
            return f"Slurm has it {node.state.text}"
        return ""

    conversion.wait_until(look, conversion.settings.boot_timeout_seconds)
    return "slurmd has registered again"


def health(conversion: NodeConversion) -> str:
    has_hook = conversion.run_hook("health")
    return "" if has_hook else "no hook health"


def finish_return(conversion: NodeConversion) -> str:
    """Lifts dnm's drain, then deletes the reservation. A drain that is not dnm's stays."""
    if conversion.kube.read_node(conversion.node) is not None:
        raise ConverterError(
            f"Kubernetes has a Node {conversion.node} again: its kubelet still starts at boot; "
            "fix the node's role, then repeat"
        )
    node = conversion.read_node()
    note = claim.settle_drain(conversion, node, _is_our_drain(conversion, node))
    conversion.wait_until(
        lambda: _not_usable(conversion), conversion.settings.stage_timeout_seconds
    )
    claim.clear_marks(conversion)
    release(conversion)
    return note


def _not_usable(conversion: NodeConversion) -> str:
    """Returns why Slurm can't use a node; empty if it can or, outside tests, if it is drained."""
    node = conversion.slurm.read_node(conversion.node)
    if "DRAIN" in node.state.flags and PREVIOUS_DRAIN not in conversion.journal.facts:
        return ""
    is_usable = node.state.base in ("IDLE", "MIXED", "ALLOCATED")
    if is_usable and not node.state.flags & {"NOT_RESPONDING", "FAIL"}:
        return ""
    return f"Slurm has it {node.state.text} {node.reason}".rstrip()


def undo_claim(conversion: NodeConversion) -> str:
    """Gives a node back to Slurm that was only claimed and not changed."""
    make_good(conversion)
    return claim.return_nodes(conversion)


def show_release(run: DryRun) -> list[str]:
    """Returns what a dry run prints for the release of a node: the commands of Slurm."""
    return [
        " ".join(resume_command(run.node, {"comment": "<cleared>"})),
        f"scontrol delete ReservationName={run.settings.res_name}-{run.node}",
    ]


SHOW_LOOK = "scontrol -a -o show node {node}; squeue -a -h -w {node}"
SHOW_EVICTION = "cordon {node}, evict its pods"
GIVE_BACK = Stage("give back", undo_claim, shows=show_release)
STAGES = (
    Stage("drain", drain, shows=SHOW_EVICTION),
    Stage(
        "reset", reset, check_still_out,
        lambda run: [run.hook("leave"), run.hook("clear"), run.hook("reset", to_k8s.REFUSED)],
    ),
    Stage("delete", delete, shows="delete Node {node}"),
    Stage("boot", boot, shows="wait until slurmd has registered again"),
    Stage("health", health, shows=lambda run: [run.hook("health")]),
    Stage("return", finish_return, shows=show_release),
)  # fmt: skip


def reopen_stages(conversion: NodeConversion) -> None:
    """Makes a return repeat finished stages, since pods may have started after them. Repeats all
    stages if the Node is not cordoned, or Ready although it was reset; otherwise only the drain."""
    node = conversion.kube.read_node(conversion.node)
    if node is None:
        return
    if not node.is_cordoned or (node.is_ready and conversion.journal.is_done("reset")):
        conversion.writer.reopen(tuple(stage.name for stage in STAGES))
    else:
        conversion.writer.reopen(("drain",))


PROGRAM = Program(
    lending=to_k8s.STAGES,
    touches=to_k8s.FIRST_IRREVERSIBLE,
    check=Stage("check", check, shows=SHOW_LOOK),
    returning=STAGES,
    check_settings=lambda settings: check_hooks(settings, *to_k8s.HOOKS),
    reopen_stages=reopen_stages,
)
