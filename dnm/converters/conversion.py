"""One conversion of one node: what its stages share, and how they are run.

A stage is written into the journal before and after. Its precondition is looked up anew each time,
never believed from an earlier look. A stage that has begun and not ended is run again: every one
first looks what is there already. SIGTERM ends a conversion between two looks, with its journal
open; nothing is rolled back then.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property
from typing import NamedTuple, TypeVar

from dnm.converters.claimed import Judge, what_to_do
from dnm.converters.hooks import HookCall, find_hook, hook_environment, kubelet_facts, outlive
from dnm.converters.journal import Book, Journal, StageMark
from dnm.converters.kube_side import KubeSide
from dnm.converters.listing import Slurm, connect_slurm
from dnm.converters.settings import Settings
from dnm.converters.slurm.commands import SlurmOutcomeUnknown, SlurmRefused
from dnm.converters.slurm.text import SlurmJob, SlurmNode
from dnm.host.fault_points import fault_point
from dnm.kube.errors import repeat_on_conflict
from dnm.model.blackout import Secrets, secrets_by_name
from dnm.model.errors import ConverterError, DnmError, KubeError, SlurmError

Found = TypeVar("Found")
SLURM_PATIENCE = timedelta(minutes=2)  # a restart of slurmctld


class Interrupted(Exception):
    """The program was told to stop: no failure, and the journal stays open for a repetition."""


class NotClaimed(ConverterError):
    """Somebody else has the node, or a job got in; it is given back as far as it was taken."""


class StopRequest:
    """What SIGTERM and SIGINT ask: the first lets a hook end its work, the second ends it too."""

    def __init__(self) -> None:
        self.stop = threading.Event()
        self.hurry = threading.Event()

    def listen(self) -> None:
        """Both signals ask for it from now on."""
        for sent in (signal.SIGTERM, signal.SIGINT):
            signal.signal(sent, lambda *_: self.ask())

    def ask(self) -> None:
        (self.hurry if self.stop.is_set() else self.stop).set()


class DryRun(NamedTuple):
    """Whose stages are shown and not run; `jobs` would be preempted for it."""

    settings: Settings
    node: str
    jobs: str = ""

    def hook(self, name: str, otherwise: str = "") -> str:
        """Returns how it is called, else what is done without it."""
        path = find_hook(self.settings, name)
        return f"{path} {self.node}" if path else otherwise or f"(no hook {name})"


@dataclass(frozen=True)
class Stage:
    """`act` does the work within the stage's time-out, raises DnmError where it can't, and returns
    a note for the journal. `require`, the precondition, raises before the stage counts as begun.
    `shows`: the commands and actions of it, in a dry run; in a text `{node}` is the node."""

    name: str
    act: Callable[[NodeConversion], str]
    require: Callable[[NodeConversion], None] | None = None
    shows: str | Callable[[DryRun], Sequence[str]] = ""

    def lines(self, run: DryRun) -> list[str]:
        """Returns what a dry run prints of it."""
        if isinstance(self.shows, str):
            return self.shows.format(node=run.node).splitlines()
        return list(self.shows(run))


@dataclass(frozen=True)
class Program:
    """What one program of the contract does with its machines, and which nodes it moves; choosing,
    claiming, journals, locks, hooks and results are the same for all of them. `lending` and
    `returning` are its stages; from `touches` on, a stage of `lending`, only all of `returning`
    brings a node back. `check` raises `to_batch.AlreadyBack` where nothing has to be done."""

    lending: tuple[Stage, ...]
    touches: str
    check: Stage
    returning: tuple[Stage, ...]
    judge: Judge | None = None
    check_settings: Callable[[Settings], object] = lambda _: None  # before anything is claimed
    # Else all stages of a return run again in each call: of those that look what is there, each
    # costs a request where nothing is to be done.
    forget_what_is_undone: Callable[[NodeConversion], None] | None = None

    @property
    def claiming(self) -> tuple[Stage, ...]:
        """The stages before anything of the node itself is touched."""
        return self.lending[: [stage.name for stage in self.lending].index(self.touches)]

    def has_touched(self, journal: Journal) -> bool:
        """Whether a conversion got so far that lifting the drain does not bring the node back."""
        return journal.has_begun(self.touches)


@dataclass(frozen=True)
class Sides:
    """How the two sides are reached; nothing is asked of them yet."""

    slurm: Callable[[Settings], Slurm] = connect_slurm
    kube: Callable[[Settings], KubeSide] = KubeSide


BY_SETTINGS = Sides()


@dataclass(eq=False)
class NodeConversion:
    """A node under way. Not for several threads; each has its own connections."""

    settings: Settings
    book: Book
    control: StopRequest
    say: Callable[[str], None]
    sides: Sides

    @cached_property
    def slurm(self) -> Slurm:
        return self.sides.slurm(self.settings)

    @cached_property
    def kube(self) -> KubeSide:
        return self.sides.kube(self.settings)

    @property
    def node(self) -> str:
        return self.book.journal.node

    @property
    def journal(self) -> Journal:
        return self.book.journal

    @property
    def reservation(self) -> str:
        """The name of ours for this node."""
        return f"{self.settings.res_name}-{self.node}"

    def wait(self, duration: timedelta) -> None:
        """Raises Interrupted as soon as the program is told to stop."""
        self.control.stop.wait(duration.total_seconds())
        self.check_control()

    def check_control(self) -> None:
        if self.control.stop.is_set():
            raise Interrupted(
                f"{self.node}: stopped on demand: the next run of dnm takes it up, or {self.todo}"
            )

    @property
    def todo(self) -> str:
        """What a person may do about it where it stops."""
        way, program = self.journal.way.value, self.settings.machines.value
        return what_to_do(self.node, way, self.journal.namespace, program)

    def patiently(self, ask: Callable[[], Found]) -> Found:
        """Asks Slurm until it answers, for as long as a restart of slurmctld may take. What Slurm
        refuses is an answer. Raises SlurmError."""
        deadline = time.monotonic() + SLURM_PATIENCE.total_seconds()
        last = ""
        while True:
            try:
                return ask()
            except SlurmRefused:
                raise
            except SlurmError as error:
                if time.monotonic() > deadline:
                    raise
                if str(error) != last:
                    last = str(error)
                    self.say(f"waits for Slurm: {last}")
                self.wait(self.settings.poll_seconds)

    def read_node(self) -> SlurmNode:
        """Returns the node as Slurm has it, once Slurm knows its state: a slurmctld that was just
        started knows none for some seconds. Raises SlurmError."""

        def ask() -> SlurmNode:
            node = self.slurm.read_node(self.node)
            if node.state.base == "UNKNOWN":
                raise SlurmError(f"Slurm does not know the state of {self.node} yet")
            return node

        return self.patiently(ask)

    def read_jobs(self) -> tuple[SlurmJob, ...]:
        """Returns the jobs on the node. Raises SlurmError."""
        return self.patiently(lambda: self.slurm.read_jobs_on(self.node))

    def change_slurm(self, change: Callable[[], None], is_so: Callable[[], object]) -> None:
        """Makes a change unless it is so already, and reads the outcome back: a refusal and a lost
        answer count for nothing where the wanted state is there. Raises SlurmError when it does
        not come about within the patience."""
        deadline = time.monotonic() + SLURM_PATIENCE.total_seconds()
        while not self.patiently(is_so):
            refused: SlurmError | None = None
            try:
                change()
            except SlurmRefused as error:
                refused = error
            except SlurmOutcomeUnknown as error:
                self.say(f"outcome unknown, looks what is there: {error}")
            if self.patiently(is_so):
                return
            if refused is not None:
                raise refused
            if time.monotonic() > deadline:
                raise SlurmError(f"Slurm has not carried out a change of {self.node} in time")
            self.wait(self.settings.poll_seconds)

    def wait_until(
        self,
        look: Callable[[], str],
        timeout: timedelta,
        errors: tuple[type[Exception], ...] = (KubeError, SlurmError),
    ) -> None:
        """Waits until `look` returns "" instead of what is missing, also while it raises `errors`.
        Raises ConverterError with what was missing last; NotClaimed where that was one."""
        deadline = time.monotonic() + timeout.total_seconds()
        last = ""
        while True:
            kind = ConverterError
            try:
                missing = look()
            except errors as error:
                missing = str(error)
                kind = NotClaimed if isinstance(error, NotClaimed) else ConverterError
            if not missing:
                return
            if time.monotonic() > deadline:
                raise kind(f"after {timeout.total_seconds():g} s: {missing}")
            if missing != last:
                self.say(f"waits: {missing}")
                last = missing
            self.wait(self.settings.poll_seconds)

    def change_node(self, attempt: Callable[[], Found]) -> Found:
        """Repeats an attempt that reads the Node and changes it, within the stage's time-out, while
        another client writes the Node in between. Raises KubeConflict after that."""
        return repeat_on_conflict(attempt, self.settings.stage_timeout_seconds, self.wait)

    def run_hook(
        self,
        name: str,
        is_required: bool = False,
        timeout: timedelta | None = None,
        hear: Callable[[str], None] | None = None,
    ) -> bool:
        """Runs a hook; returns whether the site has it. One that an earlier call left running is
        waited for first. `hear` gets its lines, else who is told of the conversion. Raises
        HookFailed, or ConverterError where a hook that is required is missing."""
        path = find_hook(self.settings, name, is_required)
        if path is None:
            return False
        timeout = timeout or self.settings.stage_timeout_seconds
        if self.journal.hook is not None:
            outlive(self.journal.hook, timeout, self.say)
        facts = hook_facts(self.settings, self.journal, name)
        facts |= kubelet_facts(self.settings, self.journal, name)
        environment = hook_environment(self.settings, facts, os.environ)
        passed = (os.environ.get(variable, "") for variable in self.settings.pass_environment)
        secrets = Secrets([*passed, *secrets_by_name(os.environ)])
        call = HookCall([str(path), self.node], environment, secrets, hear or self.say)
        self.book.change(hook=call.process)
        call.let_go()
        call.wait(timeout, self.control.hurry.is_set)
        return True


def check_hooks(settings: Settings, required: str, *others: str) -> None:
    """Looks for hooks before anything is touched. Raises ConverterError where the one that is
    required is missing, and for one that is unusable."""
    find_hook(settings, required, is_required=True)
    for name in others:
        find_hook(settings, name)


def hook_facts(settings: Settings, journal: Journal, name: str) -> dict[str, str]:
    """What a hook is told of the conversion."""
    labels = settings.labels(journal.node_type, journal.namespace)
    taints = settings.taints(journal.node_type, journal.namespace)
    return {
        "DNM_HOOK": name,
        "DNM_NODE": journal.node,
        "DNM_NODE_TYPE": journal.node_type,
        "DNM_DIRECTION": journal.direction.value,
        "DNM_OPERATION": journal.operation,
        "DNM_NAMESPACE": journal.namespace,
        "NAMESPACE": journal.namespace,
        "DNM_LABELS": ",".join(f"{key}={value}" for key, value in labels.items()),
        "DNM_TAINTS": ",".join(
            f"{taint.key}={taint.value}:{taint.effect}".replace("=:", ":") for taint in taints
        ),
    }


def run_stages(conversion: NodeConversion, stages: Sequence[Stage]) -> None:
    """Runs the stages that are not done yet, in order."""
    for stage in stages:
        if not conversion.journal.is_done(stage.name):
            conversion.check_control()
            run_stage(conversion, stage)


def run_stage(conversion: NodeConversion, stage: Stage) -> str:
    """Returns its note; also where the command is to stop. A DnmError is in the journal already."""
    try:
        if stage.require is not None:
            stage.require(conversion)
        conversion.book.write(stage.name, StageMark.BEGUN)
        conversion.say(f"{stage.name}: begins")
        with fault_point(f"convert.{stage.name}"):
            note = stage.act(conversion)
    except DnmError as error:
        conversion.book.write(stage.name, StageMark.FAILED, str(error))
        raise
    except OSError as error:
        conversion.book.write(stage.name, StageMark.FAILED, str(error))
        raise ConverterError(f"the machine fails the converter: {error}") from error
    conversion.book.write(stage.name, StageMark.DONE, note)
    conversion.say(f"{stage.name}: {note or 'done'}")
    return note
