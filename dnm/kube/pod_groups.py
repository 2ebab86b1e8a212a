"""The PodGroups of Kubernetes, scheduler-plugins and Volcano with their minimum of pods, and the
groups and device claims that a pod names. dnm reads PodGroups only if a pod in one waits."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from dnm.host.fault_points import fault_point
from dnm.kube.errors import ApiRefused
from dnm.kube.objects import Name
from dnm.kube.pod_fields import Spec, has_value
from dnm.kube.requests import ApiRequests, List
from dnm.model.errors import KubeError
from dnm.model.pod_waits import GROUPS, GroupFacts, Minimums
from dnm.model.value import Unreadable

MOST = 100_000  # groups
_VERSIONS = {
    GROUPS[0]: ("v1beta1", "v1alpha3", "v1alpha2"),  # of Kubernetes 1.37 and 1.36
    GROUPS[1]: ("v1alpha1",),
    GROUPS[2]: ("v1beta1",),
}
_LONGEST = 253  # characters of a name
MOST_CLAIMS = 32  # of a pod
_UNKNOWN = "ResourceClaimTemplate "


class _Gang(msgspec.Struct, frozen=True, rename="camel"):
    min_count: int


class _Policy(msgspec.Struct, frozen=True):
    gang: _Gang | None = None


class _GroupSpec(msgspec.Struct, frozen=True, rename="camel"):
    min_member: int = 0
    scheduling_policy: _Policy = _Policy()


class _Group(msgspec.Struct, frozen=True):
    metadata: Name
    spec: _GroupSpec = _GroupSpec()

    @property
    def least(self) -> int:
        gang = self.spec.scheduling_policy.gang
        return gang.min_count if gang else self.spec.min_member


class _ClaimRef(msgspec.Struct, frozen=True, rename="camel"):
    resource_claim_name: str | None = None
    resource_claim_template_name: str | None = None


class _GroupRef(msgspec.Struct, frozen=True, rename="camel"):
    pod_group_name: str | None = None


_decode_claims = msgspec.json.Decoder(list[_ClaimRef]).decode
_decode_group = msgspec.json.Decoder(_GroupRef).decode


def named_in_spec(spec: Spec) -> dict[str, Any]:
    """Returns the names in a pod's `resourceClaims` and `schedulingGroup`, as the fields `devices`
    and `group` of Pod. A claim in an unknown form gets a placeholder as its name."""
    fields: dict[str, Any] = {}
    try:
        if has_value(spec.resource_claims):
            fields["devices"] = (_UNKNOWN,)
            refs = _decode_claims(spec.resource_claims)
            if len(refs) <= MOST_CLAIMS:
                fields["devices"] = tuple(map(_describe, refs))
        if has_value(spec.scheduling_group):
            name = _decode_group(spec.scheduling_group).pod_group_name or ""
            fields["group"] = f"{GROUPS[0]}/{name[:_LONGEST]}"
    except msgspec.MsgspecError:  # of a newer form than dnm knows
        fields.setdefault("group", f"{GROUPS[0]}/")
    return fields


def _describe(ref: _ClaimRef) -> str:
    if ref.resource_claim_name:
        return f"ResourceClaim {ref.resource_claim_name[:_LONGEST]}"
    return f"{_UNKNOWN}{(ref.resource_claim_template_name or '')[:_LONGEST]}"


def read_groups(api: ApiRequests, groups: Iterable[str]) -> GroupFacts:
    """Returns API group -> PodGroup -> its minimum of pods, which is 0 if it has none."""
    return {group: _read_group(api, group) for group in sorted(set(groups))}


def _read_group(api: ApiRequests, group: str) -> Minimums | Unreadable:
    for version in _VERSIONS[group]:
        try:
            return _list(api, f"/apis/{group}/{version}/podgroups", group)
        except ApiRefused as error:
            if error.status != 404:
                return Unreadable(subject=group, error=str(error))
        except KubeError as error:
            return Unreadable(subject=group, error=str(error))
    text = ", ".join(_VERSIONS[group])
    return Unreadable(subject=group, error=f"the API server serves no PodGroup of {group} ({text})")


def _list(api: ApiRequests, path: str, group: str) -> Minimums:
    task = f"list the PodGroups of {group}"
    with api.asking(task, "list podgroups"), fault_point("kube.list_pod_groups"):
        groups = api.list_items(List(path, "PodGroupList"), _Group, most=MOST)
        return {(group.metadata.namespace, group.metadata.name): group.least for group in groups}
