"""A call of a converter that moves nodes: it chooses nodes, prints results and sets the exit code.

stdout has each converted node as soon as it is ready, or one JSON document at the end. Progress is
on stderr."""

from __future__ import annotations

import argparse
import sys
import threading
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TextIO

from dnm.converters import to_batch
from dnm.converters.claimed import Survey, judge_all
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
    """A call with its parsed options. `run` raises DnmError only before it changes anything."""

    options: argparse.Namespace
    settings: Settings
    program: Program
    control: StopRequest = field(default_factory=StopRequest)
    unreadable: list[str] = field(default_factory=list)  # messages with the next step
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
        _, judged, _ = judge_all(self.settings, self.program.judge, self._log, is_named)
        judged = [node for node in judged if self._is_meant(node)]
        candidates = [item for item in self._unfinished() if item.node not in self.options.exclude]
        unfinished = {candidate.node for candidate in candidates}
        candidates += [item for item in self._candidates(judged) if item.node not in unfinished]
        if not candidates:
            raise ConverterError(self._describe_none(judged))
        if self.options.dry_run:
            chosen, lending = candidates[:count], self.program.lending
            return self._show_plan(count, [(item.node, item.jobs, lending) for item in chosen])
        pool = self._pool()
        node_type, namespace = self.options.node_type or "", self.options.namespace or ""
        results = pool.lend(candidates, count, node_type, namespace)
        return self._end(results, count)

    def _is_meant(self, node: Judged) -> bool:
        if self.options.node_name:
            return bool(node.node.name == self.options.node_name)
        is_left_out = node.node.name in self.options.exclude
        return not is_left_out and self.settings.is_of_type(node.node.name, self.options.node_type)

    def _unfinished(self) -> list[Candidate]:
        """Returns the interrupted lends for this namespace, which go on before new ones begin."""
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

    def _unreadable(self, message: str) -> None:
        self.unreadable.append(message)
        self._log(f"{self.settings.machines.value}: {message}")

    def _candidates(self, judged: Iterable[Judged]) -> list[Candidate]:
        allowed = {ListVerdict.OK, *([ListVerdict.PREEMPT] if self.settings.allow_preempt else ())}
        return [
            Candidate(
                node=node.node.name, why=_basis(node), jobs=",".join(job.id for job in node.jobs)
            )
            for node in judged
            if node.verdict in allowed
        ]

    def _describe_none(self, judged: Sequence[Judged]) -> str:
        if not judged and self.options.exclude:
            return "Slurm knows no node of this type that --exclude does not name"
        if not judged:
            return f"Slurm knows no node {self.options.node_name or 'of this type'}"
        reasons = "; ".join(f"{node.node.name}: {node.reason}" for node in judged[:5])
        hint = ""
        if any(node.verdict is ListVerdict.PREEMPT for node in judged):
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
        """Returns the nodes to return: interrupted returns, then those with the fewest pods."""
        seen = judge_all(self.settings, self.program.judge, self._log)
        lent = [
            node.node.name
            for node in seen.judged
            if self._is_meant(node) and self._is_lent(node.node, seen)
        ]
        returning = {
            item.node for item in self._open_journals() if item.direction is Direction.BATCH
        }
        kube = KubeSide(self.settings)
        pods = {
            node: sum(not pod.stays for pod in kube.read_pods_to_evict(node))
            for node in lent
            if node not in returning
        }
        return sorted(lent, key=lambda node: (pods.get(node, -1), node))[:count]

    def _is_lent(self, node: SlurmNode, seen: Survey) -> bool:
        if node.state.base == ABSENT:
            return node.name in (seen.claimed.claims or {})
        if other_instance(self.settings, node):
            return False
        is_own = is_own_reason(self.settings, reason_of_drain(node))
        return is_own or node.name in seen.facts.in_own_reservations(self.settings.res_name)

    def _resume(self) -> int:
        journals = [
            journal
            for journal in self._open_journals()
            if journal.node == (self.options.node_name or journal.node)
            and journal.node_type == (self.options.node_type or journal.node_type)
        ]
        if self.options.dry_run:
            plans = [(journal.node, "", self._way_back(journal)) for journal in journals]
            return self._show_plan(len(journals), plans)
        if not journals:
            self._log("nothing to resume")
            return self._end([], len(self.unreadable))
        connect_slurm(self.settings).check_controller()
        return self._end(self._pool().resume(journals), len(journals) + len(self.unreadable))

    def _pool(self) -> ConversionPool:
        store = JournalStore(self.settings.state_dir)
        return ConversionPool(
            self.settings, self.program, store, self.control, self._log, self._on_result,
            self._name,
        )  # fmt: skip

    def _name(self, node: str) -> None:
        """Prints a claimed or returned node at once, so that dnm reads it even after a kill."""
        if self.options.output == "text":
            self._print(node)

    def _log(self, text: str) -> None:
        self._print(printable(text), sys.stderr)

    def _print(self, text: str, to: TextIO | None = None) -> None:
        """Prints a line and ignores errors: a conversion continues after its ssh session ended."""
        with self._lock, suppress(OSError):
            print(text, file=to, flush=True)

    def _on_result(self, result: NodeResult) -> None:
        is_lending = self.options.direction == Direction.K8S.value  # its name is printed already
        if result.result == "ok" and not is_lending:
            self._name(result.node)
        if result.error:
            self._log(f"{result.node}: {result.result}: {result.error}")
        if self.settings.wake is not None:
            with suppress(OSError), fault_point("convert.wake"):
                self.settings.wake.touch(0o600)

    def _way_back(self, journal: Journal | None = None) -> Sequence[Stage]:
        """Returns the stages of a return. For a node that is only claimed, GIVE_BACK is enough."""
        if journal and journal.direction is Direction.K8S and not self.program.has_touched(journal):
            return (to_batch.GIVE_BACK,)
        return self.program.check, *self.program.returning

    def _show_plan(self, count: int, plans: Sequence[tuple[str, str, Sequence[Stage]]]) -> int:
        """Prints the stages for each node and the jobs that would be preempted for it."""
        for node, jobs, stages in plans:
            for stage in stages:
                for line in stage.lines(DryRun(self.settings, node, jobs)):
                    print(f"{node} {stage.name}: {line}")
        if len(plans) < count:
            self._log(f"only {len(plans)} of {count} node(s) could be converted now")
        return ExitCode.OK if len(plans) >= count else ExitCode.FAILED

    def _end(self, results: Sequence[NodeResult], count: int) -> int:
        """Prints the results and returns the exit code. A node already in Slurm needs no return."""
        if self.options.output == "json":
            self._print(json_text({"schema": SCHEMA, "nodes": list(results)}))
        is_lending = self.options.direction == Direction.K8S.value
        good = ("ok",) if is_lending else ("ok", "skipped")
        done = sum(result.result in good for result in results)
        if done < count:
            self._log(f"{done} of {count} node(s) converted")
        return ExitCode.OK if done >= count else ExitCode.FAILED


def _basis(node: Judged) -> str:
    """Returns the reason why a node may be lent, for its journal."""
    if node.verdict is ListVerdict.PREEMPT:
        return node.reason
    return f"idle for {format_duration(node.idle)}" if node.idle is not None else "idle"
