"""The reading of ResourceQuotas from JSON."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress

import msgspec

from dnm.kube.workloads import WorkloadObjects
from dnm.model.cluster import REPLACING_MANAGERS
from dnm.model.quota import QuotaScope, ResourceQuota, resource_of

_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"


class _OwnedSpec(msgspec.Struct, frozen=True, rename={"hard": "f:hard"}):
    hard: dict[str, msgspec.Raw] = {}


class _OwnedFields(msgspec.Struct, frozen=True, rename={"spec": "f:spec"}):
    spec: _OwnedSpec = _OwnedSpec()


class _Writer(msgspec.Struct, frozen=True, rename={"fields": "fieldsV1"}):
    manager: str = ""
    operation: str = ""
    subresource: str = ""
    time: str = ""
    fields: _OwnedFields = _OwnedFields()

    @property
    def applied(self) -> set[str]:
        """Returns the quota's limits that this field manager has applied from a manifest."""
        applies = self.operation == "Apply" or self.manager in REPLACING_MANAGERS
        return {field.removeprefix("f:") for field in self.fields.spec.hard} if applies else set()


class _Metadata(msgspec.Struct, frozen=True, rename="camel"):
    name: str = ""
    resource_version: str = ""
    annotations: dict[str, str] = {}
    managed_fields: list[_Writer] = []


class _Term(msgspec.Struct, frozen=True, rename="camel"):
    scope_name: str
    operator: str
    values: list[str] = []


class _Selector(msgspec.Struct, frozen=True, rename="camel"):
    match_expressions: list[_Term] = []


class _Spec(msgspec.Struct, frozen=True, rename="camel"):
    hard: dict[str, str] = {}
    scopes: list[str] = []
    scope_selector: _Selector = _Selector()


class _Status(msgspec.Struct, frozen=True):
    hard: dict[str, str] = {}
    used: dict[str, str] = {}


class _AppliedSpec(msgspec.Struct, frozen=True):
    hard: dict[str, str | int | float] = {}  # as in the manifest, where 80 is a number


class _Applied(msgspec.Struct, frozen=True):
    spec: _AppliedSpec = _AppliedSpec()


class _ResourceQuota(msgspec.Struct, frozen=True):
    metadata: _Metadata = _Metadata()
    spec: _Spec = _Spec()
    status: _Status = _Status()

    @property
    def scopes(self) -> tuple[QuotaScope, ...]:
        """Returns the conditions that pods must meet so that the quota counts them."""
        terms = self.spec.scope_selector.match_expressions
        return (
            *(QuotaScope(name=name) for name in self.spec.scopes),
            *(QuotaScope(name=term.scope_name, operator=term.operator, values=tuple(term.values))
              for term in terms),
        )  # fmt: skip

    @property
    def manifest(self) -> Mapping[str, str]:
        """Returns the quota's limits in the last manifests of client-side and server-side apply."""
        limits: dict[str, str] = {}
        with suppress(msgspec.MsgspecError, RecursionError):  # the annotation of another tool
            text = self.metadata.annotations.get(_LAST_APPLIED, "{}")
            applied = msgspec.json.decode(text, type=_Applied).spec.hard
            limits = {key: str(limit) for key, limit in applied.items()}
        owned = {key for writer in self.metadata.managed_fields for key in writer.applied}
        return {**limits, **{key: self.spec.hard[key] for key in owned & self.spec.hard.keys()}}

    def as_quota(self, namespace: str) -> ResourceQuota:
        """Returns the ResourceQuota as a value of dnm's model."""
        metadata = self.metadata
        writers = (writer for writer in metadata.managed_fields if not writer.subresource)
        return ResourceQuota(
            namespace=namespace,
            name=metadata.name,
            version=metadata.resource_version,
            hard={key: text for key, text in self.spec.hard.items() if resource_of(key)},
            used=self.status.used,
            ready=self.status.hard,
            annotations=metadata.annotations,
            manifest=self.manifest,
            scopes=self.scopes,
            changed=max((writer.time for writer in writers), default=""),
        )


class QuotaObjects(WorkloadObjects):
    """The client of ResourceQuotas and of workloads that lack pods."""

    def read_quotas(self, namespace: str) -> list[ResourceQuota]:
        """Returns the ResourceQuotas of a namespace. Raises KubeError."""
        return self.list_objects(
            "ResourceQuota", namespace, _ResourceQuota, lambda item: item.as_quota(namespace)
        )
