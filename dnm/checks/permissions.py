"""The API permissions that a run needs, and the effect of each missing one, as in etc/rbac.yaml."""

from __future__ import annotations

from collections.abc import Iterator

from dnm.checks.queue_checks import checks_of
from dnm.model.config import Config
from dnm.model.lease import LEASE_NAMESPACE
from dnm.model.permission import Permission

_IN_LARGE_CLUSTERS = "in a large cluster every run reads the full lists"
_PULLS = "dnm pulls no image and starts no probe on a node that joins"
_FOR_CHANGES = (
    Permission(verb="watch", resource="nodes", is_needed=False, without=_IN_LARGE_CLUSTERS),
    Permission(verb="watch", resource="pods", is_needed=False, without=_IN_LARGE_CLUSTERS),
    Permission(verb="get", resource="namespaces", name="kube-system", is_needed=False,
               without=_IN_LARGE_CLUSTERS),
)  # fmt: skip


def _for_state(config: Config) -> Iterator[Permission]:
    """Yields the permissions for the Lease, and for the Secret if it contains the registry."""
    name = config.object_name
    for resource, group, namespace, consequence in (
        (
            "leases",
            "coordination.k8s.io",
            LEASE_NAMESPACE,
            "nothing is lent or returned, because another dnm may act as this instance",
        ),
        (
            "secrets",
            "",
            config.registry_namespace,
            "the registry cannot be read or written, and nothing is done",
        ),
    )[: 2 if config.registry_storage == "kubernetes" else 1]:
        yield from (
            Permission(verb=verb, resource=resource, group=group, without=consequence,
                       namespace=namespace, name="" if verb == "create" else name)
            for verb in ("get", "patch", "create")
        )  # fmt: skip


def _for_opening(config: Config) -> Iterator[Permission]:
    """Yields the permissions that the configured readiness checks need."""
    kinds = {
        step.kind for node_type in config.node_types.values() for step in node_type.readiness_checks
    }
    if "probe" in kinds:
        why = "nodes of a type with a probe never become ready for pods"
        yield Permission(verb="get", resource="podtemplates", without=why)
    if kinds & {"image", "images", "probe"}:
        yield Permission(verb="create", resource="pods", is_needed=False, without=_PULLS)
        why = "dnm's own pods stay on nodes after the readiness checks"
        yield Permission(verb="delete", resource="pods", is_needed=False, without=why)


def permissions(config: Config) -> tuple[Permission, ...]:
    """Returns the permissions of a run; etc/rbac.yaml grants exactly these."""
    only_converter = "node-convert can't do it with dnm's kubeconfig"
    return (
        Permission(verb="list", resource="nodes", without="nothing is decided"),
        Permission(verb="get", resource="nodes", without="no node is fenced or returned"),
        Permission(verb="patch", resource="nodes", without="no node is marked or fenced"),
        Permission(verb="list", resource="pods",
                   without="pods are read by namespace, and no node is ever returned, since pods "
                   "of any namespace may run on it"),
        Permission(verb="list", resource="daemonsets", group="apps",
                   without="no node with a DaemonSet's pod is returned, since any pod may claim to "
                   "be one, and no node of a type that waits for DaemonSets is opened"),
        *_FOR_CHANGES,
        *(item for system in checks_of(config) for item in system.permissions(config)),
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
