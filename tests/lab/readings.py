"""Random pods and queue documents, parsed by dnm and by the sandbox for a comparison.

The two parsers share no code. If they differ, yunikorn-core and yunikorn-k8shim decide.
`seen_by_dnm` and `seen_by_sandbox` give the same plain values, so that `==` compares them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from hypothesis import strategies as st

from dnm.kube.pods import PodReducer
from dnm.lab.sandbox.pod_reading import (
    AmountError,
    application_of,
    configured_amount,
    gang_of,
    is_placeholder,
    queue_asked_by,
    request_of,
    task_group_of,
    total,
    yunikorn_units,
)
from dnm.lab.sandbox.yunikorn_config import read_document
from dnm.model.errors import DnmError
from dnm.model.quantity import parse_kubernetes
from dnm.queues.yunikorn.pods import YunikornPods
from dnm.queues.yunikorn.quantities import parse_yunikorn, yunikorn_amounts
from dnm.queues.yunikorn.tree import parse_tree

Seen = Mapping[str, Any]
DOMAIN = "yunikorn.apache.org/"

# --- amounts -------------------------------------------------------------------------------------

_MALFORMED_AMOUNTS = """
0 00 007 1 10 100m 0.5 1.5 .5 5. -1 +1 1e3 1E3 1E 1e 1Ki 1ki 1K 1k 1M 1Mi 1MI 2Gi 1GiB 1T 3Pi 7E
8Ei 9E 1000E 9223372036854775807 9223372036854775808 9223372036854775 1n 999999999n 1u 0.1n 1e-9
1e-12 1e40 1_000 0x10 1m 0m m Gi 1i １ ٣ 0.0001 0.001 1.0000000001 123456789012345678901n
"""
amount_texts = st.one_of(
    st.sampled_from(_MALFORMED_AMOUNTS.split()),
    st.from_regex(r"\A[ \t]?[+-]?[0-9.]{1,6}[ \t]?(n|u|m|[kMGTPE]i?|[eE][+-]?[0-9]{1,2})?[ \n]?\Z"),
    st.text("0123456789.eE+-kKMGiTPmnu \t\n\x1f\u00a0\u2003", max_size=8),
)


def amount_by_dnm(name: str, text: str, of_kubernetes: bool) -> int | None:
    try:
        if of_kubernetes:
            return parse_kubernetes("cpu" if name == "vcore" else name, text)
        return parse_yunikorn(name, text)
    except DnmError:
        return None


def amount_by_sandbox(name: str, text: str, of_kubernetes: bool) -> int | None:
    try:
        if of_kubernetes:
            return yunikorn_units({"cpu" if name == "vcore" else name: text})[name]
        return configured_amount(name, text)
    except AmountError:
        return None


# --- pods ----------------------------------------------------------------------------------------

_amounts = st.sampled_from(["0", "1", "2", "3", "250m", "1500m", "0.1", "1e1", "500M", "1Gi", "7n"])
_resources = st.dictionaries(
    st.sampled_from(["cpu", "memory", "nvidia.com/gpu", "hugepages-2Mi", "ephemeral-storage"]),
    _amounts, max_size=3,
)  # fmt: skip


def _optional(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.one_of(st.none(), values)


@st.composite
def _containers(draw: st.DrawFn, prefix: str, least: int) -> list[dict[str, Any]]:
    rows = []
    for number in range(draw(st.integers(least, 3))):
        container: dict[str, Any] = {"name": f"{prefix}{number}"}
        container["resources"] = {"requests": draw(_resources), "limits": draw(_resources)}
        if prefix == "i" and draw(st.booleans()):
            container["restartPolicy"] = "Always"
        rows.append(container)
    return rows


@st.composite
def _states(draw: st.DrawFn, containers: list[dict[str, Any]]) -> list[dict[str, Any]]:
    rows = []
    for container in containers:
        state: dict[str, Any] = {"name": container["name"]}
        for field, value in (
            ("allocatedResources", draw(_optional(_resources))),
            ("resources", draw(_optional(st.fixed_dictionaries({"requests": _resources})))),
        ):
            if value is not None:
                state[field] = value
        if draw(st.booleans()):
            rows.append(state)
    return rows


_names = st.sampled_from(["", "root.a", "root.b", "c", "job", "job-uniqueautogen", "root.A"])
_group = st.fixed_dictionaries(
    {"name": st.sampled_from(["g", "h", ""]), "minMember": st.sampled_from([1, 2, 5, 0, -1]),
     "minResource": _resources | st.just({"cpu": "1", "vcore": "2"}) | st.just({"cpu": "-1"})},
)  # fmt: skip
_groups = st.lists(_group, max_size=2).map(json.dumps) | st.sampled_from(["", "[", "{}", "null"])


@st.composite
def pods(draw: st.DrawFn) -> dict[str, Any]:
    """Draws a pod as the API prints it, with everything that YuniKorn's shim reads."""
    containers, before = draw(_containers("c", 1)), draw(_containers("i", 0))
    labels = {
        f"{DOMAIN}queue": draw(_names),
        "queue": draw(_names),
        f"{DOMAIN}app-id": draw(_names),
        "applicationId": draw(_names),
        "spark-app-selector": draw(_names),
    }
    notes = {
        f"{DOMAIN}queue": draw(_names),
        f"{DOMAIN}app-id": draw(_names),
        f"{DOMAIN}task-group-name": draw(_names),
        f"{DOMAIN}task-groups": draw(_groups),
        f"internal.{DOMAIN}placeholder": draw(st.sampled_from(["", "true", "false"])),
    }
    spec = {
        "schedulerName": draw(st.sampled_from(["yunikorn", "yunikorn", "default-scheduler"])),
        "containers": containers,
        "initContainers": before,
        "overhead": draw(_resources),
    }
    if draw(st.booleans()):
        spec["resources"] = {"requests": draw(_resources)}
    status = {
        "phase": "Pending",
        "containerStatuses": draw(_states(containers)),
        "initContainerStatuses": draw(_states(before)),
    }
    refused = draw(st.sampled_from(["", "resize", "condition"]))
    if refused == "resize":
        status["resize"] = "Infeasible"
    elif refused:
        status["conditions"] = [{"type": "PodResizePending", "status": "True",
                                 "reason": "Infeasible"}]  # fmt: skip
    meta = {
        "name": "p",
        "namespace": draw(st.sampled_from(["dev", "n" * 60])),
        "uid": "uid-1",
        "labels": {key: value for key, value in labels.items() if draw(st.booleans())},
        "annotations": {key: value for key, value in notes.items() if draw(st.booleans())},
    }
    return {"metadata": meta, "spec": spec, "status": status}


