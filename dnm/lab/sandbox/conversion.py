"""The sandbox's `node-convert`: it fulfils the converter's contract, and can fail in many ways.

A call has two halves. `begin` reads the command line and takes the first steps (claim the machines,
or delete the Node); `finish` does the rest. Between them, the process that dnm has started waits
for as long as a conversion takes. If it is killed, the second half never happens, as on a real
site."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Literal, NoReturn

import msgspec

from dnm.converter.processes import is_alive, process_of
from dnm.lab.sandbox.batch import OWN_DRAIN, Batch, CallRecord, Machine
from dnm.lab.sandbox.clock import Clock, Timing
from dnm.lab.sandbox.deletion import Violations, working_pods
from dnm.lab.sandbox.joining import Joiner
from dnm.lab.sandbox.reservations import is_event_reservation, moment
from dnm.lab.sandbox.store import Objects
from dnm.model.errors import SlurmError
from dnm.model.hostlist_parser import expand_hostlist
from dnm.model.lent_state import ConverterProcess

_USAGE = """usage: node-convert --set k8s --node-type T --num-nodes N [--namespace NS]
                    [--exclude NODES]
       node-convert --set k8s --node-name NODE [--namespace NS]
       node-convert --set batch --node-name NODE
       node-convert --reserve NAME --node-type T --num-nodes N --from TIME --until TIME
                    [--exclude NODES]
       node-convert --unreserve NAME [--exclude NODES]
       node-convert --list [--node-type T | --node-name NODE] [--output json]
"""


class Behaviour(msgspec.Struct, kw_only=True):
    """A behaviour that a test sets for the next `times` calls of one direction (-1: for all).

    act False: it changes no node. exit_code: its exit code, whatever it did. short: the number of
    nodes that it converts too few. stuck: machines stay claimed. late_seconds: the delay until the
    Node registers. hang: it never ends, `before` or `after` its work, and ignores SIGTERM, as does
    a child of it. detached: its work continues after the converter is killed. seconds: its
    duration. stdout, stderr: its output."""

    direction: Literal["k8s", "batch", "list"] = "k8s"
    act: bool = True
    exit_code: int | None = None
    short: int = 0
    stuck: bool = False
    late_seconds: float = 0.0
    hang: Literal["", "before", "after"] = ""
    detached: bool = False
    seconds: float | None = None
    stdout: str | None = None
    stderr: str = ""
    times: int = 1


class Result(msgspec.Struct, kw_only=True):
    """The server's answer to the converter's process: what to print, and to wait, hang or end."""

    stdout: str = ""
    stderr: str = ""
    exit_code: int = 0
    operation: int | None = None
    wait: float = 0.0
    hang: bool = False


class OpenCall(msgspec.Struct, kw_only=True):
    """A conversion that has begun (`begin`) and has not ended (`finish`)."""

    direction: Literal["k8s", "batch"]
    machines: list[str]
    claims: list[int]
    asked: int
    namespace: str = ""
    seconds: float = 0.0
    process: ConverterProcess | None = None
    behaviour: Behaviour = msgspec.field(default_factory=Behaviour)


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """A record of a converter's call, for tests. `environment`: the variables that dnm passed."""

    arguments: tuple[str, ...]
    environment: dict[str, str]
    at: str


def _asker(number: int) -> ConverterProcess:
    """Returns the calling process with this number, or a dead one if it was killed meanwhile."""
    return process_of(number) or ConverterProcess(pid=number, start_ticks=0)


class _Usage(Exception):
    pass


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise _Usage(f"node-convert: {message}")


