"""What a person says of nodes: lend, extend, adopt, hold, exclude, return. Each changes the
registry under the lock, with a line of history for each node; the next run acts on it."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from datetime import UTC, datetime, timedelta

import msgspec

from dnm.cli.by_hand.person import (
    RefusedError,
    attempt,
    carry_out,
    granted,
    new_operation,
    rehearse,
    said_by,
)
from dnm.cli.terminal.output import shown, told_together
from dnm.config.values import suggest
from dnm.converter.node_convert import NodeConvert
from dnm.kube.client import KubeClient
from dnm.kube.errors import NO_DRY_RUN, ApiRefused
from dnm.model.cluster import PodOnNode
from dnm.model.config import Config
from dnm.model.errors import ConverterError, KubeError, SlurmError
from dnm.model.hostlist import expand_hostlist, fold_hostlist
from dnm.model.lent import Emptying
from dnm.model.orders import Keeping, LendOrder, Way
from dnm.model.printable import count_of
from dnm.model.registry import Registry
from dnm.model.value import Unreadable
from dnm.run.registry import load_registry
from dnm.run.work import read_pods_to_evict
from dnm.verbs.lending import Wanted, orders_of, what_goes_back, why_not_emptied
from dnm.verbs.refusal import Refusal
from dnm.verbs.taking_in import why_not_adopted, why_not_in_kubernetes


def named_nodes(words: Iterable[str]) -> tuple[str, ...]:
    """Returns the nodes of names and host lists, each once. Raises RefusedError for a word that
    can't be read, or names none: a variable that is not set would keep nothing, and say so to
    nobody."""
    found: dict[str, None] = {}
    for word in words:
        try:
            names = expand_hostlist(word)
        except SlurmError as error:
            raise RefusedError(f"{error}; nothing is done") from error
        if not names:
            raise RefusedError(f"{word!r} names no node; write a name, or a host list: a[001-004]")
        found.update(dict.fromkeys(names))
    return tuple(found)


def orders_and_nodes(
    registry: Registry, words: Iterable[str]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Returns the orders, and the nodes, that the words name, each once."""
    known = {order.id: None for order in registry.orders}
    said = tuple(dict.fromkeys(words))
    return tuple(w for w in said if w in known), named_nodes(w for w in said if w not in known)


# --- lend, extend ----------------------------------------------------------------------------


def lend(config: Config, wanted: Wanted) -> list[str]:
    """Writes the orders down, one a node type; refuses what no run could ever do."""
    now = datetime.now(UTC)
    registry = load_registry(config, now)
    asked = new_operation("lend", reason=wanted.reason)
    wanted = msgspec.structs.replace(wanted, reason=asked.reason)
    orders = granted(orders_of(config, registry, wanted, said_by(asked), now))
    if wanted.nodes:
        _check_batch_nodes(config, wanted.nodes)
    for order in orders:
        operation = new_operation(
            "lend",
            order.id,
            order.reason,
            namespace=order.namespace,
            node_type=order.node_type,
            count=str(order.count),
            nodes=",".join(order.nodes),
            until=order.until.isoformat(timespec="seconds"),
            force="yes" if order.is_forced else "",
            account=order.account,
        )
        carry_out(config, operation, order=order)
    return [_answer(config, order, registry, now) for order in orders]


def _check_batch_nodes(config: Config, names: Iterable[str]) -> None:
    """Raises RefusedError for a name that no batch node has, if the batch nodes can be read."""
    listed = NodeConvert(config, os.environ).list_nodes()
    if isinstance(listed, Unreadable):
        return
    if unknown := [name for name in names if name not in listed.nodes]:
        raise RefusedError(
            f"{fold_hostlist(unknown)}: the batch side has no such node"
            f"{suggest(unknown[0], listed.nodes)}; `dnm nodes` shows those that it has"
        )


def _answer(config: Config, order: LendOrder, registry: Registry, now: datetime) -> str:
    nodes = f"{count_of(order.count, 'node')} of type {order.node_type}"
    what = fold_hostlist(order.nodes) or nodes
    when = "the next run asks for it"
    if registry.paused(now, Way.LENDING):
        when = "dnm is paused, and asks for it after `dnm resume`"
    until = shown(order.until, config.events_zone)
    return (
        f"{what} for {order.namespace} until {until}: {when}; `dnm return {order.id}` takes it back"
    )


def extend(config: Config, words: Sequence[str], until: datetime, reason: str = "") -> list[str]:
    """Keeps lent nodes until then, idle or not; of an order, all that came of it."""
    registry = load_registry(config, datetime.now(UTC))
    orders, nodes = orders_and_nodes(registry, words)
    rehearse(config, registry, "extend", *({"name": name, "until": until} for name in nodes))
    told, zone = until.isoformat(timespec="seconds"), config.events_zone
    was = {}
    for name in (*orders, *nodes):
        operation = new_operation("extend", name, reason, until=told)
        before = _end_of(carry_out(config, operation, name=name, until=until).before, name)
        was[name] = f" ({shown(before, zone)} before)" if before and until < before else ""
    end = shown(until, zone)
    of_orders = [
        f"{name} holds until {end}{was[name]}, with all that came of it" for name in orders
    ]
    each = told_together(
        (name, f"NODE stays until {end}{was[name]}, idle or not") for name in nodes
    )
    return [*of_orders, *each]


