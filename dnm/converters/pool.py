"""Several nodes at once: who is taken next, what a failure leads to, and what is reported.

Each node has a thread, a lock and a journal of its own. A node that can't be claimed is replaced by
the next candidate. A failure is rolled back as far as that is safe; what can't be rolled back stays
drained and reserved, and the message says what to do.
"""

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
    Book,
    Direction,
    Journal,
    JournalStore,
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
    """Returns the program that moves such machines; what only another one needs isn't loaded."""
    if machines is Machines.PODS:
        from dnm.converters import nodeset_stages

        return nodeset_stages.PROGRAM
    if machines is Machines.BRIDGED:
        from dnm.converters import bridge_stages

        return bridge_stages.PROGRAM
    return to_batch.PROGRAM


class Candidate(Value, frozen=True):
    """A node to be lent, and why it may be. `jobs`: those to be preempted, comma-separated ids."""

    node: str
    why: str = ""
    jobs: str = ""


@dataclass(eq=False)
class ConversionPool:
    """What all nodes of one call share."""

    settings: Settings
    program: Program
    store: JournalStore
    control: StopRequest
    say: Callable[[str], None]
    on_result: Callable[[NodeResult], None]
    on_claimed: Callable[[str], None] = lambda node: None
    sides: Sides = BY_SETTINGS
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def lend(
        self, candidates: Sequence[Candidate], count: int, node_type: str, namespace: str
    ) -> list[NodeResult]:
        """Converts up to `count` of the candidates and returns what came of each that was tried. It
        gives up after `count` failures; candidates that somebody else took are none."""
        waiting = list(candidates)
        results: list[NodeResult] = []
        failures = 0

        def lend_one() -> None:
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

        self._in_parallel([lend_one] * count)
        return results

    def _lend(
        self, candidate: Candidate, node_type: str, namespace: str, journal: Journal | None
    ) -> NodeResult:
        node = candidate.node
        if journal is None or not journal.is_open:
            facts = {_VERDICT: candidate.why, JOBS: candidate.jobs, **carry_over(journal)}
            journal = self.new_journal(node, Direction.K8S, facts, namespace, node_type)
        elif journal.instance != self.settings.instance:
            return _skipped(node, f"instance {journal.instance} works on it")
        elif journal.way is Direction.BATCH:
            if self.program.has_touched(journal) or not journal.has_begun("claim"):
                return _skipped(node, "it is on its way back; --resume finishes that")
            back = self._resume(node, journal)
            why = "what an earlier conversion had claimed of it was given back"
            return back if back.result == "failed" else _skipped(node, why)
        elif journal.namespace != namespace:
            why = f"its conversion for '{journal.namespace}' is unfinished; --resume gives it back"
            return _skipped(node, why)
        request, account = self.settings.request, self.settings.account
        charged = {**journal.facts, **({ACCOUNT: account} if account else {})}
        return self.carry_on(msgspec.structs.replace(journal, request=request, facts=charged))

    def bring_back(self, nodes: Iterable[str]) -> list[NodeResult]:
        return self._each(nodes, self._bring_back)

    def _bring_back(self, node: str, journal: Journal | None) -> NodeResult:
        if journal is None or not journal.is_open:
            is_lent = journal and (journal.direction is Direction.K8S or journal.error)
            known = journal if is_lent else None  # an error: it was not given back after all
            served = (known.namespace, known.node_type) if known else ()
            journal = self.new_journal(node, Direction.BATCH, carry_over(journal), *served)
        elif journal.instance != self.settings.instance:
            raise DnmError(f"instance {journal.instance} works on it")
        return self.carry_on(msgspec.structs.replace(journal, direction=Direction.BATCH))

    def resume(self, journals: Sequence[Journal]) -> list[NodeResult]:
        """Takes up open journals, back to Slurm: whether a lending that was interrupted is still
        wanted nobody here knows. Who does goes on with it by `lend`."""
        return self._each([journal.node for journal in journals], self._resume)

    def _resume(self, node: str, journal: Journal | None) -> NodeResult:
        if journal is None or not journal.is_open:
            return _skipped(node, "another converter has finished it")
        if self._is_counted(journal):
            return _skipped(node, "dnm counts it as lent, and returns it when it is idle")
        return self.carry_on(msgspec.structs.replace(journal, direction=Direction.BATCH))

    def _is_counted(self, journal: Journal) -> bool:
        """Whether the conversion had as good as ended, and the Node serves: it has dnm's mark."""
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
        """What comes of the work with the node's lock, and its last journal."""
        try:
            with self.store.lock(node) as is_ours:
                if is_ours:
                    return work(self.store.load(node))
                return NodeResult(node=node, result=busy, error=BUSY)
        except DnmError as error:
            return NodeResult(node=node, result="failed", error=str(error))

    def _in_parallel(self, work: Sequence[Callable[[], None]]) -> None:
        with ThreadPoolExecutor(max(1, min(len(work), self.settings.parallel))) as pool:
            for future in [pool.submit(one) for one in work]:
                future.result()

    def new_journal(
        self,
        node: str,
        direction: Direction,
        facts: Mapping[str, str],
        namespace: str = "",
        node_type: str = "",
    ) -> Journal:
        """Returns one that begins now, of the node's own type where none is named."""
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
        """Goes on from where the journal stands to its end, with the node's lock held."""
        began = datetime.now(UTC)
        book = Book(self.store, journal)

        def say(text: str) -> None:
            self.say(f"{journal.node}: {text}")

        conversion = NodeConversion(self.settings, book, self.control, say, self.sides)
        try:
            book.change()
            if journal.direction is Direction.K8S:
                result, error = self._to_k8s(conversion)
            else:
                result, error = self._to_batch(conversion)
        except (Interrupted, DnmError) as failure:
            result, error = "failed", str(failure)
        return NodeResult(
            node=journal.node, result=result, error=error, stages=stages_of(book.journal, began)
        )

    def _to_k8s(self, conversion: NodeConversion) -> tuple[str, str]:
        if not conversion.journal.is_done("select"):
            why = conversion.journal.facts.get(_VERDICT, "")
            conversion.book.write("select", StageMark.DONE, why)
        try:
            run_stages(conversion, self.program.claiming)
            self.on_claimed(conversion.node)  # from here on only the whole way back leads back
            run_stages(conversion, self.program.lending)
        except DnmError as error:
            return self._turn_round(conversion, error)
        conversion.book.remember(NO_FAILURE)
        if conversion.journal.way is Direction.BATCH:
            conversion.book.change(direction=Direction.BATCH)
            return self._to_batch(conversion)
        conversion.book.close()
        return "ok", ""

    def _turn_round(self, conversion: NodeConversion, error: DnmError) -> tuple[str, str]:
        """A failed conversion: rolled back, or left where it is with a word on what to do."""
        conversion.say(f"failed: {error}")
        if not isinstance(error, NotClaimed):
            conversion.book.remember(count_failure(conversion.journal, datetime.now(UTC)))
        journal = conversion.journal
        if not (journal.has_begun("claim") or journal.facts.get(RESERVING)):
            conversion.book.close(str(error))  # whoever has the node keeps it
            return "skipped" if isinstance(error, NotClaimed) else "failed", str(error)
        conversion.book.change(direction=Direction.BATCH, rolled_back_from=str(error))
        result, why = self._to_batch(conversion)
        is_back = result in ("ok", "skipped")
        if is_back and isinstance(error, NotClaimed):
            return "skipped", str(error)
        return "failed", f"{error}; {'it was returned to Slurm' if is_back else why}"

    def _to_batch(self, conversion: NodeConversion) -> tuple[str, str]:
        program, was_claimed_here = self.program, conversion.journal.has_begun("claim")
        note = ""
        try:
            if was_claimed_here and not program.has_touched(conversion.journal):
                # Told to stop too: what is only claimed nobody takes up.
                note = run_stage(conversion, to_batch.GIVE_BACK)
            else:
                conversion.check_control()
                # Whether it is back already is looked up every time, never remembered.
                run_stage(conversion, program.check)
                if program.forget_what_is_undone:
                    program.forget_what_is_undone(conversion)
                else:
                    conversion.book.reopen([stage.name for stage in program.returning])
                run_stages(conversion, program.returning)
        except to_batch.AlreadyBack as known:
            conversion.book.close()
            return "skipped", str(known)
        except DnmError as error:
            was_changed = was_claimed_here or program.has_touched(conversion.journal)
            if not was_changed and not conversion.journal.has_begun(program.returning[0].name):
                conversion.book.close(str(error))  # nothing was done to it
                return "failed", str(error)
            conversion.book.change(error=str(error))
            is_known = self.settings.machines is not Machines.BRIDGED  # to Slurm, all the time
            where = f", drained in Slurm and reserved as {conversion.reservation}"
            stays = f"{conversion.node} stays as it is{where if is_known else ''}"
            return "failed", f"{error}; {stays}: mend the cause, then {conversion.todo}"
        conversion.book.close(conversion.journal.rolled_back_from)
        return "ok", note


def _skipped(node: str, why: str) -> NodeResult:
    return NodeResult(node=node, result="skipped", error=why)
