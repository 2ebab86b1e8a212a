"""`dnm convert-test`: lends and returns a node that is out of service, in several rounds. At the
end of each round the site's hook `leftovers` checks what the lend has left on the node.

A thing that the hook does not report is unknown, which never means that nothing is left. Each round
has one journal. Wherever a round stops, the drain from before the test is restored."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import timedelta

from dnm.converters import to_batch, to_k8s
from dnm.converters.claimed import carry_over, judge_all
from dnm.converters.conversion import NodeConversion, Program, Stage, StopRequest, check_hooks
from dnm.converters.hooks import check_kubelets
from dnm.converters.journal import PREVIOUS_DRAIN, Direction, JournalStore, NodeResult
from dnm.converters.listing import connect_slurm
from dnm.converters.marks import foreign_reason
from dnm.converters.pool import BUSY, ConversionPool
from dnm.converters.settings import Settings
from dnm.model.errors import ConverterError
from dnm.model.value import Value

HOOK = "leftovers"
_TIMEOUT = timedelta(minutes=1)
_MOST_LINES = 500
# Things that must not be left over, each with the hook that clears it. Files survive power cycles.
THINGS = {
    "cpu_manager_state": "clear",
    "memory_manager_state": "clear",
    "cni_state": "clear",
    "cni_interfaces": "reset",
    "packet_rules": "reset",
    "mounts": "reset",
    "cgroups": "reset",
    "mig": "clear",
    "containers": "clear",
    "certificates": "clear",
}
Reports = Mapping[str, frozenset[tuple[str, str]]]  # thing -> the hook's reports (keyword, text)


class Rest(Value, frozen=True):
    """Something that a lend left on a node, and the `hook` that should have removed it. An empty
    `hook`: nobody knows whether it is there."""

    thing: str
    text: str
    hook: str = ""


class Round(Value, frozen=True):
    result: NodeResult
    rests: tuple[Rest, ...]


def parse_reports(lines: Iterable[str]) -> Reports:
    """Parses the output of the hook `leftovers`. Skips other lines, e.g. a banner of ssh."""
    reports: dict[str, frozenset[tuple[str, str]]] = {}
    for line in lines:
        thing, word, text = (*line.split(None, 2), "", "", "")[:3]
        if word in ("none", "left", "now", "unknown"):
            reports[thing] = reports.get(thing, frozenset()) | {(word, text.strip())}
    return reports


def judge_rests(before: Reports, after: Reports) -> Iterator[Rest]:
    """Yields the things that are left, unknown, or reported differently than before the lend."""
    for thing, hook in {**dict.fromkeys(sorted(after), "clear"), **THINGS}.items():
        of_thing = after.get(thing, frozenset())
        if not of_thing:
            yield Rest(thing=thing, text=f"the hook {HOOK} does not report it")
        for word, text in sorted(of_thing):
            if word == "left":
                yield Rest(thing=thing, text=text, hook=hook)
            elif word == "unknown":
                yield Rest(thing=thing, text=text or "the hook can't determine it")
        now, was = (
            "; ".join(sorted(text for word, text in entry.get(thing, ()) if word == "now"))
            for entry in (after, before)
        )
        if now != was:
            yield Rest(thing=thing, text=f"{now or 'nothing'}, was {was or 'nothing'}", hook=hook)


class _Checks:
    """The stages that `dnm convert-test` adds, and the reports of the site's hook `leftovers`."""

    def __init__(self) -> None:
        self.before: Reports = {}
        self.rests: tuple[Rest, ...] = ()

    @property
    def program(self) -> Program:
        """Returns the stages of a test: lend and return, each with a check of what is left over."""
        *claiming, prepare, join, ready = to_k8s.STAGES
        *returning, finish_return = to_batch.STAGES
        look, cordon = Stage("look", self.look), Stage("cordon", _cordon)
        return dataclasses.replace(
            to_batch.PROGRAM,
            lending=(*claiming, look, prepare, join, cordon, ready),
            returning=(*returning, Stage(HOOK, self.look_again), finish_return),
        )

    def look(self, conversion: NodeConversion) -> str:
        """Runs hook `leftovers` before any change. If it fails, the node is given back as it is."""
        self.before = self.before or _ask(conversion)
        return f"{len(list(judge_rests(self.before, self.before)))} left over or unknown before"

    def look_again(self, conversion: NodeConversion) -> str:
        """Runs the hook `leftovers` at the end. The node is returned whatever the hook reports."""
        try:
            self.rests = tuple(judge_rests(self.before, _ask(conversion)))
        except ConverterError as error:
            self.rests = tuple(Rest(thing=thing, text=str(error)) for thing in THINGS)
        return f"{sum(bool(rest.hook) for rest in self.rests)} left over"


