"""`dnm return`: lent nodes are fenced, and return to Slurm once their pods are gone."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import closing
from datetime import UTC, datetime, timedelta
from typing import Annotated

import typer

from dnm.cli.act.run import answer_and_run
from dnm.cli.terminal.deadline import parse_duration
from dnm.cli.terminal.node_words import orders_and_nodes
from dnm.cli.terminal.operation import (
    RefusedError,
    attempt,
    granted,
    is_sure,
    new_operation,
)
from dnm.cli.terminal.options import (
    ConfigOption,
    NamesOption,
    NodesOrOrders,
    NowOption,
    ReasonOption,
)
from dnm.cli.terminal.output import shown, told_together
from dnm.kube.client import KubeClient
from dnm.kube.errors import NO_DRY_RUN, ApiRefused
from dnm.model.cluster import PodOnNode
from dnm.model.config import Config
from dnm.model.errors import KubeError
from dnm.model.lent import Emptying
from dnm.model.orders import Way
from dnm.model.printable import count_of
from dnm.run.registry import load_registry
from dnm.verbs import lending
from dnm.verbs.lending import what_goes_back, why_not_emptied
from dnm.verbs.refusal import Refusal


def return_(
    config: ConfigOption,
    nodes: NodesOrOrders,
    output: NamesOption = "text",
    evicts: Annotated[
        bool, typer.Option("--evict", help="Ask their pods to go, within disruption budgets.")
    ] = False,
    grace: Annotated[
        str, typer.Option("--grace", help="With --evict: pods are asked after that: 10m, 2h.")
    ] = "",
    yes: Annotated[bool, typer.Option("--yes", help="With --evict: do not ask.")] = False,
    reason: ReasonOption = "",
    is_now: NowOption = False,
) -> list[str]:
    """Fence lent nodes; each goes back once its pods have ended, or were evicted."""
    if grace and not evicts:
        raise typer.BadParameter("it is for --evict; without, pods run on", param_hint="--grace")
    length = parse_duration(
        grace or "0m", "--grace", timedelta(days=7), "10m or 2h, a week at most"
    )
    registry = load_registry(config, datetime.now(UTC))
    going = granted(what_goes_back(config, registry, *orders_and_nodes(registry, nodes)))
    emptying: Emptying | None = None
    if evicts and going.nodes:
        if not _may_evict(_describe(config, going.nodes, length), yes):
            return ["nothing was changed"]
        emptying = Emptying(since=datetime.now(UTC) + length)
    answers = [f"nothing more comes of {name}" for name in going.orders]
    answers += [refusal.sentence for refusal in going.left]
    since = emptying.since.isoformat(timespec="seconds") if emptying else ""
    said: list[tuple[str, str]] = []
    for name in going.nodes:
        operation = new_operation("return", name, reason, evict_from=since)
        words = {"name": name, "now": datetime.now(UTC), "emptying": emptying}
        said.append(
            (name, _fenced(emptying, attempt(config, operation, lending.give_back, **words).after))
        )
    answers += told_together(said)
    if registry.paused(datetime.now(UTC), Way.RETURNING):
        answers.append("dnm is paused, and returns nothing before `dnm resume`")
    for name in going.orders:
        operation = new_operation("return", name, reason)
        attempt(config, operation, lending.give_back, name=name, now=datetime.now(UTC))
    return answer_and_run(config, answers, output) if is_now else answers


def _fenced(emptying: Emptying | None, after: object) -> str:
    if isinstance(after, Refusal):
        return "NODE has changed meanwhile, and is left: see `dnm status`"
    how = "goes back once its pods have ended"
    if emptying is not None:
        how = "goes back once its pods have gone, by eviction and never by force"
    return (
        f"NODE is fenced by the next run, and {how}; `dnm exclude NODE` keeps it from being lent "
        "again"
    )


# --- who is asked to go ----------------------------------------------------------------------


def _may_evict(text: str, is_told: bool) -> bool:
    """Shows the pods to the administrator and asks. Raises RefusedError if no terminal can be
    asked."""
    if not (is_told or sys.stdin.isatty()):
        raise RefusedError(
            f"{text}\n--evict asks before, and there is no terminal here: add --yes if these "
            "pods may go"
        )
    print(text, file=sys.stderr)  # stdout is for what was done
    return is_sure("Go on?", is_told)


def _describe(config: Config, nodes: Sequence[str], grace: timedelta) -> str:
    """All pods that are asked to go, and what is known of each before."""
    when = "by the next run"
    if grace:
        when = f"from {shown(datetime.now(UTC) + grace, config.events_zone)} on"
    with closing(KubeClient.connect(config)) as kube:
        return "\n".join(line for name in nodes for line in _of_node(kube, name, when))


def _of_node(kube: KubeClient, name: str, when: str) -> Iterator[str]:
    node = kube.read_node(name)
    granted(why_not_emptied(name, node))
    from dnm.run.step import read_pods_to_evict  # the planner, which the help does not need

    listed = read_pods_to_evict(kube, node) if node is not None else ()
    pods = [pod for pod in listed if pod.is_work]
    going = [pod for pod in pods if not pod.stays]
    yield (
        f"{name}: {count_of(len(going), 'pod')} and what starts there until it is fenced: asked to "
        f"go {when}"
    )
    yield from (f"  {pod.key}{_known_of(kube, pod)}" for pod in going)
    yield from (f"  {pod.key}: of a NodeSet, is never evicted" for pod in pods if pod.stays)


def _known_of(kube: KubeClient, pod: PodOnNode) -> str:
    """What it would lose, and what the server says of an eviction now. Raises KubeError where dnm
    has no right to evict."""
    if pod.is_terminating:
        return ": is going already"
    try:
        why = kube.evict(pod, is_dry_run=True)
    except ApiRefused as error:
        if error.status in (401, 403):
            raise
        why = str(error)
    except KubeError as error:
        why = str(error)
    said = [pod.loss] if pod.loss else []
    said += [f"not now: {why}"] if why and NO_DRY_RUN not in why else []
    return f": {'; '.join(said)}" if said else ""
