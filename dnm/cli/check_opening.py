"""What `dnm check` says of lists by which node types open: rights, and DaemonSets kept off; and
of signs of a fault, with which a node must be able to go back."""

from __future__ import annotations

from collections.abc import Iterator

from dnm.cli.findings import Finding, doubtful, fine, wrong
from dnm.converter.contract import LEAVE_DRAINED
from dnm.demand.constraints import NodeTraits, tolerates, why_unfit
from dnm.kube.client import KubeClient
from dnm.kube.opening import list_daemons
from dnm.model.batch import BatchList
from dnm.model.close_look import CLOSED
from dnm.model.config import Config
from dnm.model.node_type import NodeType
from dnm.model.opening import OPENING_TAINT

_PULLS = "dnm pulls no image and starts no probe on a node that joins"


def opening_rights(config: Config) -> Iterator[tuple[str, str, str, bool, str]]:
    """Yields what the steps take: verb, resource, group, whether nothing opens without it, why."""
    kinds = {step.kind for one in config.node_types.values() for step in one.opens_when}
    if kinds & {"daemonset", "daemonsets"}:
        why = "no node is opened whose type waits for DaemonSets"
        yield "list", "daemonsets", "apps", True, why
    if "probe" in kinds:
        yield "get", "podtemplates", "", True, "no node is opened whose type has a probe"
    if kinds & {"image", "images", "probe"}:
        yield "create", "pods", "", False, _PULLS
        yield "delete", "pods", "", False, "dnm leaves its own pods on nodes that it has opened"


def check_opening(config: Config, kube: KubeClient) -> Iterator[Finding]:
    """DaemonSets that a node waits for, and whose pods its taint keeps off."""
    waiting = [one for one in config.node_types.values() if _waits_for_all(one)]
    if not waiting:
        return
    daemons = list_daemons(kube.requests)
    for one in waiting:
        traits = NodeTraits(labels=one.labels, taints=one.taints)
        late = sorted(
            daemon.name
            for daemon in daemons
            if not tolerates(daemon.shape.tolerations, CLOSED)
            and not why_unfit(daemon.shape, (), traits)
        )
        if late:
            yield doubtful(
                "opening",
                f"nodes of type {one.name} wait for every DaemonSet, and these do not tolerate "
                f"{OPENING_TAINT}: {', '.join(late)}",
                "give them the toleration, or name in opens_when those that matter",
            )
        else:
            yield fine("opening", f"the DaemonSets that nodes of type {one.name} wait for can come")


def _waits_for_all(node_type: NodeType) -> bool:
    return any(step.kind == "daemonsets" for step in node_type.opens_when)


def check_sick(config: Config, listed: BatchList) -> Iterator[Finding]:
    """A converter that would resume a sick node is not called for one."""
    if config.sick_when and not listed.leaves_drained:
        yield wrong(
            "sick_when",
            f"the converter does not name {LEAVE_DRAINED} among its options: a node that shows one "
            "of the signs is emptied, and stays lent",
            "have it leave such a node drained, and say so in its list (docs/json.md), or leave "
            "sick_when out",
        )