class Converter:
    """The sandbox's converter. Callers hold the store's lock. It moves no node with Slurm jobs."""

    def __init__(
        self, store: Objects, batch: Batch, timing: Timing, violations: Violations
    ) -> None:
        self.store = store
        self.clock: Clock = store.clock
        self.batch = batch
        self.timing = timing
        self.violations = violations
        self.behaviours: list[Behaviour] = []
        self.calls: list[Call] = []
        self.joining = Joiner(store, batch, timing)
        self.reports_claims = True
        self._asking: ConverterProcess | None = None
        self._operations: dict[int, OpenCall] = {}
        self._last = 0

    # --- a call -----------------------------------------------------------------------------

    def begin(
        self, arguments: Sequence[str], environment: Mapping[str, str], process: int = 0
    ) -> Result:
        """Runs the first half of a call. The second one fails if `process` has been killed."""
        self._asking = _asker(process) if process else None
        self._operations = {  # what a converter that was killed had begun stays half done
            number: operation
            for number, operation in self._operations.items()
            if operation.process is None or is_alive(operation.process)
        }
        self.calls.append(
            Call(arguments=tuple(arguments), environment=dict(environment), at=self.clock.stamp())
        )
        try:
            options = _options(arguments)
        except _Usage as usage:
            return Result(exit_code=2, stderr=f"{usage}\n{_USAGE}")
        instance = environment.get("DNM_INSTANCE", "")
        if options.list:
            return self._list(options, instance)
        if options.reserve or options.unreserve:
            return self._change_reservations(options, instance)
        if options.set == "k8s":
            return self._begin_lending(options, environment)
        return self._begin_returning(options, environment)

    def finish(self, operation: int) -> Result:
        """Runs the second half of a call. Fails if the operation is unknown or has ended."""
        begun = self._operations.pop(operation, None)
        if begun is None:
            return Result(exit_code=1, stderr="node-convert: this conversion is not known\n")
        if begun.direction == "k8s":
            done = self._finish_lending(begun)
        else:
            done = self._finish_returning(begun)
        behaviour = begun.behaviour
        if behaviour.stdout is not None:
            done.stdout = behaviour.stdout
        if behaviour.exit_code is not None:
            done.exit_code = behaviour.exit_code
        done.stderr += behaviour.stderr
        done.hang = behaviour.hang == "after"
        return done

    def is_at_work(self, machine: Machine) -> bool:
        """Returns whether a running converter is converting the machine."""
        return any(
            machine.name in call.machines and (call.process is None or is_alive(call.process))
            for call in self._operations.values()
        )

    def duration(self, operation: int) -> float:
        begun = self._operations.get(operation)
        return begun.seconds if begun else 0.0

    def _behaviour(self, direction: str) -> Behaviour:
        for behaviour in self.behaviours:
            if behaviour.direction == direction:
                behaviour.times -= 1 if behaviour.times > 0 else 0
                if behaviour.times == 0:
                    self.behaviours.remove(behaviour)
                return behaviour
        return Behaviour()

    def _start(self, operation: OpenCall, stderr: str) -> Result:
        self._last += 1
        operation.process = self._asking
        self._operations[self._last] = operation
        wait = 0.0 if self.clock.manual else self.clock.scaled(operation.seconds)
        return Result(
            operation=self._last, wait=wait, stderr=stderr,
            hang=operation.behaviour.hang == "before",
        )  # fmt: skip

    def _seconds(self, behaviour: Behaviour, usual: float) -> float:
        return usual if behaviour.seconds is None else behaviour.seconds

    # --- --set k8s -------------------------------------------------------------------------------

    def _begin_lending(self, options: Any, environment: Mapping[str, str]) -> Result:
        behaviour = self._behaviour("k8s")
        chosen, asked, refusal = self._choose(options, environment.get("DNM_INSTANCE", ""))
        if refusal:
            return Result(exit_code=1, stderr=f"node-convert: {refusal}\n")
        chosen = chosen[: max(0, asked - behaviour.short)] if behaviour.act else []
        instance = environment.get("DNM_INSTANCE", "")
        reservation = environment.get("RES_NAME") or "k8s"
        for machine in chosen:
            name = f"{reservation}-{machine.name}"
            if machine.place == "batch":
                reason = f"dnm:{instance} converting for {options.namespace}"
                self.batch.claim(machine, name, reason)
            machine.journal = self._journal("k8s", environment, options.namespace)
        lines = [f"{machine.name}: claimed, converting" for machine in chosen]
        operation = OpenCall(
            direction="k8s", machines=[m.name for m in chosen], claims=[m.claims for m in chosen],
            asked=asked, namespace=options.namespace, behaviour=behaviour,
            seconds=self._seconds(behaviour, self.timing.convert),
        )  # fmt: skip
        if behaviour.detached:
            self._let_join(operation, operation.seconds)
        return self._start(operation, "".join(f"{line}\n" for line in lines))

    def _journal(
        self, direction: Literal["k8s", "batch"], environment: Mapping[str, str], namespace: str
    ) -> CallRecord:
        return CallRecord(
            instance=environment.get("DNM_INSTANCE", ""), direction=direction,
            namespace=namespace, request=environment.get("DNM_REQUEST", ""),
            since=self.clock.stamp(),
        )  # fmt: skip

    def _is_interrupted(self, machine: Machine) -> bool:
        journal = machine.journal
        return journal is not None and journal.is_open and not self.is_at_work(machine)

    def _choose(self, options: Any, instance: str) -> tuple[list[Machine], int, str]:
        """Returns machines to convert, how many were requested, and an error if there are none."""
        if options.node_name:
            machine = self.batch.machines.get(options.node_name)
            if machine is None:
                return [], 1, f"{options.node_name}: Slurm knows no such node"
            verdict, reason = self.batch.judge(machine, instance)
            journal = machine.journal
            if journal and journal.instance == instance and self._is_interrupted(machine):
                if journal.direction == "k8s" and journal.namespace == options.namespace:
                    return [machine], 1, ""
                return [], 1, f"{machine.name}: its conversion is another"
            return ([machine], 1, "") if verdict == "OK" else ([], 1, f"{machine.name}: {reason}")
        if options.node_type not in self.batch.types:
            return [], options.num_nodes, f"no nodes of type {options.node_type}"
        try:
            left_out = expand_hostlist(options.exclude)
        except SlurmError as error:
            return [], options.num_nodes, str(error)
        idle = [
            machine
            for machine in self.batch.candidates(options.node_type, instance)
            if machine.name not in left_out
        ]
        if not idle:
            few = f"{len(idle)} nodes of type {options.node_type} are eligible"
            return [], options.num_nodes, f"{few}, {options.num_nodes} were asked for"
        return idle[: options.num_nodes], options.num_nodes, ""

    def _finish_lending(self, operation: OpenCall) -> Result:
        behaviour = operation.behaviour
        joining = [] if behaviour.stuck else operation.machines
        if not behaviour.detached and not behaviour.stuck:
            self._let_join(operation, 0.0)
        for name in joining:
            if (journal := self.batch.machines[name].journal) is not None:
                journal.is_open = False
        failed = operation.asked - len(joining)
        stderr = f"node-convert: {failed} of {operation.asked} nodes were not converted\n"
        return Result(
            stdout=_names(joining), exit_code=1 if failed else 0,
            stderr=stderr if failed else "",
        )  # fmt: skip

    def _let_join(self, operation: OpenCall, delay: float) -> None:
        for name, claim in zip(operation.machines, operation.claims, strict=True):
            machine = self.batch.machines[name]
            if machine.claims != claim:
                continue
            self.batch.kill_jobs(machine, "it was converted")
            machine.place = "kubernetes"
            late_seconds = operation.behaviour.late_seconds + delay
            self.joining.expect(machine, operation.namespace, late_seconds)

    # --- --set batch -------------------------------------------------------------------------

    def _begin_returning(self, options: Any, environment: Mapping[str, str]) -> Result:
        behaviour = self._behaviour("batch")
        machine = self.batch.machines.get(options.node_name or "")
        if machine is None:
            message = f"node-convert: {options.node_name}: Slurm knows no such node\n"
            return Result(exit_code=1, stderr=message)
        if self.batch.is_in_service(machine):
            by = environment.get("DNM_INSTANCE", "")
            self.violations.note("needless-return", machine.name, f"asked by {by or 'somebody'}")
            stderr = f"node-convert: {machine.name}: Slurm has it in service, nothing to do\n"
            return Result(stderr=stderr, stdout=f"{machine.name}\n")
        if self.is_at_work(machine):
            return Result(
                exit_code=1, stderr=f"node-convert: {machine.name}: another works on it\n"
            )
        if behaviour.act:
            namespace = machine.journal.namespace if machine.journal else ""
            machine.journal = self._journal("batch", environment, namespace)
            self._leave_kubernetes(machine)
        operation = OpenCall(
            direction="batch", machines=[machine.name], claims=[machine.claims], asked=1,
            behaviour=behaviour,
            seconds=self._seconds(behaviour, self.timing.revert),
        )  # fmt: skip
        return self._start(operation, f"{machine.name}: returning to Slurm\n")

    def _leave_kubernetes(self, machine: Machine) -> None:
        self.remove_node(machine.name, "the converter")
        machine.place = "returning"
        machine.claims += 1

    def remove_node(self, name: str, instance: str) -> None:
        """Deletes the Node. Pods on it, except those of DaemonSets, are recorded as a violation."""
        if self.store.get("nodes", "", name) is not None:
            self.note_pods(name, instance)
            self.store.remove("nodes", "", name)

    def note_pods(self, name: str, instance: str) -> None:
        pods = [pod["metadata"]["name"] for pod in working_pods(self.store, name)]
        if pods:
            detail = f"{len(pods)} pods ran on it, {pods[0]} among them; deleted by {instance}"
            self.violations.note("pods-killed", name, detail)

    def _finish_returning(self, operation: OpenCall) -> Result:
        behaviour, name = operation.behaviour, operation.machines[0]
        machine = self.batch.machines[name]
        if behaviour.stuck or not behaviour.act:
            return Result(exit_code=1, stderr=f"node-convert: {name}: did not come up in Slurm\n")
        if machine.place == "returning":
            self.batch.kill_jobs(machine, "it was power-cycled")
            self.batch.release(machine)
        return Result(stdout=_names([name]))

    # --- --reserve and --unreserve -----------------------------------------------------------

    def _change_reservations(self, options: Any, instance: str) -> Result:
        """Creates or deletes an event reservation; refuses a reservation of another instance."""
        name = options.reserve or options.unreserve
        if not is_event_reservation(name, instance):
            return Result(exit_code=1, stderr=f"{name} is not an event reservation of {instance}\n")
        try:
            left_out = expand_hostlist(options.exclude)
            span = moment(options.begins), moment(options.until)
        except (SlurmError, ValueError) as error:
            return Result(exit_code=2, stderr=f"node-convert: {error}\n")
        if options.unreserve:
            return Result(stdout=_names(self.batch.unreserve(name, instance, left_out)))
        asked = options.num_nodes
        names = self.batch.reserve_for(name, options.node_type, asked, span, instance, left_out)
        return Result(stdout=_names(names), exit_code=int(len(names) < asked))

    # --- --list ------------------------------------------------------------------------------

    def _list(self, options: Any, instance: str) -> Result:
        behaviour = self._behaviour("list")
        machines = [
            machine
            for machine in self.batch.machines.values()
            if (not options.node_type or machine.type == options.node_type)
            and options.node_name in (None, machine.name)
        ]
        as_text = self._list_json if options.output == "json" else self._table
        stdout = as_text(machines, instance)
        return Result(
            stdout=stdout if behaviour.stdout is None else behaviour.stdout,
            stderr=behaviour.stderr, exit_code=behaviour.exit_code or 0,
            hang=bool(behaviour.hang),
        )  # fmt: skip

    def _list_json(self, machines: Sequence[Machine], instance: str) -> str:
        nodes = []
        for machine in machines:
            verdict, reason = self.batch.judge(machine, instance)
            nodes.append({
                "node": machine.name, "state": self.batch.state_of(machine),
                "idle_seconds": self.batch.idle_seconds(machine), "verdict": verdict,
                "reason": reason, "in_service": self.batch.is_in_service(machine),
                "partitions": machine.partitions, "features": machine.features,
                "reservations": [item.name for item in self.batch.reservations.on(machine.name)],
                "reservations_begin": {
                    reservation.name: datetime.fromtimestamp(reservation.begins, UTC)
                    for reservation in self.batch.reservations.on(machine.name)
                },
                "slurm_reason": _slurm_reason(machine),
                **({"claim": self._claim(machine)} if self.reports_claims else {}),
            })  # fmt: skip
        document = {
            "schema": "node-convert.list/1", "nodes": nodes,
            "options": ["--exclude", "--reserve"],
            "waiting_jobs": self._waiting_jobs({machine.type for machine in machines}),
        }  # fmt: skip
        return msgspec.json.encode(document).decode() + "\n"

    def _waiting_jobs(self, types: set[str]) -> list[dict[str, Any]]:
        """Returns the jobs that wait for machines of these types. A job may run on any type."""
        waiting = [job.nodes for job in self.batch.jobs.values() if not job.on]
        return [
            {"partition": "batch", "node_type": name, "jobs": len(waiting), "nodes": sum(waiting)}
            for name in sorted(types)
            if waiting
        ]

    def _claim(self, machine: Machine) -> dict[str, Any] | None:
        journal = machine.journal
        if journal is None:
            return None
        return {
            "instance": journal.instance, "direction": journal.direction if journal.is_open else "",
            "namespace": journal.namespace, "node_type": machine.type, "request": journal.request,
            "since": journal.since, "is_at_work": self.is_at_work(machine), "error": "",
        }  # fmt: skip

    def _table(self, machines: Sequence[Machine], instance: str) -> str:
        lines = [f"{'NODE':<12} {'STATE':<22} {'IDLE':>8} {'VERDICT':<8} REASON"]
        for machine in machines:
            verdict, reason = self.batch.judge(machine, instance)
            lines.append(
                f"{machine.name:<12} {self.batch.state_of(machine):<22} "
                f"{self.batch.idle_seconds(machine):>8} {verdict:<8} {reason}"
            )
        good = sum(1 for machine in machines if self.batch.judge(machine, instance)[0] == "OK")
        return "\n".join(
            [*lines, "", f"{good} of {len(machines)} nodes could be converted now", ""]
        )