def _ask(conversion: NodeConversion) -> Reports:
    """Runs hook `leftovers`. Raises ConverterError if it is missing, fails, or prints too much."""
    lines: list[str] = []

    def add_line(line: str) -> None:
        if len(lines) <= _MOST_LINES:
            lines.append(line)

    conversion.run_hook(HOOK, is_required=True, timeout=_TIMEOUT, on_line=add_line)
    if len(lines) > _MOST_LINES:
        raise ConverterError(f"the hook {HOOK} printed more than {_MOST_LINES} lines")
    return parse_reports(lines)


def _cordon(conversion: NodeConversion) -> str:
    """Cordons the Node, so that no ordinary pod starts on a node that is about to be returned."""

    def look() -> str:
        if conversion.kube.read_node(conversion.node) is None:
            return "Kubernetes has no such Node yet"
        conversion.kube.set_cordon(conversion.node, True)
        return ""

    conversion.wait_until(look, conversion.settings.stage_timeout_seconds)
    return ""


def drain_of(settings: Settings, node: str, log: Callable[[str], None]) -> str:
    """Returns the Reason of the drain that keeps a node out of service. Raises ConverterError if
    the node can't be tested: it has work, is in service, lent or claimed, or is faulty."""
    _, judged, (claims, _) = judge_all(settings, None, log)
    current = next((item for item in judged if item.node.name == node), None)
    if current is None:
        raise ConverterError(f"Slurm knows no node {node}")
    if claims is None:
        raise ConverterError(f"whether {node} is lent can't be read: nothing is done to it")
    if claim := claims.get(node):
        owner = f"by '{claim.instance}'" if claim.instance else "by an unknown instance"
        raise ConverterError(
            f"{node} is lent or claimed {owner}: nothing is done to it; "
            f"'node-convert --set batch --node-name {node}' returns it"
        )
    if refusal := foreign_reason(settings.machines, current.node):
        raise ConverterError(f"{node}: {refusal}")
    state, reason = current.node.state, current.node.reason
    if current.in_service is not False:
        raise ConverterError(
            f"{node} is in Slurm's service ({state.text}, {len(current.jobs)} job(s)): only a node "
            f"out of service is tested: 'scontrol update nodename={node} state=drain "
            "reason=convert-test', and repeat when no job is left on it"
        )
    # After a boot it is DOWN until it is resumed, and so never in service in between.
    if state.base not in ("IDLE", "DOWN") or state.flags != {"DRAIN"} or not reason:
        raise ConverterError(
            f"{node} is {state.text} {reason}".rstrip() + ": only a node that is drained with a "
            "reason, answers, and is in no reservation is tested"
        )
    return reason


def play_rounds(
    settings: Settings, node: str, namespace: str, rounds: int, log: Callable[[str], None]
) -> Iterator[Round]:
    """Yields the result of each round. Ends after a failure or a signal. Raises DnmError before any
    change if the node can't be tested."""
    control = StopRequest()
    control.listen()
    connect_slurm(settings).check_changes()
    for hooks in (to_k8s.HOOKS, to_batch.HOOKS, (HOOK,)):
        check_hooks(settings, *hooks)
    check_kubelets(settings, settings.type_of(node))
    drain_of(settings, node, log)
    checks = _Checks()
    store = JournalStore(settings.state_dir)
    pool = ConversionPool(settings, checks.program, store, control, log, lambda result: None)
    with store.lock(node) as is_locked:
        if not is_locked:
            raise ConverterError(f"{node}: {BUSY}")
        for _ in range(rounds):
            checks.rests = ()
            facts = {**carry_over(store.load(node)), PREVIOUS_DRAIN: drain_of(settings, node, log)}
            result = pool.carry_on(pool.new_journal(node, Direction.K8S, facts, namespace))
            yield Round(result=result, rests=checks.rests)
            if result.result != "ok" or control.stop.is_set():
                return
