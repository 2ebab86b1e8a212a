"""The stages of a lend from batch to Kubernetes: select (by the caller), claim, verify, reach,
prepare, join, ready.

Until the end of *reach* the node itself is unchanged, and a rollback only lifts the drain. From
*prepare* on, a rollback runs all of `to_batch`, reset included."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Sequence
from datetime import timedelta

from dnm.converters.claim import check_claim, drain, reserve
from dnm.converters.conversion import DryRun, NodeConversion, Stage
from dnm.converters.marks import drain_reason
from dnm.converters.preempt import JOBS, claim_from_jobs
from dnm.converters.reservation import charge
from dnm.converters.slurm.commands import IGNORE_JOBS, drain_command, reserve_command
from dnm.host.fault_points import fault_point
from dnm.model.close_look import lacking_taints
from dnm.model.errors import ConverterError
from dnm.model.node import Node
from dnm.model.node_type import Taint

_REACH_TIMEOUT = timedelta(seconds=30)

FIRST_IRREVERSIBLE = "prepare"
HOOKS = ("join", "reach", "prepare", "ready")  # the first one is required
REFUSED = "(no hook: would be refused)"


def claim(conversion: NodeConversion) -> str:
    if conversion.journal.facts.get(JOBS):
        return claim_from_jobs(conversion)
    reserve(conversion)
    drain(conversion)
    return f"reservation {conversion.reservation}, drained"


def verify(conversion: NodeConversion) -> str:
    """Checks the claim again after Slurm has saved its state. A crash of slurmctld within seconds
    loses a reservation or drain that it has acknowledged."""
    check_claim(conversion)
    conversion.wait(conversion.settings.verify_seconds)
    check_claim(conversion)
    return f"no job got in{charge(conversion)}"


def reach(conversion: NodeConversion) -> str:
    """Checks that machine and Kubernetes answer, and that Kubernetes has no such Node yet."""
    if conversion.kube.read_node(conversion.node) is not None:
        raise ConverterError(
            f"Kubernetes has a Node {conversion.node} already: 'kubectl describe node "
            f"{conversion.node}' shows its owner; delete it if it is a leftover"
        )
    if conversion.run_hook("reach", timeout=_REACH_TIMEOUT):
        return "the hook reaches it"
    names = [conversion.node]
    if conversion.settings.node_search_domain:
        names.append(f"{conversion.node}.{conversion.settings.node_search_domain}")
    for name in names:
        if _answers_ping(name, _REACH_TIMEOUT.total_seconds()):
            return f"{name} answers"
    raise ConverterError(f"{' and '.join(names)} did not answer a ping: is the machine up?")


def _answers_ping(name: str, timeout: float) -> bool:
    program = shutil.which("ping")
    if program is None:
        raise ConverterError("ping is not installed: install it, or write a hook 'reach'")
    command = [program, "-c1", "-W1", "-q", name]
    with fault_point("convert.ping"):
        try:
            nothing = subprocess.DEVNULL  # a name server decides how long the output is
            answer = subprocess.run(
                command, stdin=nothing, stdout=nothing, stderr=nothing, timeout=timeout, check=False
            )
        except subprocess.TimeoutExpired:
            return False
    return answer.returncode == 0


def require_claim(conversion: NodeConversion) -> None:
    check_claim(conversion, may_be_away=True)


def prepare(conversion: NodeConversion) -> str:
    has_hook = conversion.run_hook("prepare")
    return "" if has_hook else "no hook prepare"


def join(conversion: NodeConversion) -> str:
    conversion.run_hook("join", is_required=True)
    return ""


def set_namespace(
    conversion: NodeConversion, node: Node, kept: Sequence[Taint], is_uncordoned: bool = False
) -> bool:
    """Sets the labels and taints for the namespace on a Node in one change; of the Node's other
    taints, those in `kept` stay. Returns whether anything had to change."""
    settings, journal = conversion.settings, conversion.journal
    labels = settings.labels(journal.node_type, journal.namespace)
    taints = settings.taints(journal.node_type, journal.namespace)
    lacking = {key: text for key, text in labels.items() if node.labels.get(key) != text}
    desired = (*kept, *lacking_taints(node, taints))
    if not lacking and desired == node.taints:
        return False
    conversion.kube.change(node, lacking, desired, is_uncordoned)
    return True


def ready(conversion: NodeConversion) -> str:
    """Waits until the Node is Ready, then runs the hook `ready`. Adds labels and taints for the
    namespace, unless the hook `join` made the kubelet register with them."""

    def look() -> str:
        node = conversion.kube.read_node(conversion.node)
        if node is None:
            return "Kubernetes has no such Node yet"
        set_namespace(conversion, node, node.taints)
        return "" if node.is_ready else "the Node is not Ready"

    conversion.wait_until(look, conversion.settings.stage_timeout_seconds)
    conversion.run_hook("ready")
    return "the Node is Ready"


def _show_claim(run: DryRun) -> list[str]:
    settings, node, jobs = run
    name, reason = f"{settings.res_name}-{node}", drain_reason(settings, "<operation>")
    lines = [
        " ".join(reserve_command(name, node, flags=IGNORE_JOBS if jobs else "")),
        " ".join(drain_command(node, f"'{reason}'", {"comment": "<mark>"})),
    ]
    if jobs:
        verb = "scancel" if settings.preempt_mode == "cancel" else "scontrol requeue"
        lines.append(f"scancel --signal=TERM --full {jobs}; {verb} {jobs}")
    return lines


def _show_verify(run: DryRun) -> list[str]:
    wait = run.settings.verify_seconds.total_seconds()
    return [f"squeue -a -h -w {run.node}; again after {wait:g} s"]


def claiming(require: Callable[[NodeConversion], None] | None = None) -> tuple[Stage, Stage]:
    """Returns the stages claim and verify, which every converter program begins with."""
    return (
        Stage("claim", claim, require, _show_claim),
        Stage("verify", verify, shows=_show_verify),
    )


STAGES = (
    *claiming(),
    Stage("reach", reach, shows=lambda run: [run.hook("reach", f"ping -c1 -W1 -q {run.node}")]),
    Stage("prepare", prepare, require_claim, lambda run: [run.hook("prepare")]),
    Stage("join", join, require_claim, lambda run: [run.hook("join", REFUSED)]),
    Stage(
        "ready", ready, require_claim, lambda run: [f"the Node is Ready, then {run.hook('ready')}"]
    ),
)