def _options(arguments: Sequence[str]) -> Any:
    parser = _Parser(prog="node-convert", add_help=False, allow_abbrev=False)
    parser.add_argument("--set", choices=("k8s", "batch"))
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--reserve", default="")
    parser.add_argument("--unreserve", default="")
    parser.add_argument("--from", dest="begins", default="1970-01-01T00:00:00Z")
    parser.add_argument("--until", default="1970-01-01T00:00:00Z")
    parser.add_argument("--node-type")
    parser.add_argument("--node-name")
    parser.add_argument("--num-nodes", type=int, default=1)
    parser.add_argument("--namespace", default="")
    parser.add_argument("--exclude", default="")
    parser.add_argument("--allow-preempt", action="store_true")
    parser.add_argument("--output", choices=("text", "json"), default="text")
    options = parser.parse_args(list(arguments))
    modes = (options.set, options.list, options.reserve, options.unreserve)
    if sum(map(bool, modes)) != 1:
        raise _Usage("node-convert: one of --set and --list is needed, or --reserve or --unreserve")
    if options.set == "k8s" and bool(options.node_type) == bool(options.node_name):
        raise _Usage("node-convert: --set k8s needs --node-type or --node-name")
    if options.set == "batch" and not options.node_name:
        raise _Usage("node-convert: --set batch needs --node-name")
    is_reservation = options.reserve or options.unreserve
    if options.exclude and not (is_reservation or (options.set == "k8s" and options.node_type)):
        raise _Usage("node-convert: --exclude goes with --set k8s --node-type")
    if options.num_nodes < 1:
        raise _Usage("node-convert: --num-nodes must be at least 1")
    return options


def _names(names: Sequence[str]) -> str:
    return "".join(f"{name}\n" for name in names)


def _slurm_reason(machine: Machine) -> dict[str, Any] | None:
    """Returns the Reason of the machine's drain. An administrator's drain has precedence."""
    drains = sorted(machine.drains.items(), key=lambda drain: drain[0] == OWN_DRAIN)
    for owner, text in drains:
        is_own = owner == OWN_DRAIN
        instance = machine.journal.instance if is_own and machine.journal else ""
        return {"text": text, "by": "root" if is_own else owner, "since": None,
                "instance": instance}  # fmt: skip
    return None
