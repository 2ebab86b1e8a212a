"""Dynamic resource allocation (resource.k8s.io/v1): the devices of nodes, and requests of claims.

dnm reads them only if a pod with `resourceClaims` waits. It counts devices of one node that serve
one claim. It omits partitions with shared counters, devices for several claims, and tainted
devices."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeVar

import msgspec

from dnm.host.fault_points import fault_point
from dnm.kube.errors import ApiRefused
from dnm.kube.objects import Name
from dnm.kube.requests import ApiRequests, List
from dnm.model.errors import KubeError
from dnm.model.pod_waits import Device, DeviceAsk, DeviceFacts, Named
from dnm.model.value import Unreadable

PATH = "/apis/resource.k8s.io/v1"
MOST = 100_000  # objects of a list, and devices
T = TypeVar("T")


class _Struct(msgspec.Struct, frozen=True, rename="camel"):
    pass


class _Some(_Struct, frozen=True):
    """A field of which only the presence matters. Its content may have a megabyte."""


class _Cel(_Struct, frozen=True):
    expression: str = ""


class _Selector(_Struct, frozen=True):
    cel: _Cel = _Cel()


class _ClassSpec(_Struct, frozen=True):
    selectors: list[_Selector] = []


class _Class(_Struct, frozen=True):
    metadata: Name
    spec: _ClassSpec = _ClassSpec()


class _Exactly(_Struct, frozen=True):
    device_class_name: str = ""
    selectors: list[_Some] = []
    allocation_mode: str = "ExactCount"
    count: int = 1
    admin_access: bool = False
    tolerations: list[_Some] = []
    capacity: _Some | None = None


class _Request(_Struct, frozen=True):
    name: str = ""
    exactly: _Exactly | None = None


class _Devices(_Struct, frozen=True):
    requests: list[_Request] = []
    constraints: list[_Some] = []


class _ClaimSpec(_Struct, frozen=True):
    devices: _Devices = _Devices()


class _Result(_Struct, frozen=True):
    driver: str
    pool: str
    device: str


class _Results(_Struct, frozen=True):
    results: list[_Result] = []


class _Allocation(_Struct, frozen=True):
    devices: _Results = _Results()


class _Consumer(_Struct, frozen=True):
    uid: str = ""


class _ClaimStatus(_Struct, frozen=True):
    allocation: _Allocation | None = None
    reserved_for: list[_Consumer] = []


class _Claim(_Struct, frozen=True):
    metadata: Name
    spec: _ClaimSpec = _ClaimSpec()
    status: _ClaimStatus = _ClaimStatus()


class _TemplateSpec(_Struct, frozen=True):
    spec: _ClaimSpec = _ClaimSpec()


class _Template(_Struct, frozen=True):
    metadata: Name
    spec: _TemplateSpec = _TemplateSpec()


class _Device(_Struct, frozen=True):
    name: str
    attributes: dict[str, dict[str, Any]] = {}
    consumes_counters: list[Any] = []
    taints: list[Any] = []
    binding_conditions: list[Any] = []
    allow_multiple_allocations: bool = False


class _Pool(_Struct, frozen=True):
    name: str
    generation: int = 0
    resource_slice_count: int = 1


class _SliceSpec(_Struct, frozen=True):
    driver: str
    pool: _Pool
    node_name: str = ""
    devices: list[_Device] = []


class _Slice(_Struct, frozen=True):
    spec: _SliceSpec


def read_devices(api: ApiRequests, namespaces: Iterable[str]) -> DeviceFacts | Unreadable:
    """Returns the devices of nodes, and the device requests of the claims in these namespaces."""
    wanted = frozenset(namespaces)
    try:
        classes = _list(api, "list deviceclasses", "DeviceClass", _Class)
        slices = _list(api, "list resourceslices", "ResourceSlice", _Slice)
        claims = _list(api, "list resourceclaims", "ResourceClaim", _Claim)
        templates = _list(api, "list resourceclaimtemplates", "ResourceClaimTemplate", _Template)
    except KubeError as error:
        if isinstance(error, ApiRefused) and error.status == 404:
            return Unreadable(subject="devices", error=f"the API server does not serve {PATH}")
        return Unreadable(subject="devices", error=str(error))
    allocated = [claim.status for claim in claims if claim.status.allocation]
    return DeviceFacts(
        classes={
            class_.metadata.name: tuple(each.cel.expression for each in class_.spec.selectors)
            for class_ in classes
        },
        devices=_by_node(slices),
        claims={
            _named(claim): _ask(claim.spec, claim.status.allocation is not None)
            for claim in claims
            if claim.metadata.namespace in wanted
        },
        templates={
            _named(template): _ask(template.spec.spec, False)
            for template in templates
            if template.metadata.namespace in wanted
        },
        allocated=frozenset(
            (each.driver, each.pool, each.device)
            for claim_status in allocated
            for each in (claim_status.allocation.devices.results if claim_status.allocation else ())
        ),
        holders=frozenset(
            each.uid for claim_status in allocated for each in claim_status.reserved_for
        ),
    )


def _list(api: ApiRequests, rule: str, kind: str, of: type[T]) -> list[T]:
    path = f"{PATH}/{rule.removeprefix('list ')}"
    with api.asking(f"list the {kind} objects", rule), fault_point("kube.list_devices"):
        return api.list_items(List(path, f"{kind}List"), of, most=MOST)


def _named(item: _Claim | _Template) -> Named:
    return item.metadata.namespace, item.metadata.name


def _ask(spec: _ClaimSpec, is_taken: bool) -> DeviceAsk:
    counts: dict[str, int] = {}
    why = "relates its devices to each other" if spec.devices.constraints else ""
    for request in spec.devices.requests:
        plain = request.exactly
        is_special = plain is None or plain.selectors or plain.tolerations or plain.capacity
        is_plain = plain is not None and plain.allocation_mode == "ExactCount" and plain.count > 0
        if plain is None or is_special or plain.admin_access or not is_plain:
            why = why or f"asks in {request.name} for more than a count of one class"
        else:
            counts[plain.device_class_name] = counts.get(plain.device_class_name, 0) + plain.count
    return DeviceAsk(counts=tuple(sorted(counts.items())), why=why, is_taken=is_taken)


def _by_node(slices: Iterable[_Slice]) -> dict[str, tuple[Device, ...]]:
    """Returns each node's countable devices, by the newest ResourceSlices of each complete pool."""
    pools: dict[Named, list[_SliceSpec]] = {}
    for item in slices:
        pools.setdefault((item.spec.driver, item.spec.pool.name), []).append(item.spec)
    usable_devices: dict[str, list[Device]] = {}
    for (driver, pool), specs in pools.items():
        last = max(spec.pool.generation for spec in specs)
        newest = [spec for spec in specs if spec.pool.generation == last]
        if len(newest) == newest[0].pool.resource_slice_count:
            for spec in newest:
                usable = filter(_is_plain, spec.devices if spec.node_name else ())
                usable_devices.setdefault(spec.node_name, []).extend(
                    Device(
                        driver=driver, pool=pool, name=device.name, attributes=_attributes(device)
                    )
                    for device in usable
                )
    return {node: tuple(devices) for node, devices in usable_devices.items() if devices}


def _is_plain(device: _Device) -> bool:
    return not (
        device.consumes_counters
        or device.taints
        or device.binding_conditions
        or device.allow_multiple_allocations
    )


def _attributes(device: _Device) -> dict[str, str | bool | int]:
    return {
        name: value
        for name, typed_value in device.attributes.items()
        for kind, value in typed_value.items()
        if kind in ("string", "bool", "int")
    }
