"""`dnm return`: lent nodes that a person wants out, once they are empty, or emptied by eviction.
Written into the registry with who and why; the next run does it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from datetime import UTC, datetime, timedelta

import msgspec

from dnm.cli.by_hand import orders_and_nodes
from dnm.cli.output import shown, told_together
from dnm.cli.person import RefusedError, attempt, granted, new_operation
from dnm.kube.client import KubeClient
from dnm.kube.errors import ApiRefused
from dnm.model.config import Config
from dnm.model.errors import KubeError
from dnm.model.eviction import PodOnNode
from dnm.model.lent import Emptying
from dnm.model.orders import Way
from dnm.model.printable import count_of
from dnm.run.registry import load_registry
from dnm.verbs.lending import what_goes_back, why_not_emptied
from dnm.verbs.refusal import Refusal

_NO_DRY_RUN = "does not support dry run"  # of a webhook that declares side effects


class Evict(msgspec.Struct, frozen=True):
    """That pods are asked to go, after they have had `grace` to end by themselves. `is_sure`: shows
    a person who they are, and asks."""

    grace: timedelta
    is_sure: Callable[[str], bool]


def give_back(
    config: Config, words: Sequence[str], reason: str = "", evict: Evict | None = None
) -> list[str]:
    """Fences lent nodes from the next run on, to go back when they are empty; of an order, all that
    came of it, and nothing more comes of it. Without `evict` their pods run on."""
    registry = load_registry(config, datetime.now(UTC))
    going = granted(what_goes_back(config, registry, *orders_and_nodes(registry, words)))
    emptying: Emptying | None = None
    if evict is not None and going.nodes:
        if not evict.is_sure(_describe(config, going.nodes, evict)):
            return ["nothing was changed"]
        emptying = Emptying(since=datetime.now(UTC) + evict.grace)
    answers = [f"nothing more comes of {name}" for name in going.orders]
    answers += [refusal.sentence for refusal in going.left]
    since = emptying.since.isoformat(timespec="seconds") if emptying else ""
    said: list[tuple[str, str]] = []
    for name in going.nodes:
        operation = new_operation("return", name, reason, evict_from=since)
        done = attempt(config, operation, name=name, now=datetime.now(UTC), emptying=emptying)
        said.append((name, _said(emptying, done.after)))
    answers += told_together(said)
    if registry.paused(datetime.now(UTC), Way.RETURNING):
        answers.append("dnm is paused, and returns nothing before `dnm resume`")
    for name in going.orders:
        attempt(config, new_operation("return", name, reason), name=name, now=datetime.now(UTC))
    return answers


def _said(emptying: Emptying | None, after: object) -> str:
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


def make_sure(is_told: bool) -> Callable[[str], bool]:
    """Returns what shows the pods to the person and asks, unless he has said `--yes`. Without a
    terminal nobody can be asked: it raises RefusedError, with what would have been shown."""

    def is_sure(text: str) -> bool:
        if not (is_told or sys.stdin.isatty()):
            raise RefusedError(
                f"{text}\n--evict asks before, and there is no terminal here: add --yes if these "
                "pods may go"
            )
        print(text, file=sys.stderr)  # stdout is for what was done
        if is_told:
            return True
        from typer import confirm

        return confirm("Go on?", err=True)

    return is_sure


def _describe(config: Config, nodes: Sequence[str], evict: Evict) -> str:
    """All pods that are asked to go, and what is known of each before."""
    when = "by the next run"
    if evict.grace:
        when = f"from {shown(datetime.now(UTC) + evict.grace, config.events_zone)} on"
    with closing(KubeClient.connect(config)) as kube:
        return "\n".join(line for name in nodes for line in _of_node(kube, name, when))


def _of_node(kube: KubeClient, name: str, when: str) -> Iterator[str]:
    node = kube.read_node(name)
    granted(why_not_emptied(name, node))
    pods = [pod for pod in kube.read_pods_to_evict(name) if pod.is_work]
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
    said += [f"not now: {why}"] if why and _NO_DRY_RUN not in why else []
    return f": {'; '.join(said)}" if said else ""
