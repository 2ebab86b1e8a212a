"""What a run asks of the API, and what happens without it; etc/rbac.yaml grants exactly this."""

from __future__ import annotations

from collections.abc import Iterator

from dnm.model.config import Config
from dnm.model.value import Value
from dnm.queues.source import DEFAULTS_NAME


class Permission(Value, frozen=True):
    """Something a run does. `is_needed` is False where a run goes on without it, knowing less."""

    verb: str
    resource: str  # with its subresource: pods/eviction
    without: str  # what happens without it
    namespace: str = ""  # empty: cluster-wide
    name: str = ""
    group: str = ""
    is_needed: bool = True


_IN_LARGE_CLUSTERS = "in a large cluster every run reads the full lists"
_PULLS = "dnm pulls no image and starts no probe on a node that joins"
_FOR_CHANGES = (
    Permission(verb="watch", resource="nodes", is_needed=False, without=_IN_LARGE_CLUSTERS),
    Permission(verb="watch", resource="pods", is_needed=False, without=_IN_LARGE_CLUSTERS),
    Permission(verb="get", resource="namespaces", name="kube-system", is_needed=False,
               without=_IN_LARGE_CLUSTERS),
)  # fmt: skip


def _for_state(config: Config) -> Iterator[Permission]:
    """What the Lease needs, and a registry in Kubernetes."""
    name = config.object_name
    for resource, group, namespace, what in (
        (
            "leases",
            "coordination.k8s.io",
            config.lease_namespace,
            "nothing is lent or returned, because another dnm may act as this instance",
        ),
        (
            "secrets",
            "",
            config.state_namespace,
            "the registry cannot be read or written, and nothing is done",
        ),
    )[: 2 if config.state == "kubernetes" else 1]:
        yield from (
            Permission(verb=verb, resource=resource, group=group, without=what,
                       namespace=namespace, name="" if verb == "create" else name)
            for verb in ("get", "patch", "create")
        )  # fmt: skip


def _for_opening(config: Config) -> Iterator[Permission]:
    """What the steps take by which nodes are opened."""
    kinds = {step.kind for node_type in config.node_types.values() for step in node_type.opens_when}
    if "probe" in kinds:
        why = "no node is opened whose type has a probe"
        yield Permission(verb="get", resource="podtemplates", without=why)
    if kinds & {"image", "images", "probe"}:
        yield Permission(verb="create", resource="pods", is_needed=False, without=_PULLS)
        why = "dnm leaves its own pods on nodes that it has opened"
        yield Permission(verb="delete", resource="pods", is_needed=False, without=why)


def permissions(config: Config) -> tuple[Permission, ...]:
    """What a run asks for; etc/rbac.yaml grants exactly this."""
    where, name = config.queue_document
    only_converter = "node-convert can't do it, where it uses dnm's kubeconfig"
    return (
        Permission(verb="list", resource="nodes", without="nothing is decided"),
        Permission(verb="get", resource="nodes", without="no node is fenced or returned"),
        Permission(verb="patch", resource="nodes", without="no node is marked or fenced"),
        Permission(verb="list", resource="pods",
                   without="pods are read by namespace, and no node is ever returned, since pods "
                   "of any namespace may run on it"),
        Permission(verb="list", resource="daemonsets", group="apps",
                   without="no node with a DaemonSet's pod is returned, since any pod may claim to "
                   "be one, and no node is opened whose type waits for DaemonSets"),
        *_FOR_CHANGES,
        Permission(verb="get", resource="configmaps", namespace=where, name=name,
                   without="the queues are not known"),
        Permission(verb="update", resource="configmaps", namespace=where, name=name,
                   without="no limit is changed, and no new node serves"),
        Permission(verb="get", resource="configmaps", namespace=where, name=DEFAULTS_NAME,
                   is_needed=False, without="queues that stand only there are not known"),
        Permission(verb="list", resource="persistentvolumeclaims", is_needed=False,
                   without="pending pods with claims count for nothing"),
        Permission(verb="list", resource="persistentvolumes", is_needed=False,
                   without="pending pods with claims count for nothing"),
        Permission(verb="delete", resource="nodes", is_needed=False, without=only_converter),
        Permission(verb="create", resource="pods/eviction", is_needed=False,
                   without=f"`dnm return --evict` is refused, and {only_converter}"),
        *_for_state(config),
        *_for_opening(config),
        Permission(verb="create", resource="events", namespace="default", is_needed=False,
                   group="events.k8s.io", without="kubectl does not show what becomes of nodes"),
    )  # fmt: skip
