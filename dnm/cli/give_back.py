"""`dnm return`: lent nodes that a person wants out, once they are empty, or emptied by eviction.
Written into the registry with who and why; the next run does it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TypeVar

import msgspec

from dnm.cli.admin import change_told
from dnm.cli.by_hand import named_nodes
from dnm.cli.lend import RefusedError, lent_entry, with_node
from dnm.cli.output import shown, told_together
from dnm.cli.person import a_deed
from dnm.kube.client import KubeClient
from dnm.kube.errors import ApiRefused
from dnm.model.config import Config
from dnm.model.errors import KubeError
from dnm.model.eviction import PodOnNode
from dnm.model.printable import count_of
from dnm.model.registry import (
    ConversionRequest,
    Emptying,
    Half,
    Leaving,
    LentNode,
    Phase,
    Registry,
)
from dnm.run.registry import load_registry

E = TypeVar("E", LentNode, ConversionRequest)
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
    orders = {order.id for order in registry.orders}
    named = list(dict.fromkeys(word for word in words if word in orders))
    nodes = list(named_nodes(word for word in words if word not in orders))
    for name in nodes:
        if why := _why_not_returned(name, lent_entry(config, registry, name), registry):
            raise RefusedError(why)
    of_orders = [(name, entry) for name, entry in registry.nodes.items() if entry.order in named]
    left = {name: _why_not_returned(name, entry, registry) for name, entry in of_orders}
    nodes = list(dict.fromkeys([*nodes, *(name for name, why in left.items() if not why)]))
    emptying: Emptying | None = None
    answers: list[str] = []
    if evict is not None and nodes:
        if not evict.is_sure(_describe(config, nodes, evict)):
            return ["nothing was changed"]
        emptying = Emptying(since=datetime.now(UTC) + evict.grace)
    answers += [f"nothing more comes of {name}" for name in named]
    answers += filter(None, left.values())
    said: list[tuple[str, str]] = []
    since = emptying.since.isoformat(timespec="seconds") if emptying else ""
    for name in nodes:
        deed = a_deed("return", name, reason, evict_from=since)
        was = registry.nodes[name]
        if _is_said(was, emptying) or change_told(config, partial(_leaving, name, emptying), deed):
            said.append((name, _said(emptying)))
        else:
            said.append((name, "NODE has changed meanwhile, and is left: see `dnm status`"))
    answers += told_together(said)
    if registry.pause is not None and registry.pause.stops(Half.RETURNING, datetime.now(UTC)):
        answers.append("dnm is paused, and returns nothing before `dnm resume`")
    for name in named:  # last: a command that was interrupted still finds it
        ends = partial(_without_order, name, datetime.now(UTC))
        change_told(config, ends, a_deed("return", name, reason))
    return answers


def _is_said(entry: LentNode, emptying: Emptying | None) -> bool:
    """Whether a person has said the same before."""
    return entry.leaves is Leaving.BY_HAND and entry.emptying is emptying is None


def _said(emptying: Emptying | None) -> str:
    how = "goes back once its pods have ended"
    if emptying is not None:
        how = "goes back once its pods have gone, by eviction and never by force"
    return (
        f"NODE is fenced by the next run, and {how}; `dnm exclude NODE` keeps it from being lent "
        "again"
    )


def _why_not_returned(name: str, entry: LentNode, registry: Registry) -> str:
    """Empty: nothing speaks against it. One of an order that can't be returned keeps nobody from
    ending the order."""
    if name in registry.held:
        return f"{name} is held: `dnm unhold {name}` first"
    if entry.phase is Phase.FAILED:
        return f"{name} has failed: `dnm reset {name}` returns it; {entry.error}"
    if entry.phase is Phase.RETURNING:
        return f"{name} is on its way back already"
    return ""


def _without_order(name: str, now: datetime, registry: Registry) -> Registry:
    """What is on its way for it comes, and what could not be returned may mend: neither stays."""

    def ended(one: E) -> E:
        return msgspec.structs.replace(one, stays_until=now) if one.order == name else one

    return msgspec.structs.replace(
        registry,
        orders=tuple(one for one in registry.orders if one.id != name),
        requests=tuple(map(ended, registry.requests)),
        nodes={node: ended(entry) for node, entry in registry.nodes.items()},
    )


def _leaving(name: str, emptying: Emptying | None, registry: Registry) -> Registry:
    """It is asked for no more: its order, if it had one, shrinks by it."""
    entry = registry.nodes.get(name)
    if entry is None or entry.phase in (Phase.FAILED, Phase.RETURNING) or name in registry.held:
        return registry  # by now: who was asked saw something else
    gone = msgspec.structs.replace(
        entry, leaves=Leaving.BY_HAND, emptying=emptying, stays_until=None, order=""
    )
    orders = [
        msgspec.structs.replace(
            order,
            count=order.count - 1,
            nodes=tuple(node for node in order.nodes if node != name),
        )
        if order.id == entry.order
        else order
        for order in registry.orders
    ]
    left = tuple(order for order in orders if order.count > 0)
    return msgspec.structs.replace(with_node(registry, name, gone), orders=left)


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
    if node is not None and node.is_cordoned_by_another:
        raise RefusedError(
            f"{name} is cordoned by an administrator, so dnm does not fence it and evicts nobody: "
            f"`kubectl uncordon {name}` first, or `kubectl drain {name}`"
        )
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
