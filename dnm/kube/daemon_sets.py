"""DaemonSets: which nodes they select, and what each of their pods requests."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from dnm.host.fault_points import fault_point
from dnm.kube.objects import Metadata
from dnm.kube.pod_fields import Spec, Status
from dnm.kube.pods import ShapeBook
from dnm.kube.requests import ApiRequests, List
from dnm.model.errors import KubeError
from dnm.model.pod import DaemonSet
from dnm.model.quantity import QuantityError
from dnm.model.value import Unreadable


class _Template(msgspec.Struct, frozen=True):
    spec: Spec = Spec()


class _DaemonSpec(msgspec.Struct, frozen=True):
    template: _Template = _Template()


class _DaemonSet(msgspec.Struct, frozen=True):
    metadata: Metadata
    spec: _DaemonSpec = _DaemonSpec()


class _Page(msgspec.Struct, frozen=True):
    items: list[_DaemonSet]


_decode_page = msgspec.json.Decoder(_Page).decode


def read_daemon_sets(requests: ApiRequests) -> tuple[DaemonSet, ...] | Unreadable:
    """Returns those whose pods can be counted: no pod of another is believed to be a DaemonSet's,
    and a tenant may write what nobody can count."""
    what = "list the DaemonSets"
    try:
        with requests.asking(what, "list daemonsets"), fault_point("kube.list_daemon_sets"):
            daemon_sets = List("/apis/apps/v1/daemonsets", "DaemonSetList")
            return tuple(requests.collect(daemon_sets, _reduce_page))
    except KubeError as error:
        return Unreadable(what="DaemonSets", error=str(error))


def _reduce_page(page: memoryview) -> Iterator[DaemonSet]:
    book = ShapeBook()
    for item in _decode_page(page).items:
        spec = item.spec.template.spec
        try:
            shape = book.find_constrained(spec, book.find_request(spec, Status()), {})
        except (msgspec.MsgspecError, QuantityError, ValueError):
            continue
        if not shape.is_cut:
            # The controller looks at no other pods.
            shape = msgspec.structs.replace(shape, pod_affinity=(), spread_keys=(), host_ports=())
            yield DaemonSet(
                namespace=item.metadata.namespace, name=item.metadata.name,
                uid=item.metadata.uid, shape=shape,
            )  # fmt: skip
