"""Conversion of several nodes in parallel: it picks candidates, handles failures, returns results.

Each node has a thread, a lock and a journal of its own. If a node can't be claimed, the next
candidate replaces it. A failure is rolled back as far as that is safe. Otherwise the node stays
drained and reserved, and the message has the next step."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial

import msgspec

from dnm.converters import to_batch
from dnm.converters.claim import RESERVING
from dnm.converters.claimed import NO_FAILURE, carry_over, count_failure
from dnm.converters.conversion import (
    BY_SETTINGS,
    Interrupted,
    NodeConversion,
    NotClaimed,
    Program,
    Sides,
    StopRequest,
    run_stage,
    run_stages,
)
from dnm.converters.journal import (
    Direction,
    Journal,
    JournalStore,
    JournalWriter,
    NodeResult,
    StageMark,
    new_operation,
    stages_of,
)
from dnm.converters.preempt import JOBS
from dnm.converters.reservation import ACCOUNT
from dnm.converters.settings import Machines, Settings
from dnm.model.errors import DnmError
from dnm.model.value import Value

_VERDICT = "verdict"  # key of the journal's facts: why the node was chosen
BUSY = "another converter works on it"


def program_of(machines: Machines) -> Program:
    """Returns the converter program for this kind of machines, and loads only its modules."""
    if machines is Machines.PODS:
        from dnm.converters import nodeset_stages

        return nodeset_stages.PROGRAM
    if machines is Machines.BRIDGED:
        from dnm.converters import bridge_stages

        return bridge_stages.PROGRAM
    return to_batch.PROGRAM


class Candidate(Value, frozen=True):
    """A node that may be lent, and the reason. `jobs` has the ids of jobs to preempt (`1,2`)."""

    node: str
    why: str = ""
    jobs: str = ""


@dataclass(eq=False)
class ConversionPool:
    """The conversions of one call, and the settings and clients that they share."""

    settings: Settings
    program: Program
    store: JournalStore
    control: StopRequest
    log: Callable[[str], None]
    on_result: Callable[[NodeResult], None]
    on_claimed: Callable[[str], None] = lambda node: None
    sides: Sides = BY_SETTINGS
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def lend(
        self, candidates: Sequence[Candidate], count: int, node_type: str, namespace: str
    ) -> list[NodeResult]:
        """Lends up to `count` of the candidates. Returns the results of all that were tried. Stops
        after `count` failures. A candidate that can't be claimed is no failure."""
        waiting = list(candidates)
        results: list[NodeResult] = []
        failures = 0

        def lend_next() -> None:
            nonlocal failures
            while not self.control.stop.is_set():
                with self._lock:
                    if not waiting or failures >= count:
                        return
                    candidate = waiting.pop(0)
                lend = partial(self._lend, candidate, node_type, namespace)
                result = self._locked(candidate.node, lend, busy="skipped")
                with self._lock:
                    results.append(result)
                    failures += result.result == "failed"
                self.on_result(result)
                if result.result == "ok":
                    return

        self._in_parallel([lend_next] * count)
        return results

    def _lend(
        self, candidate: Candidate, node_type: str, namespace: str, journal: Journal | None
    ) -> NodeResult:
        node = candidate.node
        if journal is None or not journal.is_open:
            facts = {_VERDICT: candidate.why, JOBS: candidate.jobs, **carry_over(journal)}
            journal = self.new_journal(node, Direction.K8S, facts, namespace, node_type)
        elif journal.instance != self.settings.instance:
            return _skip(node, f"instance {journal.instance} works on it")
        elif journal.way is Direction.BATCH:
            if self.program.has_touched(journal) or not journal.has_begun("claim"):
                return _skip(node, "it is being returned; --resume finishes that")
            back = self._resume(node, journal)
            reason = "the claim of an earlier conversion was given back"
            return back if back.result == "failed" else _skip(node, reason)
        elif journal.namespace != namespace:
            reason = f"its conversion for '{journal.namespace}' is unfinished; use --resume"
            return _skip(node, reason)
        request, account = self.settings.request, self.settings.account
        charged = {**journal.facts, **({ACCOUNT: account} if account else {})}
        return self.carry_on(msgspec.structs.replace(journal, request=request, facts=charged))

    def bring_back(self, nodes: Iterable[str]) -> list[NodeResult]:
        return self._each(nodes, self._bring_back)

    def _bring_back(self, node: str, journal: Journal | None) -> NodeResult:
        if journal is None or not journal.is_open:
            is_lent = journal and (journal.direction is Direction.K8S or journal.error)
            lending = journal if is_lent else None  # an error means that it was not given back
            served = (lending.namespace, lending.node_type) if lending else ()
            journal = self.new_journal(node, Direction.BATCH, carry_over(journal), *served)
        elif journal.instance != self.settings.instance:
            raise DnmError(f"instance {journal.instance} works on it")
        return self.carry_on(msgspec.structs.replace(journal, direction=Direction.BATCH))

    def resume(self, journals: Sequence[Journal]) -> list[NodeResult]:
        """Returns the nodes of these open journals to Slurm, also after an interrupted lend. For a
        lend that dnm still needs, it calls `lend` instead, which continues the lend."""
        return self._each([journal.node for journal in journals], self._resume)

    def _resume(self, node: str, journal: Journal | None) -> NodeResult:
        if journal is None or not journal.is_open:
            return _skip(node, "another converter has finished it")
        if self._is_counted(journal):
            return _skip(node, "dnm counts it as lent, and returns it when it is idle")
        return self.carry_on(msgspec.structs.replace(journal, direction=Direction.BATCH))

    def _is_counted(self, journal: Journal) -> bool:
        """Returns whether dnm counts the node as lent: its interrupted lend has marked the Node."""
        if journal.direction is Direction.BATCH or not self.program.has_touched(journal):
            return False
        node = self.sides.kube(self.settings).read_node(journal.node)
        return node is not None and node.is_marked_by(journal.instance)

    def _each(
        self, nodes: Iterable[str], work: Callable[[str, Journal | None], NodeResult]
    ) -> list[NodeResult]:
        results: list[NodeResult] = []

        def do(node: str) -> None:
            result = self._locked(node, partial(work, node))
            results.append(result)
            self.on_result(result)

        self._in_parallel([partial(do, node) for node in nodes])
        return results

    def _locked(
        self, node: str, work: Callable[[Journal | None], NodeResult], busy: str = "failed"
    ) -> NodeResult:
        """Calls `work` with the node's last journal, under its lock. Returns the result."""
        try:
            with self.store.lock(node) as is_locked:
                if is_locked:
                    return work(self.store.load(node))
                return NodeResult(node=node, result=busy, error=BUSY)
        except DnmError as error:
            return NodeResult(node=node, result="failed", error=str(error))

    def _in_parallel(self, work: Sequence[Callable[[], None]]) -> None:
        with ThreadPoolExecutor(max(1, min(len(work), self.settings.parallel))) as pool:
            for future in [pool.submit(function) for function in work]:
                future.result()

    def new_journal(
        self,
        node: str,
        direction: Direction,
        facts: Mapping[str, str],
        namespace: str = "",
        node_type: str = "",
    ) -> Journal:
        """Returns a new journal. If `node_type` is empty, the node's name determines its type."""
        return Journal(
            node=node,
            operation=new_operation(),
            direction=direction,
            instance=self.settings.instance,
            node_type=node_type or self.settings.type_of(node),
            namespace=namespace,
            request=self.settings.request,
            begun=datetime.now(UTC),
            facts=facts,
        )

    def carry_on(self, journal: Journal) -> NodeResult:
        """Runs the journal's conversion to its end. The caller holds the node's lock."""
        began = datetime.now(UTC)
        writer = JournalWriter(self.store, journal)

        def log(text: str) -> None:
            self.log(f"{journal.node}: {text}")

        conversion = NodeConversion(self.settings, writer, self.control, log, self.sides)
        try:
            writer.change()
            if journal.direction is Direction.K8S:
                result, error = self._to_k8s(conversion)
            else:
                result, error = self._to_batch(conversion)
        except (Interrupted, DnmError) as failure:
            result, error = "failed", str(failure)
        return NodeResult(
            node=journal.node, result=result, error=error, stages=stages_of(writer.journal, began)
        )

    def _to_k8s(self, conversion: NodeConversion) -> tuple[str, str]:
        if not conversion.journal.is_done("select"):
            verdict = conversion.journal.facts.get(_VERDICT, "")
            conversion.writer.write("select", StageMark.DONE, verdict)
        try:
            run_stages(conversion, self.program.claiming)
            self.on_claimed(conversion.node)  # from here on only the whole return leads back
            run_stages(conversion, self.program.lending)
        except DnmError as error:
            return self._turn_round(conversion, error)
        conversion.writer.remember(NO_FAILURE)
        if conversion.journal.way is Direction.BATCH:
            conversion.writer.change(direction=Direction.BATCH)
            return self._to_batch(conversion)
        conversion.writer.close()
        return "ok", ""

    def _turn_round(self, conversion: NodeConversion, error: DnmError) -> tuple[str, str]:
        """Rolls back a lend that has failed, or returns a message with the next step."""
        conversion.log(f"failed: {error}")
        if not isinstance(error, NotClaimed):
            conversion.writer.remember(count_failure(conversion.journal, datetime.now(UTC)))
        journal = conversion.journal
        if not (journal.has_begun("claim") or journal.facts.get(RESERVING)):
            conversion.writer.close(str(error))  # the node's owner keeps it
            return "skipped" if isinstance(error, NotClaimed) else "failed", str(error)
        conversion.writer.change(direction=Direction.BATCH, rolled_back_from=str(error))
        result, return_error = self._to_batch(conversion)
        is_back = result in ("ok", "skipped")
        if is_back and isinstance(error, NotClaimed):
            return "skipped", str(error)
        return "failed", f"{error}; {'it was returned to Slurm' if is_back else return_error}"

    def _to_batch(self, conversion: NodeConversion) -> tuple[str, str]:
        program, was_claimed_here = self.program, conversion.journal.has_begun("claim")
        note = ""
        try:
            if was_claimed_here and not program.has_touched(conversion.journal):
                # This runs also after a signal: no later call continues a mere claim.
                note = run_stage(conversion, to_batch.GIVE_BACK)
            else:
                conversion.check_control()
                # The actual state decides whether it is back, not the journal.
                run_stage(conversion, program.check)
                if program.reopen_stages:
                    program.reopen_stages(conversion)
                else:
                    conversion.writer.reopen([stage.name for stage in program.returning])
                run_stages(conversion, program.returning)
        except to_batch.AlreadyBack as known:
            conversion.writer.close()
            return "skipped", str(known)
        except DnmError as error:
            was_changed = was_claimed_here or program.has_touched(conversion.journal)
            if not was_changed and not conversion.journal.has_begun(program.returning[0].name):
                conversion.writer.close(str(error))  # nothing was done to it
                return "failed", str(error)
            conversion.writer.change(error=str(error))
            is_in_slurm = self.settings.machines is not Machines.BRIDGED  # all the time
            where = f", drained in Slurm and reserved as {conversion.reservation}"
            stays = f"{conversion.node} stays as it is{where if is_in_slurm else ''}"
            return "failed", f"{error}; {stays}: fix the cause, then {conversion.todo}"
        conversion.writer.close(conversion.journal.rolled_back_from)
        return "ok", note


def _skip(node: str, reason: str) -> NodeResult:
    return NodeResult(node=node, result="skipped", error=reason)
