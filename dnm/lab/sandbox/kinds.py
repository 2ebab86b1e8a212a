"""The kinds of objects that the sandbox's API serves, and their discovery."""

from __future__ import annotations

from typing import Any, NamedTuple

VERBS = ["create", "delete", "get", "list", "patch", "update", "watch"]


class Kind(NamedTuple):
    """A kind of object that the sandbox serves. `plural` is unique over all groups."""

    group: str
    version: str
    plural: str
    name: str
    namespaced: bool = True
    short_names: tuple[str, ...] = ()
    has_status: bool = False  # a status subresource: the main endpoint leaves the status alone
    has_generation: bool = False

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version


_ALL = (
    Kind("", "v1", "namespaces", "Namespace", False, ("ns",), True),
    Kind("", "v1", "nodes", "Node", False, ("no",), True),
    Kind("", "v1", "pods", "Pod", True, ("po",), True),
    Kind("", "v1", "configmaps", "ConfigMap", True, ("cm",)),
    Kind("", "v1", "secrets", "Secret"),
    Kind("", "v1", "resourcequotas", "ResourceQuota", True, ("quota",), True),
    Kind("", "v1", "limitranges", "LimitRange", True, ("limits",)),
    Kind("events.k8s.io", "v1", "events", "Event", True, ("ev",)),  # the same ones, renamed
    Kind("", "v1", "events", "Event", True, ("ev",)),
    Kind("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim", True, ("pvc",), True),
    Kind("", "v1", "persistentvolumes", "PersistentVolume", False, ("pv",), True),
    Kind("apps", "v1", "deployments", "Deployment", True, ("deploy",), True, True),
    Kind("apps", "v1", "replicasets", "ReplicaSet", True, ("rs",), True, True),
    Kind("apps", "v1", "statefulsets", "StatefulSet", True, ("sts",), True, True),
    Kind("batch", "v1", "jobs", "Job", True, (), True, True),
    Kind("apps", "v1", "daemonsets", "DaemonSet", True, ("ds",), True, True),
    Kind("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget", True, ("pdb",), True, True),
    Kind("coordination.k8s.io", "v1", "leases", "Lease"),
    Kind("topology.node.k8s.io", "v1alpha2", "noderesourcetopologies", "NodeResourceTopology",
         False),
    Kind("resource.k8s.io", "v1", "deviceclasses", "DeviceClass", False),
    Kind("resource.k8s.io", "v1", "resourceslices", "ResourceSlice", False),
    Kind("resource.k8s.io", "v1", "resourceclaims", "ResourceClaim"),
    Kind("resource.k8s.io", "v1", "resourceclaimtemplates", "ResourceClaimTemplate"),
    Kind("scheduling.k8s.io", "v1beta1", "podgroups", "PodGroup"),
    *(Kind("kueue.x-k8s.io", "v1beta2", f"{name.lower()}s", name, name[:1] in "LW", (), True, True)
      for name in ("ClusterQueue", "Cohort", "ResourceFlavor", "LocalQueue", "Workload")),
    Kind("kueue.x-k8s.io", "v1alpha1", "capacityproviders", "CapacityProvider", False, ("cp",),
         True, True),
    Kind("scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass", False, ("pc",)),
)  # fmt: skip

KINDS = {kind.plural: kind for kind in _ALL}
REVIEWS = "selfsubjectaccessreviews"
_BY_PATH = {(kind.group, kind.version, kind.plural): kind for kind in _ALL}
_SHOWN_BY_ALL = ("pods", "deployments", "replicasets", "daemonsets")
_SUBRESOURCES = {"pods": (("eviction", "Eviction", ["create"]),)}


def kind_at(group: str, version: str, plural: str) -> Kind | None:
    return _BY_PATH.get((group, version, plural))


def kind_of(manifest: dict[str, Any]) -> Kind | None:
    """Returns the kind of a manifest by its `apiVersion` and `kind`; None if it is not served."""
    wanted = (manifest.get("apiVersion"), manifest.get("kind"))
    return next((kind for kind in _ALL if (kind.api_version, kind.name) == wanted), None)


def group_versions() -> list[tuple[str, str]]:
    """Returns (group, version) of every API group except core, in a fixed order."""
    named = {(kind.group, kind.version) for kind in _ALL if kind.group}
    return sorted(named | {("authorization.k8s.io", "v1")})


def groups_document() -> dict[str, Any]:
    groups = []
    for group, version in group_versions():
        entry = {"groupVersion": f"{group}/{version}", "version": version}
        groups.append({"name": group, "versions": [entry], "preferredVersion": entry})
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}


def resources_document(group: str, version: str) -> dict[str, Any] | None:
    """Returns the APIResourceList of a group; None for an unknown group."""
    kinds = [kind for kind in _ALL if (kind.group, kind.version) == (group, version)]
    resources = [resource for kind in kinds for resource in _resources(kind)]
    if group == "authorization.k8s.io":
        resources = [_resource(REVIEWS, "SelfSubjectAccessReview", False, ["create"])]
    if not resources:
        return None
    return {"kind": "APIResourceList", "apiVersion": "v1", "resources": resources,
            "groupVersion": f"{group}/{version}" if group else version}  # fmt: skip


def _resources(kind: Kind) -> list[dict[str, Any]]:
    main = _resource(kind.plural, kind.name, kind.namespaced, VERBS)
    if kind.short_names:
        main["shortNames"] = list(kind.short_names)
    if kind.plural in _SHOWN_BY_ALL:
        main["categories"] = ["all"]
    resources = [main]
    if kind.has_status:
        verbs = ["get", "patch", "update"]
        resources.append(_resource(f"{kind.plural}/status", kind.name, kind.namespaced, verbs))
    for name, subkind, verbs in _SUBRESOURCES.get(kind.plural, ()):
        eviction = _resource(f"{kind.plural}/{name}", subkind, True, verbs)
        resources.append({**eviction, "group": "policy", "version": "v1"})
    return resources


def _resource(name: str, kind: str, namespaced: bool, verbs: list[str]) -> dict[str, Any]:
    return {"name": name, "singularName": kind.lower(), "namespaced": namespaced, "kind": kind,
            "verbs": verbs}  # fmt: skip
