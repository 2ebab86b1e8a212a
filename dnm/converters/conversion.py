"""The conversion of one node: the values that its stages share, and how the stages run.

The journal records a stage before and after it runs. A stage checks its precondition each time. A
stage that began and did not end is run again, so every stage first reads the current state. SIGTERM
ends a conversion between two reads and leaves its journal open, without a rollback."""

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

from dnm.converters.claimed import Judge, next_commands
from dnm.converters.hooks import HookCall, find_hook, hook_environment, kubelet_facts, outlive
from dnm.converters.journal import Journal, JournalWriter, StageMark
from dnm.converters.kube_side import KubeSide
from dnm.converters.listing import Slurm, connect_slurm
from dnm.converters.settings import Settings
from dnm.converters.slurm.commands import SlurmOutcomeUnknown, SlurmRefused
from dnm.converters.slurm.text import SlurmJob, SlurmNode
from dnm.host.fault_points import fault_point
from dnm.kube.errors import repeat_on_conflict
from dnm.model.blackout import Secrets, secrets_by_name
from dnm.model.errors import ConverterError, DnmError, KubeError, SlurmError

Answer = TypeVar("Answer")
SLURM_PATIENCE = timedelta(minutes=2)  # a restart of slurmctld


class Interrupted(Exception):
    """The error if a signal stops the program. A later call continues with the open journal."""


class NotClaimed(ConverterError):
    """The error if a node can't be claimed: it has another owner, or a job has started on it."""


class StopRequest:
    """The stop signals so far. The first lets a running hook finish; the second ends the hook."""

    def __init__(self) -> None:
        self.stop = threading.Event()
        self.hurry = threading.Event()

    def listen(self) -> None:
        """Installs the handlers of SIGTERM and SIGINT."""
        for sent in (signal.SIGTERM, signal.SIGINT):
            signal.signal(sent, lambda *_: self.ask())

    def ask(self) -> None:
        (self.hurry if self.stop.is_set() else self.stop).set()


class DryRun(NamedTuple):
    """The node of a dry run, and the ids of jobs that a real run would preempt on it."""

    settings: Settings
    node: str
    jobs: str = ""

    def hook(self, name: str, otherwise: str = "") -> str:
        """Returns the hook's command line, or `otherwise` if the site has no such hook."""
        path = find_hook(self.settings, name)
        return f"{path} {self.node}" if path else otherwise or f"(no hook {name})"


@dataclass(frozen=True)
class Stage:
    """A step of a conversion. `require` raises an error if its precondition fails, before the stage
    begins. `act` runs it within its time-out and returns a note for the journal, or raises
    DnmError. `shows` are the lines of a dry run, in which `{node}` is the node."""

    name: str
    act: Callable[[NodeConversion], str]
    require: Callable[[NodeConversion], None] | None = None
    shows: str | Callable[[DryRun], Sequence[str]] = ""

    def lines(self, run: DryRun) -> list[str]:
        """Returns the lines that a dry run prints for the stage."""
        if isinstance(self.shows, str):
            return self.shows.format(node=run.node).splitlines()
        return list(self.shows(run))


@dataclass(frozen=True)
class Program:
    """The differences between the three converters. `lending` and `returning` are their stages.
    `touches` is the first stage of `lending` that changes the node; after it, a rollback runs all
    `returning`. `check` runs before `returning` and raises `to_batch.AlreadyBack` if Slurm has the
    node. `judge` changes verdicts. All else, e.g. claims, journals and hooks, is common code."""

    lending: tuple[Stage, ...]
    touches: str
    check: Stage
    returning: tuple[Stage, ...]
    judge: Judge | None = None
    check_settings: Callable[[Settings], object] = lambda _: None  # runs before any claim
    # If None, each call repeats all stages of a return. Each reads the state first, which costs a
    # request.
    reopen_stages: Callable[[NodeConversion], None] | None = None

    @property
    def claiming(self) -> tuple[Stage, ...]:
        """Returns the stages of lending that only claim the node and do not change it."""
        return self.lending[: [stage.name for stage in self.lending].index(self.touches)]

    def has_touched(self, journal: Journal) -> bool:
        """Returns whether the conversion may have changed the node, so that it must be returned."""
        return journal.has_begun(self.touches)


@dataclass(frozen=True)
class Sides:
    """Functions that make the clients of Slurm and of Kubernetes. Making one sends no request."""

    slurm: Callable[[Settings], Slurm] = connect_slurm
    kube: Callable[[Settings], KubeSide] = KubeSide


BY_SETTINGS = Sides()


