"""The state of a run that executes its plan, and reads and writes that several actions share."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime
from typing import TypeAlias

from msgspec.structs import replace

from dnm.converter.contract import LEAVE_DRAINED
from dnm.demand.daemon_pods import own_pods, verify_pods
from dnm.kube.client import KubeClient
from dnm.kube.errors import repeat_on_conflict
from dnm.model.cluster import PodOnNode
from dnm.model.config import Config
from dnm.model.errors import ConverterError, KubeError
from dnm.model.lent import LentNode
from dnm.model.node import Node
from dnm.model.node_type import Taint
from dnm.model.plan import Action
from dnm.model.pod import Pod
from dnm.model.registry import Registry
from dnm.model.value import Unreadable
from dnm.record.recording import record_change
from dnm.record.transitions import Cause
from dnm.run.planning import Edges
from dnm.run.registry import save_registry
from dnm.run.state import State

log = logging.getLogger("dnm")

Clock: TypeAlias = Callable[[], datetime]


class Step:
    """The state of a run that executes its plan: registry, completed actions and errors."""

    def __init__(
        self,
        config: Config,
        edges: Edges,
        state: State,
        should_stop: Callable[[], bool],
        clock: Clock,
    ) -> None:
        self.config = config
        self.kube, self.converter = edges
        self.state = state
        self.should_stop = should_stop
        self.clock = clock
        self.registry = Registry()
        self.run = ""
        self.reasons: Mapping[str, str] = {}  # by node
        self.uids: Mapping[str, str] = {}  # of the Nodes that the plan is based on
        self.done: list[Action] = []
        self.actions: list[str] = []
        self.errors: list[str] = []
        self.unmarked: set[str] = set()
        self.unwritten = {*state.unexcluded}  # queues whose limits could not be written
        self.tried: set[str] = set()  # requests with an attempt to start their converter

    def save(self, registry: Registry) -> None:
        """Saves the registry if it has changed, and adds the change to the history."""
        if registry != self.registry:
            registry = record_change(self.registry, registry, self.cause())
        self.replace_registry(registry)

    def save_node(self, name: str, entry: LentNode) -> None:
        """Saves the registry with a changed entry of a lent node."""
        self.save(replace(self.registry, nodes={**self.registry.nodes, name: entry}))

    def cause(self) -> Cause:
        """Returns what the history records of a change: its time, this run, and the instance."""
        return Cause(now=self.clock(), run=self.run, instance=self.config.instance_id)

    def replace_registry(self, registry: Registry) -> None:
        """Saves the registry with its history lines. All other methods save it by this one."""
        save_registry(self.config, registry, self.state)
        self.registry = registry

    def note_done(
        self, line: str, about: str = "", why: str = "", *, is_logged: bool = True
    ) -> None:
        """Records a completed action and logs it with its reason. The reason is `why`, or if that
        is empty, the plan's reason for the node `about`."""
        why = why or self.reasons.get(about, "")
        suffix = f" reason={why!r}" if why else ""
        if is_logged:
            log.info("%s%s instance=%s", line, suffix, self.config.instance_id)
        self.actions.append(line)

    def fail(self, line: str) -> None:
        """Logs a failed action and records it as an error, which decides the exit code."""
        log.error("%s", line)
        self.errors.append(line)

    def may_go_on(self) -> bool:
        """Renews the Lease. Returns False if the run must stop between two parts of an action."""
        self.state.keep()
        return not self.should_stop()

    def patch(
        self,
        name: str,
        is_wanted: Callable[[Node], bool],
        *,
        cordon: bool | None = None,
        annotations: Mapping[str, str | None],
        labels: Mapping[str, str | None] = {},
        taints: Callable[[Node], Sequence[Taint] | None] = lambda node: None,
    ) -> bool:
        """Reads the Node and patches it under its resourceVersion. Returns False without a patch if
        `is_wanted` returns False for the Node. If another client writes the Node in between, reads
        and patches it again, for at most the time of a request."""

        def attempt() -> bool:
            node = self.kube.read_node(name)
            if node is None:
                raise KubeError(f"Node {name} is gone from Kubernetes")
            if self.uids.get(name, node.uid) != node.uid or not is_wanted(node):
                return False
            self.state.keep()  # raises if another run acts since a sleep of this one
            self.kube.patch_node(
                name,
                resource_version=node.resource_version,
                cordon=cordon,
                annotations=annotations,
                labels=labels,
                taints=taints(node),
            )
            return True

        return repeat_on_conflict(attempt, self.config.request_timeout)

    def find_work(self, node: Node) -> str | None:
        """Returns why the node is not idle, or None if no pod counts as work. Raises KubeError."""
        pods = _verified_pods(self.kube, node, own_pods(self.registry))
        if isinstance(pods, Unreadable):
            return pods.error
        return "a pod started on it" if any(pod.counts_as_work for pod in pods) else None

    def batch_obstacle(self, name: str) -> str | None:
        """Returns what in Slurm forbids a call of the converter for the node: Slurm has the node in
        service, or another converter is active on it. Returns None if nothing does."""
        listed = self.converter.list_nodes(name)
        if isinstance(listed, Unreadable):
            raise ConverterError(f"{listed.error}; {name} is left as it is")
        listed_node = listed.nodes.get(name)
        if listed_node is None or listed_node.in_service is None:
            return "Slurm's view of it is unknown"
        if listed_node.claim is not None and listed_node.claim.is_at_work:
            return "a converter is at work on it"
        entry = self.registry.nodes.get(name)
        if entry is not None and entry.fault and not listed.leaves_drained:
            raise ConverterError(
                f"{name} is faulty ({entry.fault}), and its converter can't leave it drained "
                f"({LEAVE_DRAINED}): return it and drain it manually, then `dnm forget {name}`"
            )
        return "Slurm has it in service" if listed_node.in_service else None


# --- pods of a node: one that only claims to be a DaemonSet's is work --------


def read_pods_to_evict(kube: KubeClient, node: Node) -> Sequence[PodOnNode]:
    """Returns the unfinished pods on a node, with the fields that eviction needs. If the DaemonSets
    cannot be read, a pod that claims to belong to one is not evicted. Raises KubeError."""
    listed = kube.read_pods_to_evict(node.name)
    if all(pod.is_work for pod in listed):
        return listed
    pods = _verified_pods(kube, node, ())
    work = () if isinstance(pods, Unreadable) else {p.uid for p in pods if p.counts_as_work}
    return [
        replace(pod, is_work=True, stays=False) if not pod.is_work and pod.uid in work else pod
        for pod in listed
    ]


def _verified_pods(
    kube: KubeClient, node: Node, own: Collection[str]
) -> tuple[Pod, ...] | Unreadable:
    pods = kube.read_pods_on(node.name)
    if not any(pod.is_daemonset for pod in pods):
        return pods
    daemon_sets = kube.read_daemon_sets()
    if isinstance(daemon_sets, Unreadable):
        return daemon_sets
    return verify_pods(pods, daemon_sets, (node,), own)