def pod_by_dnm(pod: Mapping[str, Any]) -> Seen:
    reducer = PodReducer(YunikornPods())
    reducer.add(json.dumps({"kind": "PodList", "items": [pod]}).encode())
    assert not reducer.unreadable, reducer.unreadable
    (seen,) = reducer.pods
    gang = [
        {
            name: amount * group.min_member
            for name, amount in yunikorn_amounts(group.min_resource).items()
        }
        for group in seen.task_groups
    ]
    return _pod_seen(
        [yunikorn_amounts(seen.shape.request),
         yunikorn_amounts(seen.shape.request_sidecars_twice or seen.shape.request)],
        seen.app_id, seen.queue, total(gang), seen.task_group,
        seen.is_placeholder,
    )  # fmt: skip


def pod_by_sandbox(pod: Mapping[str, Any]) -> Seen:
    own = dict(pod)
    return _pod_seen(
        [request_of(own), request_of(own, sidecars_count_twice=True)],
        application_of(own), _below_root(queue_asked_by(own).lower()), gang_of(own),
        task_group_of(own), is_placeholder(own),
    )  # fmt: skip


def _below_root(path: str) -> str:
    """Returns the full path of a queue. A name without `root` is one queue directly below root."""
    is_full = not path or path.split(".")[0] == "root"
    return path if is_full else f"root.{path.replace('.', '_dot_')}"


def _pod_seen(requests: list[Mapping[str, int]], *rest: Any) -> Seen:
    """Returns a pod's values without zero amounts, which equal missing ones to a scheduler.
    `requests` are by the rules of YuniKorn 1.9 and of 1.6 to 1.8."""
    application, queue, gang, group, placeholder = rest
    return {
        "requests": [{name: a for name, a in amounts.items() if a} for amounts in requests],
        "application": application,
        "queue": queue,
        "group": group,
        "placeholder": placeholder,
        "gang": {name: amount for name, amount in gang.items() if amount},
    }


# --- documents -----------------------------------------------------------------------------------


def document_by_dnm(text: str) -> Seen:
    """Returns what dnm parses. It omits limits of a queue named root below root: YuniKorn ignores
    it, and dnm edits no such document."""
    return _document_seen(
        (q.path, q.parent, q.is_leaf, {}, {})
        if q.path.endswith(".root")
        else (q.path, q.parent, q.is_leaf, q.max, q.guaranteed)
        for q in parse_tree(text).queues.values()
    )


def document_by_sandbox(text: str) -> Seen:
    queues = read_document(text)[1].values()
    rows = ((q.path, q.path.rpartition(".")[0] or None, q) for q in queues)
    return _document_seen(
        (path, parent, q.is_leaf, q.max, q.guaranteed) for path, parent, q in rows
    )


def _document_seen(queues: Any) -> Seen:
    return {
        path: (parent, leaf, dict(most), dict(least)) for path, parent, leaf, most, least in queues
    }