@dataclass(eq=False)
class NodeConversion:
    """A running conversion. Only one thread uses it, with its own connections."""

    settings: Settings
    writer: JournalWriter
    control: StopRequest
    log: Callable[[str], None]
    sides: Sides

    @cached_property
    def slurm(self) -> Slurm:
        return self.sides.slurm(self.settings)

    @cached_property
    def kube(self) -> KubeSide:
        return self.sides.kube(self.settings)

    @property
    def node(self) -> str:
        return self.writer.journal.node

    @property
    def journal(self) -> Journal:
        return self.writer.journal

    @property
    def reservation(self) -> str:
        """Returns the name of dnm's reservation of this node."""
        return f"{self.settings.res_name}-{self.node}"

    def wait(self, duration: timedelta) -> None:
        """Sleeps. Raises Interrupted as soon as a signal stops the program."""
        self.control.stop.wait(duration.total_seconds())
        self.check_control()

    def check_control(self) -> None:
        if self.control.stop.is_set():
            raise Interrupted(
                f"{self.node}: stopped by a signal: the next run of dnm continues, or {self.todo}"
            )

    @property
    def todo(self) -> str:
        """Returns the commands by which an administrator can continue a stopped conversion."""
        way, program = self.journal.way.value, self.settings.machines.value
        return next_commands(self.node, way, self.journal.namespace, program)

    def patiently(self, ask: Callable[[], Answer]) -> Answer:
        """Returns the result of `ask`, and repeats it while Slurm does not answer. Raises
        SlurmError after the time that slurmctld needs to restart, and at once for a refusal."""
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
                    self.log(f"waits for Slurm: {last}")
                self.wait(self.settings.poll_seconds)

    def read_node(self) -> SlurmNode:
        """Returns Slurm's record of the node. Waits while a slurmctld that has just started does
        not know the node's state. Raises SlurmError."""

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
        """Calls `change` unless the desired state `is_so` already holds, and reads the state back.
        A refused or unanswered change is no error if the state holds afterwards. Raises SlurmError
        if it does not hold within SLURM_PATIENCE."""
        deadline = time.monotonic() + SLURM_PATIENCE.total_seconds()
        while not self.patiently(is_so):
            refused: SlurmError | None = None
            try:
                change()
            except SlurmRefused as error:
                refused = error
            except SlurmOutcomeUnknown as error:
                self.log(f"outcome unknown, reads Slurm's state: {error}")
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
        """Repeats `look` while it returns what is missing or raises one of `errors`. After
        `timeout`, raises NotClaimed if `look` has just raised that, else ConverterError."""
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
                self.log(f"waits: {missing}")
                last = missing
            self.wait(self.settings.poll_seconds)

    def change_node(self, attempt: Callable[[], Answer]) -> Answer:
        """Calls `attempt`, which reads and changes the Node. Repeats it if another client has
        changed the Node meanwhile. Raises KubeConflict after the stage's time-out."""
        return repeat_on_conflict(attempt, self.settings.stage_timeout_seconds, self.wait)

    def run_hook(
        self,
        name: str,
        is_required: bool = False,
        timeout: timedelta | None = None,
        on_line: Callable[[str], None] | None = None,
    ) -> bool:
        """Runs a hook and returns whether the site has it. First waits for a hook that an earlier
        call left running. `on_line` gets each line of output; by default it is logged. Raises
        HookFailed, or ConverterError if a required hook is missing."""
        path = find_hook(self.settings, name, is_required)
        if path is None:
            return False
        timeout = timeout or self.settings.stage_timeout_seconds
        if self.journal.hook is not None:
            outlive(self.journal.hook, timeout, self.log)
        facts = hook_facts(self.settings, self.journal, name)
        facts |= kubelet_facts(self.settings, self.journal, name)
        environment = hook_environment(self.settings, facts, os.environ)
        passed = (os.environ.get(variable, "") for variable in self.settings.pass_environment)
        secrets = Secrets([*passed, *secrets_by_name(os.environ)])
        call = HookCall([str(path), self.node], environment, secrets, on_line or self.log)
        self.writer.change(hook=call.process)
        call.let_go()
        call.wait(timeout, self.control.hurry.is_set)
        return True


def check_hooks(settings: Settings, required: str, *others: str) -> None:
    """Raises ConverterError if the required hook is missing or unusable, or if one of the others
    exists and is unusable. Called before anything is changed."""
    find_hook(settings, required, is_required=True)
    for name in others:
        find_hook(settings, name)


def hook_facts(settings: Settings, journal: Journal, name: str) -> dict[str, str]:
    """Returns the environment variables that describe the conversion to a hook."""
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
    """Runs in order the stages that the journal does not show as done."""
    for stage in stages:
        if not conversion.journal.is_done(stage.name):
            conversion.check_control()
            run_stage(conversion, stage)


def run_stage(conversion: NodeConversion, stage: Stage) -> str:
    """Runs a stage, even after a signal, and returns its note. Writes a failure to the journal."""
    try:
        if stage.require is not None:
            stage.require(conversion)
        conversion.writer.write(stage.name, StageMark.BEGUN)
        conversion.log(f"{stage.name}: begins")
        with fault_point(f"convert.{stage.name}"):
            note = stage.act(conversion)
    except DnmError as error:
        conversion.writer.write(stage.name, StageMark.FAILED, str(error))
        raise
    except OSError as error:
        conversion.writer.write(stage.name, StageMark.FAILED, str(error))
        raise ConverterError(f"the converter failed on this host: {error}") from error
    conversion.writer.write(stage.name, StageMark.DONE, note)
    conversion.log(f"{stage.name}: {note or 'done'}")
    return note
