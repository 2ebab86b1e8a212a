"""One call that converts: which nodes, in which direction, what is printed, the exit code.

stdout has the names of converted nodes as they come, or one JSON document at the end; progress goes
to stderr.
"""

from __future__ import annotations

import argparse
import sys
import threading
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TextIO

from dnm.converters import to_batch
from dnm.converters.claimed import Looked, look
from dnm.converters.conversion import DryRun, Program, Stage, StopRequest
from dnm.converters.hooks import check_kubelets
from dnm.converters.journal import SCHEMA, Direction, Journal, JournalStore, NodeResult
from dnm.converters.kube_side import KubeSide
from dnm.converters.listing import connect_slurm
from dnm.converters.marks import is_own_reason, other_instance, reason_of_drain
from dnm.converters.pool import Candidate, ConversionPool
from dnm.converters.select import Judged, ListVerdict, format_duration
from dnm.converters.settings import Settings
from dnm.converters.slurm.text import SlurmNode
from dnm.host.fault_points import fault_point
from dnm.model.errors import ConverterError, ExitCode
from dnm.model.printable import json_text, printable
from dnm.model.slurm_state import ABSENT


@dataclass(eq=False)
class ConvertCall:
    """The parsed command line at work. `run` raises DnmError before anything is touched."""

    options: argparse.Namespace
    settings: Settings
    program: Program
    control: StopRequest = field(default_factory=StopRequest)
    unreadable: list[str] = field(default_factory=list)  # journals, each with what to do
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def run(self) -> int:
        self.control.listen()
        connect_slurm(self.settings).check_changes()
        if self.options.resume:
            return self._resume()
        if self.options.direction == Direction.K8S.value:
            return self._to_k8s()
        return self._to_batch()

    def _to_k8s(self) -> int:
        self.program.check_settings(self.settings)
        node_type = self.options.node_type or self.settings.type_of(self.options.node_name or "")
        check_kubelets(self.settings, node_type)
        count, is_named = self.options.num_nodes or 1, bool(self.options.node_name)
        _, judged, _ = look(self.settings, self.program.judge, self._say, is_named)
        judged = [one for one in judged if self._is_meant(one)]
        candidates = [one for one in self._unfinished() if one.node not in self.options.exclude]
        known = {candidate.node for candidate in candidates}
        candidates += [one for one in self._candidates(judged) if one.node not in known]
        if not candidates:
            raise ConverterError(self._why_none(judged))
        if self.options.dry_run:
            chosen, lending = candidates[:count], self.program.lending
            return self._show_plan(count, [(one.node, one.jobs, lending) for one in chosen])
        pool = self._pool()
        node_type, namespace = self.options.node_type or "", self.options.namespace or ""
        results = pool.lend(candidates, count, node_type, namespace)
        return self._end(results, count)

    def _is_meant(self, one: Judged) -> bool:
        if self.options.node_name:
            return bool(one.node.name == self.options.node_name)
        is_left_out = one.node.name in self.options.exclude
        return not is_left_out and self.settings.is_of_type(one.node.name, self.options.node_type)

    def _unfinished(self) -> list[Candidate]:
        """Conversions that were interrupted count first: their nodes are out of service already."""
        return [
            Candidate(node=journal.node)
            for journal in self._open_journals()
            if journal.direction is Direction.K8S
            if journal.namespace == (self.options.namespace or "")
            if journal.node == self.options.node_name
            or (self.options.node_type and journal.node_type == self.options.node_type)
        ]

    def _open_journals(self) -> tuple[Journal, ...]:
        directory = self.settings.state_dir
        if not directory.exists():
            return ()
        return JournalStore(directory).load_open(self.settings.instance, self._unreadable)

    def _unreadable(self, why: str) -> None:
        self.unreadable.append(why)
        self._say(f"{self.settings.machines.value}: {why}")

    def _candidates(self, judged: Iterable[Judged]) -> list[Candidate]:
        wanted = {ListVerdict.OK, *([ListVerdict.PREEMPT] if self.settings.allow_preempt else ())}
        return [
            Candidate(node=one.node.name, why=_why(one), jobs=",".join(job.id for job in one.jobs))
            for one in judged
            if one.verdict in wanted
        ]

    def _why_none(self, judged: Sequence[Judged]) -> str:
        if not judged and self.options.exclude:
            return "Slurm knows no node of this type that --exclude does not name"
        if not judged:
            return f"Slurm knows no node {self.options.node_name or 'of this type'}"
        reasons = "; ".join(f"{one.node.name}: {one.reason}" for one in judged[:5])
        hint = ""
        if any(one.verdict is ListVerdict.PREEMPT for one in judged):
            hint = "; --allow-preempt would free one of its job"
        program = self.settings.machines.value
        return f"no node can be lent now ({reasons}){hint}; '{program} --list' shows all"

    def _to_batch(self) -> int:
        count = self.options.num_nodes or 1
        nodes = [self.options.node_name] if self.options.node_name else self._lent(count)
        if not nodes:
            raise ConverterError(f"no node of type {self.options.node_type} is lent")
        if self.options.dry_run:
            return self._show_plan(count, [(node, "", self._way_back()) for node in nodes])
        if self.options.node_name:
            connect_slurm(self.settings).check_controller()
        return self._end(self._pool().bring_back(nodes), count)

    def _lent(self, count: int) -> list[str]:
        """Those on their way back first, then those with the fewest pods that would be evicted."""
        found = look(self.settings, self.program.judge, self._say)
        lent = [
            one.node.name
            for one in found.judged
            if self._is_meant(one) and self._is_lent(one.node, found)
        ]
        returning = {one.node for one in self._open_journals() if one.direction is Direction.BATCH}
        kube = KubeSide(self.settings)
        pods = {
            node: sum(not pod.stays for pod in kube.read_pods_to_evict(node))
            for node in lent
            if node not in returning
        }
        return sorted(lent, key=lambda node: (pods.get(node, -1), node))[:count]

    def _is_lent(self, node: SlurmNode, found: Looked) -> bool:
        if node.state.base == ABSENT:
            return node.name in (found.claimed.claims or {})
        if other_instance(self.settings, node):
            return False
        is_ours = is_own_reason(self.settings, reason_of_drain(node))
        return is_ours or node.name in found.facts.in_own_reservations(self.settings.res_name)

    def _resume(self) -> int:
        journals = [
            journal
            for journal in self._open_journals()
            if journal.node == (self.options.node_name or journal.node)
            and journal.node_type == (self.options.node_type or journal.node_type)
        ]
        if self.options.dry_run:
            plans = [(one.node, "", self._way_back(one)) for one in journals]
            return self._show_plan(len(journals), plans)
        if not journals:
            self._say("nothing to resume")
            return self._end([], len(self.unreadable))
        connect_slurm(self.settings).check_controller()
        return self._end(self._pool().resume(journals), len(journals) + len(self.unreadable))

    def _pool(self) -> ConversionPool:
        store = JournalStore(self.settings.state_dir)
        return ConversionPool(
            self.settings, self.program, store, self.control, self._say, self._on_result,
            self._name,
        )  # fmt: skip

    def _name(self, node: str) -> None:
        """Once it is claimed: dnm must know it if this call ends before it has come; or is back."""
        if self.options.output == "text":
            self._print(node)

    def _say(self, text: str) -> None:
        self._print(printable(text), sys.stderr)

    def _print(self, text: str, to: TextIO | None = None) -> None:
        """A conversion goes on where nobody can be told: the other end of ssh may be gone."""
        with self._lock, suppress(OSError):
            print(text, file=to, flush=True)

    def _on_result(self, result: NodeResult) -> None:
        is_lending = self.options.direction == Direction.K8S.value  # has named it already
        if result.result == "ok" and not is_lending:
            self._name(result.node)
        if result.error:
            self._say(f"{result.node}: {result.result}: {result.error}")
        if self.settings.wake is not None:
            with suppress(OSError), fault_point("convert.wake"):
                self.settings.wake.touch(0o600)

    def _way_back(self, journal: Journal | None = None) -> Sequence[Stage]:
        """What was claimed and not touched is given back."""
        if journal and journal.direction is Direction.K8S and not self.program.has_touched(journal):
            return (to_batch.GIVE_BACK,)
        return self.program.check, *self.program.returning

    def _show_plan(self, count: int, plans: Sequence[tuple[str, str, Sequence[Stage]]]) -> int:
        """Prints what would be done, of nodes with the jobs that would be preempted."""
        for node, jobs, stages in plans:
            for stage in stages:
                for line in stage.lines(DryRun(self.settings, node, jobs)):
                    print(f"{node} {stage.name}: {line}")
        if len(plans) < count:
            self._say(f"only {len(plans)} of {count} node(s) could be converted now")
        return ExitCode.OK if len(plans) >= count else ExitCode.FAILED

    def _end(self, results: Sequence[NodeResult], count: int) -> int:
        """A node that is back already counts as brought back; a lent one must have come."""
        if self.options.output == "json":
            self._print(json_text({"schema": SCHEMA, "nodes": list(results)}))
        is_lending = self.options.direction == Direction.K8S.value
        good = ("ok",) if is_lending else ("ok", "skipped")
        done = sum(result.result in good for result in results)
        if done < count:
            self._say(f"{done} of {count} node(s) converted")
        return ExitCode.OK if done >= count else ExitCode.FAILED


def _why(one: Judged) -> str:
    """Why a node may be lent."""
    if one.verdict is ListVerdict.PREEMPT:
        return one.reason
    return f"idle for {format_duration(one.idle)}" if one.idle is not None else "idle"
