"""`dnm return`, which fences lent nodes; dnm returns each to Slurm when no pod is left on it."""

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
from dnm.cli.terminal.output import merge_sentences, shown
from dnm.kube.client import KubeClient
from dnm.kube.errors import ApiRefused
from dnm.kube.eviction import refuses_dry_run
from dnm.model.cluster import PodOnNode
from dnm.model.config import Config
from dnm.model.departure import Eviction
from dnm.model.errors import KubeError
from dnm.model.orders import Way
from dnm.model.printable import count_of
from dnm.run.registry import load_registry
from dnm.verbs import lending
from dnm.verbs.lending import nodes_to_return, refuse_eviction
from dnm.verbs.refusal import Refusal


def return_(
    config: ConfigOption,
    nodes: NodesOrOrders,
    output: NamesOption = "text",
    evicts: Annotated[
        bool, typer.Option("--evict", help="Evict their pods, as PodDisruptionBudgets allow.")
    ] = False,
    grace: Annotated[
        str, typer.Option("--grace", help="Let pods run for this time before --evict: 10m, 2h.")
    ] = "",
    yes: Annotated[
        bool, typer.Option("--yes", help="Do not ask for confirmation of --evict.")
    ] = False,
    reason: ReasonOption = "",
    is_now: NowOption = False,
) -> list[str]:
    """Cordon lent nodes, and return each when its pods have ended or are evicted."""
    if grace and not evicts:
        raise typer.BadParameter("it needs --evict", param_hint="--grace")
    length = parse_duration(
        grace or "0m", "--grace", timedelta(days=7), "10m or 2h, at most a week"
    )
    registry = load_registry(config, datetime.now(UTC))
    going = granted(nodes_to_return(config, registry, *orders_and_nodes(registry, nodes)))
    eviction: Eviction | None = None
    if evicts and going.nodes:
        if not _may_evict(_describe(config, going.nodes, length), yes):
            return ["nothing was changed"]
        eviction = Eviction(since=datetime.now(UTC) + length)
    answers = [f"{name} is ended: dnm lends no more nodes for it" for name in going.orders]
    answers += [refusal.sentence for refusal in going.left]
    since = eviction.since.isoformat(timespec="seconds") if eviction else ""
    sentences: list[tuple[str, str]] = []
    for name in going.nodes:
        operation = new_operation("return", name, reason, evict_from=since)
        words = {"name": name, "now": datetime.now(UTC), "eviction": eviction}
        after = attempt(config, operation, lending.return_nodes, **words).after
        sentences.append((name, _fenced(eviction, after)))
    answers += merge_sentences(sentences)
    if registry.paused(datetime.now(UTC), Way.RETURNING):
        answers.append("dnm is paused, and returns no node before `dnm resume`")
    for name in going.orders:
        operation = new_operation("return", name, reason)
        attempt(config, operation, lending.return_nodes, name=name, now=datetime.now(UTC))
    return answer_and_run(config, answers, output) if is_now else answers


def _fenced(eviction: Eviction | None, after: object) -> str:
    if isinstance(after, Refusal):
        return "NODE was not changed, because its state is a different one now: see `dnm status`"
    when = "when its pods have ended"
    if eviction is not None:
        when = "when its pods were evicted, never by force"
    return (
        f"NODE is fenced by the next run, and returned {when}; `dnm exclude NODE` keeps it from "
        "being lent again"
    )


# --- eviction --------------------------------------------------------------------------------


def _may_evict(text: str, is_confirmed: bool) -> bool:
    """Shows which pods would be evicted and returns whether the administrator agrees. Raises
    RefusedError without a terminal or `--yes`."""
    if not (is_confirmed or sys.stdin.isatty()):
        raise RefusedError(
            f"{text}\n--evict needs a confirmation, and there is no terminal: add --yes if dnm may "
            "evict these pods"
        )
    print(text, file=sys.stderr)  # stdout is for the changes that were made
    return is_sure("Evict them?", is_confirmed)


def _describe(config: Config, nodes: Sequence[str], grace: timedelta) -> str:
    """Returns a text with the pods that would be evicted, and the data that each would lose."""
    when = "by the next run"
    if grace:
        when = f"from {shown(datetime.now(UTC) + grace, config.events_zone)} on"
    with closing(KubeClient.connect(config)) as kube:
        return "\n".join(line for name in nodes for line in _node_lines(kube, name, when))


def _node_lines(kube: KubeClient, name: str, when: str) -> Iterator[str]:
    node = kube.read_node(name)
    granted(refuse_eviction(name, node))
    from dnm.run.step import read_pods_to_evict  # the planner, which the help does not need

    listed = read_pods_to_evict(kube, node) if node is not None else ()
    pods = [pod for pod in listed if pod.is_work]
    going = [pod for pod in pods if not pod.stays]
    yield (
        f"{name}: {count_of(len(going), 'pod')}, and pods that start there before it is fenced: "
        f"evicted {when}"
    )
    yield from (f"  {pod.key}{_eviction_notes(kube, pod)}" for pod in going)
    yield from (f"  {pod.key}: of a NodeSet, is never evicted" for pod in pods if pod.stays)


def _eviction_notes(kube: KubeClient, pod: PodOnNode) -> str:
    """Returns a text to follow a pod's name: the data that the pod would lose, and the server's
    answer to a dry run of its eviction. Raises KubeError if dnm may not evict pods."""
    if pod.is_terminating:
        return ": is terminating already"
    try:
        obstacle = kube.evict(pod, is_dry_run=True)
    except ApiRefused as error:
        if error.status in (401, 403):
            raise
        obstacle = "" if refuses_dry_run(error) else str(error)
    except KubeError as error:
        obstacle = str(error)
    notes = [pod.loss] if pod.loss else []
    notes += [f"not now: {obstacle}"] if obstacle else []
    return f": {'; '.join(notes)}" if notes else ""
