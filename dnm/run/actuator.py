"""The actuator, which carries out a plan and makes no decision of its own.

It saves the registry before the first action and after each, so that the next run finds incomplete
actions. A failed action does not stop the others. It skips actions for a queue if its limits could
not be written (`unwritten.py`), and actions on a node that has changed since the run read it."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import suppress

from msgspec.structs import replace

from dnm.converter.contract import convert_command, resume_command, return_command
from dnm.converter.processes import this_host
from dnm.kube.nodes import FENCED, mark_annotations
from dnm.model.errors import ConverterError, DnmError, KubeError, RegistryError
from dnm.model.lent import ConversionRequest, Ended
from dnm.model.lent_state import ConverterProcess
from dnm.model.node import Mark
from dnm.model.plan import (
    Action,
    EndConverter,
    Fence,
    MarkNode,
    Outcome,
    Plan,
    ReserveNodes,
    ReturnNode,
    SetQueueLimits,
    StartConversion,
    Unfence,
    UnreserveNodes,
)
from dnm.model.queue_edit import QueueEdit, QueueWants
from dnm.model.registry import Registry
from dnm.plan.breaker import with_failure
from dnm.plan.overdue import conversion_error, return_error
from dnm.plan.requests import request_ended, return_ended
from dnm.queues import system_of
from dnm.record.recording import change_line, record_limits
from dnm.record.transitions import why_requested
from dnm.run.step import Step

log = logging.getLogger("dnm")


class Actuator(Step):
    """The part of a run that carries out the actions of its plan, one by one."""

    def apply_plan(self, plan: Plan) -> Outcome:
        """Executes every action in order. If the registry could not be saved, the run executes no
        further action."""
        self.run, self.uids = plan.run, plan.uids
        self.reasons = {verdict.node: verdict.sentence for verdict in plan.nodes}
        self.replace_registry(self._signed(plan))  # with the history of the plan's changes
        self.converter.read_earlier_output(log_line)
        for queue, why in self.state.unexcluded.items():
            self.fail(f"action=exclude-earlier-writes queue={queue} error={why!r}")
        for action in plan.actions:
            if self.should_stop():
                self.errors.append("ended by a signal: the next run continues here")
                break
            if self.unwritten:
                from dnm.run.unwritten import is_skipped  # few writes fail

                if is_skipped(self, action):
                    continue
            count = len(self.actions)
            try:
                self.state.keep()
                self._apply(action)
                self.done += [action] if len(self.actions) > count else []
            except DnmError as error:
                word = type(action).__name__
                self.fail(f"action={word} {_target(action)} error={str(error)!r}")
                if isinstance(error, RegistryError):
                    break
        self._forget_unstarted(plan)
        self._listen()
        return Outcome(
            registry=self.registry,
            actions=tuple(self.actions),
            done=tuple(self.done),
            errors=tuple(self.errors),
            unwritten=tuple(sorted(self.unwritten)),
        )

    def _signed(self, plan: Plan) -> Registry:
        """Returns the plan's registry. If it is in Kubernetes, adds this host's name to new
        requests to convert: only this host can see whether the request's converter was started."""
        new = [action.request.id for action in plan.actions if isinstance(action, StartConversion)]
        if self.config.registry_storage == "file" or not new:
            return plan.registry
        requests = tuple(
            replace(request, converter=this_host()) if request.id in new else request
            for request in plan.registry.requests
        )
        return replace(plan.registry, requests=requests)

    def _forget_unstarted(self, plan: Plan) -> None:
        """Removes requests for conversions if this run stopped before it started their converter.
        If nodes are still needed, the next run makes new requests."""
        unstarted = {
            action.request.id for action in plan.actions if isinstance(action, StartConversion)
        } - self.tried
        if unstarted:
            requests = tuple(r for r in self.registry.requests if r.id not in unstarted)
            with suppress(RegistryError):  # the error is reported already
                self.save(replace(self.registry, requests=requests))

    def _apply(self, action: Action) -> None:
        match action:
            case EndConverter(key=key, process=process):
                self._end_converter(key, process)
            case SetQueueLimits():
                self._set_queue_limits(action)
            case MarkNode(node=name, mark=mark):
                self._mark(name, mark)
            case Fence(node=name):
                self._fence(name)
            case Unfence(node=name):
                self._unfence(name)
            case StartConversion(request=request):
                self._start_conversion(request)
            case ReturnNode(node=name):
                self._start_return(name)
            case _:
                from dnm.run.rare_actions import apply_rare  # of a rule, or of a command

                apply_rare(self, action)

    def _set_queue_limits(self, action: SetQueueLimits) -> None:
        wants = self._without_unmarked(action.wants)
        planned = action.edit if wants == action.wants else None
        try:
            outcome = system_of(self.config).write(
                self.config, self.kube, wants, planned, self._renew_before_edit
            )
        except DnmError:
            from dnm.run.unwritten import limited_queues

            self.unwritten = limited_queues(self)
            with suppress(RegistryError):  # only the error of the write is reported
                self._note_ledger(wants.remembered)  # the document has no other ledger
            raise
        self._note_ledger(outcome.edit.record)
        if outcome.is_written:
            is_repeated = self._is_repeated_reset(outcome.edit)
            for change in outcome.edit.changes:
                self.note_done(change_line(change), why=change.why, is_logged=not is_repeated)
            if not outcome.edit.changes:
                self.note_done("action=write-ledger")
        for note in outcome.notes:
            log.info("note=%r", note)
        self.unwritten = {*outcome.failed, *self.state.unexcluded}
        for queue, why in outcome.failed.items():
            self.fail(f"action=SetQueueLimits queue={queue} error={why!r}")
        if outcome.is_written:
            updated = record_limits(self.registry, outcome.edit.changes, self.cause())
            self.replace_registry(updated)

    def _is_repeated_reset(self, edit: QueueEdit) -> bool:
        """Returns whether another client repeatedly undoes this edit of limits. May warn."""
        resets = self.registry.last_run.resets
        if resets is None or not edit.reset_by or not resets.is_repeated(self.clock()):
            return False
        if resets.is_news:
            log.warning("note=%r", resets.sentence)
        return True

    def _note_ledger(self, ledger: str | None) -> None:
        """Saves in the registry which ledger the queue document has now, planned or not."""
        if ledger != self.registry.last_run.ledger:
            last_run = replace(self.registry.last_run, ledger=ledger)
            self.save(replace(self.registry, last_run=last_run))

    def _renew_before_edit(self) -> None:
        """Renews the Lease between reading and writing the limits. A run that takes the Lease later
        also changes the version of the limits, so that this run's late write is refused."""
        self.state.keep(anew=True)

    def _without_unmarked(self, wants: QueueWants) -> QueueWants:
        """Leaves out Nodes without dnm's annotations: another instance may have lent them."""
        nodes = {
            queue: {name: size for name, size in sizes.items() if name not in self.unmarked}
            for queue, sizes in wants.nodes.items()
        }
        return replace(wants, nodes=nodes)

    # --- Kubernetes ---------------------------------------------------------------------------

    def _mark(self, name: str, mark: Mark) -> None:
        """Marks a Node as lent. Unmarked, it counts for no queue: another instance may have it."""
        self.unmarked.add(name)
        is_free = self.patch(
            name, lambda node: node.is_free_for(mark.instance), annotations=mark_annotations(mark)
        )
        if not is_free:
            raise KubeError(
                f"Node {name} carries another instance's mark, or is not the one that was read, "
                "and is not counted in this run: the next one tries again"
            )
        self.unmarked.discard(name)
        self.note_done(f"action=mark node={name} queue={mark.queue}", name)

    def _fence(self, name: str) -> None:
        entry = self.registry.nodes[name]
        annotations = {**mark_annotations(entry.mark), FENCED: "true"}
        is_open = self.patch(
            name, lambda node: not node.is_cordoned, cordon=True, annotations=annotations
        )
        if is_open:
            self.note_done(f"action=fence node={name} queue={entry.queue}", name)
        else:
            log.info("action=fence node=%s skipped='it is cordoned already'", name)

    def _unfence(self, name: str) -> None:
        removal: Mapping[str, str | None] = {FENCED: None}
        if self.patch(name, lambda node: node.carries_fence, cordon=False, annotations=removal):
            self.note_done(f"action=unfence node={name}", name)

    # --- the converter ------------------------------------------------------------------------

    def _start_conversion(self, request: ConversionRequest) -> None:
        self.state.keep(anew=True)
        self.tried.add(request.id)
        if request.node:
            command = resume_command(self.config, request.node, request.namespace, request.account)
        else:
            command = convert_command(
                self.config, request.node_type, request.count, request.namespace,
                request.leave_out, request.account,
            )  # fmt: skip
        try:
            process = self.converter.start(request.id, command, self.state.until)
        except ConverterError as error:
            self._conversion_ended(request, Ended(not_started=str(error)))
            return
        self.save(_with_request(self.registry, replace(request, converter=process)))
        self.note_done(
            f"action=convert request={request.id} type={request.node_type} count={request.count} "
            f"namespace={request.namespace} queue={request.queue}"
            + (f" node={request.node}" if request.node else ""),
            why=why_requested(self.registry, request)[0],
        )

    def _start_return(self, name: str) -> None:
        entry = self.registry.nodes[name]
        obstacle = self._return_obstacle(name)
        if obstacle:
            log.info("action=return node=%s skipped=%r", name, obstacle)
            return
        attempt = entry.returning.attempts + 1
        called = entry.with_state(
            attempts=attempt,
            is_handed_over=False,
            retry_after=self.clock() + self.config.convert_timeout + self.config.join_timeout,
            converter=None if self.config.registry_storage == "file" else this_host(),
        )
        self.save_node(name, called)
        command = return_command(self.config, name, entry.fault)
        try:
            process = self.converter.start(name, command, self.state.until)
        except ConverterError as error:
            self._return_ended(name, Ended(not_started=str(error)))
            return
        self.save_node(name, called.with_state(converter=process))
        self.note_done(f"action=return node={name} attempt={attempt} queue={entry.queue}", name)

    def _return_obstacle(self, name: str) -> str | None:
        """Reads the node again. Returns why it must not be returned to Slurm now, or None."""
        node = self.kube.read_node(name)
        if node is not None and not node.is_with_batch:
            if not node.is_fenced:
                return "it is not fenced any more"
            if obstacle := self.find_work(node):
                return obstacle
        return self.batch_obstacle(name)

    def _end_converter(self, key: str, process: ConverterProcess) -> None:
        """Ends a converter that an earlier run started and that has exceeded its time limit."""
        if not self.converter.end(process):
            raise ConverterError(f"the process {process.pid} can't be ended: check what blocks it")
        self.note_done(f"action=end-converter of={key} pid={process.pid}")
        self._record_end(key, replace(self.converter.read_end(key), timed_out=True))

    def _listen(self) -> None:
        """Waits a limited time for all running converters, and records how each of them ended."""
        for key, end in self.converter.listen(log_line, self._is_to_leave).items():
            if not end.left_running:
                self._record_end(key, end)
            elif end.timed_out or self.should_stop():
                self.errors.append(f"{key} is left to its converter, which is still at work")
            else:
                self.note_done(f"action=leave converter={key} sentence='it is still at work'")

    def _is_to_leave(self) -> bool:
        """Renews the Lease. Returns whether the run must stop waiting for converters: it has lost
        the Lease, or it was asked to stop."""
        try:
            self.state.keep()
        except RegistryError:
            return True
        except DnmError:
            pass  # the next write reports it
        return self.should_stop()

    def _record_end(self, key: str, end: Ended) -> None:
        if key in self.registry.nodes:
            self._return_ended(key, end)
        else:
            request = next(r for r in self.registry.requests if r.id == key)
            self._conversion_ended(request, end)

    def _conversion_ended(self, request: ConversionRequest, end: Ended) -> None:
        ended = request_ended(request, end, self.clock())
        registry = _with_request(self.registry, ended)
        if ended.is_abandoned:
            before = registry.backoffs.get(request.node_type)
            backoff = with_failure(self.config, before, request.count, self.clock(), ended.error)
            backoffs = {**registry.backoffs, request.node_type: backoff}
            registry = replace(registry, backoffs=backoffs)
        self.save(registry)
        if ended.error:
            self.fail(conversion_error(request.id, ended.error))

    def _return_ended(self, name: str, end: Ended) -> None:
        ended = return_ended(self.config, self.registry.nodes[name], end, self.clock())
        self.save_node(name, ended)
        if ended.error:
            self.fail(return_error(name, ended.error))


def log_line(key: str, line: str) -> None:
    """Logs a line that a converter prints."""
    log.info("converter=%s line=%r", key, line)


def _with_request(registry: Registry, request: ConversionRequest) -> Registry:
    other_requests = tuple(r for r in registry.requests if r.id != request.id)
    return replace(registry, requests=(*other_requests, request))


def _target(action: Action) -> str:
    match action:
        case StartConversion(request=request):
            return f"request={request.id}"
        case EndConverter(key=key):
            return f"of={key}"
        case SetQueueLimits(wants=wants):
            return f"queues={len(wants.nodes)}"
        case ReserveNodes(reservation=reservation):
            return f"reservation={reservation.name}"
        case UnreserveNodes(name=name):
            return f"reservation={name}"
        case _:
            return f"node={action.node}"
