"""The permissions of a client: all, or only those of RBAC rules (kubernetes.io, "Using RBAC")."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from dnm.lab.sandbox.store import ApiError, Object

USER = "system:serviceaccount:dnm:dnm"


class Attempt(NamedTuple):
    """The verb and the target of a request. `namespace` is empty for cluster-wide requests."""

    verb: str
    group: str
    resource: str  # with the subresource: pods/eviction
    namespace: str
    name: str


class RbacRule(NamedTuple):
    """An RBAC rule. `namespace` "*" applies to all namespaces, as with a ClusterRoleBinding."""

    verbs: tuple[str, ...]
    resources: tuple[str, ...]
    namespace: str = "*"
    names: tuple[str, ...] = ()
    groups: tuple[str, ...] = ("*",)

    def allows(self, attempt: Attempt) -> bool:
        return (
            _matches(self.verbs, attempt.verb)
            and _matches(self.resources, attempt.resource)
            and _matches(self.groups, attempt.group)
            and self.namespace in ("*", attempt.namespace)
            and (not self.names or attempt.name in self.names)
        )


class AccessRules:
    """The permissions of clients. `rules`: None allows all. `used`: the requests so far."""

    def __init__(self) -> None:
        self.rules: tuple[RbacRule, ...] | None = None
        self.token: str | None = None  # None: any, or none at all
        self.used: set[Attempt] = set()

    def restrict(self, allowed: Iterable[tuple[str, str, str]]) -> None:
        """Allows only these (verb, resource, namespace). "*" includes cluster-wide requests."""
        self.rules = tuple(RbacRule((verb,), (resource,), name) for verb, resource, name in allowed)

    def restrict_to_manifests(self, manifests: Iterable[Mapping[str, Any]]) -> None:
        """Allows what the ClusterRoles and Roles in these manifests permit, as if all were bound. A
        Role applies to its own namespace."""
        rules: list[RbacRule] = []
        for manifest in manifests:
            if manifest.get("kind") not in ("ClusterRole", "Role"):
                continue
            cluster_wide = manifest["kind"] == "ClusterRole"
            namespace = "*" if cluster_wide else manifest["metadata"].get("namespace", "default")
            rules += [_rule(entry, namespace) for entry in manifest.get("rules") or []]
        self.rules = tuple(rules)

    def allows(self, attempt: Attempt) -> bool:
        return self.rules is None or any(rule.allows(attempt) for rule in self.rules)

    def require(self, attempt: Attempt) -> None:
        """Records the request. Raises 403 with the API server's message if it is forbidden."""
        self.used.add(attempt)
        if self.allows(attempt):
            return
        where = (
            f'in the namespace "{attempt.namespace}"'
            if attempt.namespace
            else "at the cluster scope"
        )
        shown = f'{attempt.resource.partition("/")[0]} "{attempt.name}"' if attempt.name else (
            attempt.resource.partition("/")[0]
        )  # fmt: skip
        raise ApiError(
            403,
            f'{shown} is forbidden: User "{USER}" cannot {attempt.verb} resource '
            f'"{attempt.resource}" in API group "{attempt.group}" {where}',
        )

    def authenticate(self, headers: Mapping[str, str]) -> None:
        """Raises 401 if the sandbox requires a bearer token and the request has another one."""
        if self.token is not None and headers.get("authorization") != f"Bearer {self.token}":
            raise ApiError(401, "Unauthorized")


def _rule(entry: Mapping[str, Any], namespace: str) -> RbacRule:
    return RbacRule(
        tuple(entry["verbs"]),
        tuple(entry.get("resources") or ()),
        namespace,
        tuple(entry.get("resourceNames") or ()),
        tuple(entry.get("apiGroups") or ()),
    )


def _matches(allowed: tuple[str, ...], value: str) -> bool:
    return "*" in allowed or value in allowed


# --- node restriction ----------------------------------------------------------------------------

# The rights of a kubelet with the credentials of its node: the rights of `system:node`, and the
# admission plug-in NodeRestriction (kubernetes v1.30, plugin/pkg/admission/noderestriction and
# plugin/pkg/auth/authorizer/rbac/bootstrappolicy).
#
# A bearer token `system:node:NAME` is the credential of that node. Everything but Nodes is refused:
# no kubelet of the sandbox asks for it.

_TOKEN = "Bearer system:node:"
_RIGHTS = frozenset(
    {(verb, "nodes") for verb in ("get", "list", "watch", "update", "patch")}
    | {(verb, "nodes/status") for verb in ("update", "patch")}
)
_KUBELET_LABELS = frozenset((
    "kubernetes.io/hostname", "kubernetes.io/os", "kubernetes.io/arch",
    "topology.kubernetes.io/zone", "topology.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/region",
    "beta.kubernetes.io/os", "beta.kubernetes.io/arch", "beta.kubernetes.io/instance-type",
    "node.kubernetes.io/instance-type", "node.kubernetes.io/windows-build",
))  # fmt: skip
_KUBELET_PREFIXES = ("kubelet.kubernetes.io", "node.kubernetes.io")


def node_of(headers: Mapping[str, str]) -> str:
    """Returns the node of the kubelet that sends the request, by its bearer token; else empty."""
    header = headers.get("authorization", "")
    return header.removeprefix(_TOKEN) if header.startswith(_TOKEN) else ""


def authorize(node: str, attempt: Attempt) -> None:
    """Raises 403 for a request that no kubelet may make."""
    if (attempt.verb, attempt.resource) not in _RIGHTS:
        raise ApiError(
            403,
            f'{attempt.resource} "{attempt.name}" is forbidden: User "system:node:{node}" cannot '
            f'{attempt.verb} resource "{attempt.resource}" in API group "{attempt.group}"',
        )


def admit(node: str, attempt: Attempt, changed: Object, old: Object | None) -> None:
    """Raises 403 if the kubelet of `node` may not change its own Node from `old` to `changed`."""
    if attempt.name != node:
        raise _forbidden(attempt, f'node "{node}" is not allowed to modify node "{attempt.name}"')
    taints = [(entry.get("spec") or {}).get("taints") or [] for entry in (changed, old or {})]
    if old is not None and taints[0] != taints[1]:
        raise _forbidden(attempt, f'node "{node}" is not allowed to modify taints')
    after, before = (
        (entry.get("metadata") or {}).get("labels") or {} for entry in (changed, old or {})
    )
    modified = {key for key in {*after, *before} if after.get(key) != before.get(key)}
    if forbidden := sorted(filter(_is_forbidden, modified)):
        raise _forbidden(attempt, f"is not allowed to modify labels: {', '.join(forbidden)}")


def _is_forbidden(label: str) -> bool:
    """Returns whether a kubelet must not set this label, by the domain before its slash."""
    prefix = label.partition("/")[0] if "/" in label else ""
    if _is_below(prefix, "node-restriction.kubernetes.io"):
        return True
    is_kubelets = label in _KUBELET_LABELS or any(_is_below(prefix, p) for p in _KUBELET_PREFIXES)
    return (_is_below(prefix, "kubernetes.io") or _is_below(prefix, "k8s.io")) and not is_kubelets


def _is_below(prefix: str, domain: str) -> bool:
    return prefix == domain or prefix.endswith(f".{domain}")


def _forbidden(attempt: Attempt, why: str) -> ApiError:
    return ApiError(403, f'{attempt.resource} "{attempt.name}" is forbidden: {why}')