def _end_of(registry: Registry, name: str) -> datetime | None:
    """Until when an order holds or a node stays; None: it goes back when it is idle."""
    order = next((one for one in registry.orders if one.id == name), None)
    return order.until if order else registry.nodes[name].stays_until


# --- adopt -----------------------------------------------------------------------------------


def adopt(
    config: Config, environ: Mapping[str, str], name: str, namespace: str, reason: str = ""
) -> str:
    """Takes in a Node that came to Kubernetes by hand, once Kubernetes and Slurm were asked."""
    now = datetime.now(UTC)
    registry = load_registry(config, now)
    granted(why_not_adopted(config, registry, name, namespace, now))
    with closing(KubeClient.connect(config)) as kube:
        node = kube.read_node(name)
    granted(why_not_in_kubernetes(config, name, node))
    listed = NodeConvert(config, environ).list_nodes(name)
    if isinstance(listed, Unreadable):
        raise ConverterError(f"{listed.error}: whether Slurm has {name} in service is not known")
    operation = new_operation("adopt", name, reason, namespace=namespace)
    words = {"name": name, "namespace": namespace, "now": now, "node": node, "batch": listed.nodes}
    rehearse(config, registry, "adopt", words)
    carry_out(config, operation, **words)
    queue = config.namespaces[namespace].queue
    return (
        f"{name} is recorded for {namespace}: the next run marks it and counts it for {queue}; it "
        "goes back when it is idle"
    )


# --- hold, exclude, and their ends -----------------------------------------------------------


def hold(
    config: Config, words: Sequence[str], until: datetime | None = None, reason: str = ""
) -> list[str]:
    """Keeps nodes where they are: a lent one does not go back, any other is not lent."""
    answers = []
    for node, before in _keep(config, "hold", words, until, reason):
        end = _end(config, until, "dnm unhold NODE")
        was = "" if node not in before.held else ", as it was before"
        kept = "held" if node in before.nodes else "held: it is not lent"
        answers.append((node, f"NODE is {kept} until {end}{was}"))
    return told_together(answers)


def exclude(
    config: Config, words: Sequence[str], until: datetime | None = None, reason: str = ""
) -> list[str]:
    """Keeps nodes out of lending; one that is lent serves on, and is not lent again."""
    answers = []
    for node, before in _keep(config, "exclude", words, until, reason):
        text = f"NODE is not lent until {_end(config, until, 'dnm unexclude NODE')}"
        if node in before.nodes:
            text += "; it is lent now, and serves on until it is idle"
        elif any(node in (one.node, *one.names) for one in before.requests):
            text += "; it is on its way now, and goes back as soon as it is there and empty"
        answers.append((node, text))
    return told_together(answers)


def _keep(
    config: Config, verb: str, words: Sequence[str], until: datetime | None, reason: str
) -> list[tuple[str, Registry]]:
    """Each node, with the registry as it was before."""
    now, nodes = datetime.now(UTC), named_nodes(words)
    asked = new_operation(verb, reason=reason)
    keeping = Keeping(since=now, until=until, reason=asked.reason, who=said_by(asked))
    each = [{"node": node, "keeping": keeping} for node in nodes]
    rehearse(config, load_registry(config, now), verb, *each)
    before = []
    for node in nodes:
        operation = new_operation(verb, node, reason, until=until.isoformat() if until else "")
        before.append(carry_out(config, operation, node=node, keeping=keeping).before)
    return list(zip(nodes, before, strict=True))


def unhold(config: Config, words: Sequence[str], reason: str = "") -> list[str]:
    """Ends holds."""
    return told_together(
        (node, "NODE is not held any more" if was_held else "NODE was not held")
        for node, was_held in _end_all(config, "unhold", words, reason)
    )


def unexclude(config: Config, words: Sequence[str], reason: str = "") -> list[str]:
    """Lets nodes be lent again; what the configuration excludes stays so."""
    return told_together(
        (
            node,
            ("NODE is not excluded any more" if was_out else "NODE was not excluded")
            + (f"; {config.path} still names it" if node in config.exclude_nodes else ""),
        )
        for node, was_out in _end_all(config, "unexclude", words, reason)
    )


def _end_all(
    config: Config, verb: str, words: Sequence[str], reason: str
) -> list[tuple[str, bool]]:
    """Each node, and whether anything was to be ended."""
    return [
        (node, carry_out(config, new_operation(verb, node, reason), node=node).is_changed)
        for node in named_nodes(words)
    ]


def _end(config: Config, until: datetime | None, verb: str) -> str:
    return f"{shown(until, config.events_zone)}, or `{verb}`" if until else f"`{verb}`"


# --- return ----------------------------------------------------------------------------------


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
        said.append((name, _fenced(emptying, done.after)))
    answers += told_together(said)
    if registry.paused(datetime.now(UTC), Way.RETURNING):
        answers.append("dnm is paused, and returns nothing before `dnm resume`")
    for name in going.orders:
        attempt(config, new_operation("return", name, reason), name=name, now=datetime.now(UTC))
    return answers


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
