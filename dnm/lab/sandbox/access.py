"""Who may do what: everything, or what a set of RBAC rules says (kubernetes.io, "Using RBAC")."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from dnm.lab.sandbox.store import ApiError

USER = "system:serviceaccount:dnm:dnm"


class Attempt(NamedTuple):
    """What a request wants; `namespace` is empty for a cluster-wide one."""

    verb: str
    group: str
    resource: str  # with the subresource: pods/eviction
    namespace: str
    name: str


class Rule(NamedTuple):
    """One RBAC rule; `namespace` "*" is a ClusterRoleBinding's reach."""

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
    """`rules` None allows everything. `used` collects what was attempted, for tests of a role."""

    def __init__(self) -> None:
        self.rules: tuple[Rule, ...] | None = None
        self.token: str | None = None  # None: any, or none at all
        self.used: set[Attempt] = set()

    def restrict(self, allowed: Iterable[tuple[str, str, str]]) -> None:
        """Only these (verb, resource, namespace); namespace "*" is all of them and cluster-wide."""
        self.rules = tuple(
            Rule((verb,), (resource,), namespace) for verb, resource, namespace in allowed
        )

    def restrict_to_manifests(self, manifests: Iterable[Mapping[str, Any]]) -> None:
        """ClusterRoles reach everywhere, Roles their own namespace; bindings are taken as given."""
        rules: list[Rule] = []
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
        """Raises 403 with the API's own sentence."""
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
        """Raises 401 for a wrong bearer token where one is demanded."""
        if self.token is not None and headers.get("authorization") != f"Bearer {self.token}":
            raise ApiError(401, "Unauthorized")


def _rule(entry: Mapping[str, Any], namespace: str) -> Rule:
    return Rule(
        tuple(entry["verbs"]),
        tuple(entry.get("resources") or ()),
        namespace,
        tuple(entry.get("resourceNames") or ()),
        tuple(entry.get("apiGroups") or ()),
    )


def _matches(allowed: tuple[str, ...], value: str) -> bool:
    return "*" in allowed or value in allowed
