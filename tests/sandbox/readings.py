"""The same pods and documents, read by dnm and by the sandbox, and what by chance can stand there.

Neither reading knows the other. Where they differ, yunikorn-core and yunikorn-k8shim say who is
right. `seen_by_dnm` and `seen_by_sandbox` give the same plain values, so that `==` compares them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from hypothesis import strategies as st

from dnm.kube.pods import PodReducer
from dnm.model.errors import DnmError
from dnm.model.quantity import parse_kubernetes, parse_yunikorn
from dnm.queues.document import check_text, parse_document
from dnm.sandbox.amounts import AmountError, configured_amount, total, yunikorn_units
from dnm.sandbox.pod_reading import (
    application_of,
    gang_of,
    is_placeholder,
    queue_asked_by,
    request_of,
    task_group_of,
)
from dnm.sandbox.queues_rules import read_document
from dnm.sandbox.yunikorn_config import queues_in_force, refusal

Seen = Mapping[str, Any]
DOMAIN = "yunikorn.apache.org/"

# --- amounts -------------------------------------------------------------------------------------

_ODD_AMOUNTS = """
0 00 007 1 10 100m 0.5 1.5 .5 5. -1 +1 1e3 1E3 1E 1e 1Ki 1ki 1K 1k 1M 1Mi 1MI 2Gi 1GiB 1T 3Pi 7E
8Ei 9E 1000E 9223372036854775807 9223372036854775808 9223372036854775 1n 999999999n 1u 0.1n 1e-9
1e-12 1e40 1_000 0x10 1m 0m m Gi 1i １ ٣ 0.0001 0.001 1.0000000001 123456789012345678901n
"""
amount_texts = st.one_of(
    st.sampled_from(_ODD_AMOUNTS.split()),
    st.from_regex(r"\A[ \t]?[+-]?[0-9.]{1,6}[ \t]?(n|u|m|[kMGTPE]i?|[eE][+-]?[0-9]{1,2})?[ \n]?\Z"),
    st.text("0123456789.eE+-kKMGiTPmnu \t\n\x1f\u00a0\u2003", max_size=8),
)


def amount_by_dnm(name: str, text: str, of_kubernetes: bool) -> int | None:
    try:
        return parse_kubernetes(name, text) if of_kubernetes else parse_yunikorn(name, text)
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


def _maybe(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.one_of(st.none(), values)


@st.composite
def _containers(draw: st.DrawFn, prefix: str, least: int) -> list[dict[str, Any]]:
    found = []
    for number in range(draw(st.integers(least, 3))):
        container: dict[str, Any] = {"name": f"{prefix}{number}"}
        container["resources"] = {"requests": draw(_resources), "limits": draw(_resources)}
        if prefix == "i" and draw(st.booleans()):
            container["restartPolicy"] = "Always"
        found.append(container)
    return found


@st.composite
def _states(draw: st.DrawFn, containers: list[dict[str, Any]]) -> list[dict[str, Any]]:
    found = []
    for container in containers:
        state: dict[str, Any] = {"name": container["name"]}
        for field, value in (
            ("allocatedResources", draw(_maybe(_resources))),
            ("resources", draw(_maybe(st.fixed_dictionaries({"requests": _resources})))),
        ):
            if value is not None:
                state[field] = value
        if draw(st.booleans()):
            found.append(state)
    return found


_names = st.sampled_from(["", "root.a", "root.b", "c", "job", "job-uniqueautogen", "root.A"])
_group = st.fixed_dictionaries(
    {"name": st.sampled_from(["g", "h", ""]), "minMember": st.sampled_from([1, 2, 5, 0, -1]),
     "minResource": _resources | st.just({"cpu": "1", "vcore": "2"}) | st.just({"cpu": "-1"})},
)  # fmt: skip
_groups = st.lists(_group, max_size=2).map(json.dumps) | st.sampled_from(["", "[", "{}", "null"])


@st.composite
def pods(draw: st.DrawFn) -> dict[str, Any]:
    """A pod as the API prints it, with everything that YuniKorn's shim reads."""
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
    reducer = PodReducer()
    reducer.add(json.dumps({"kind": "PodList", "items": [pod]}).encode())
    assert not reducer.unreadable, reducer.unreadable
    (seen,) = reducer.pods
    gang = [
        {name: amount * group.min_member for name, amount in group.min_resource.items()}
        for group in seen.task_groups
    ]
    return _pod_seen(
        seen.shape.request, seen.app_id, seen.queue, total(gang), seen.task_group,
        seen.is_placeholder,
    )  # fmt: skip


def pod_by_sandbox(pod: Mapping[str, Any]) -> Seen:
    own = dict(pod)
    return _pod_seen(
        request_of(own), application_of(own), queue_asked_by(own), gang_of(own),
        task_group_of(own), is_placeholder(own),
    )  # fmt: skip


def _pod_seen(request: Mapping[str, int], *rest: Any) -> Seen:
    """A zero and a type that is not there are the same to a scheduler."""
    application, queue, gang, group, placeholder = rest
    return {
        "request": {name: amount for name, amount in request.items() if amount},
        "application": application,
        "queue": queue,
        "group": group,
        "placeholder": placeholder,
        "gang": {name: amount for name, amount in gang.items() if amount},
    }


# --- documents -----------------------------------------------------------------------------------

_limit_texts = st.sampled_from(
    ["0", "1", "2", "3", "5", "10", "500m", "1500m", "1k", "2Ki", "010", "1.5", "1Gi", " 2 ", "5m"]
)
_limits = st.dictionaries(
    st.sampled_from(["vcore", "memory", "pods", "cpu"]), _limit_texts, max_size=2
)
_people = st.lists(st.sampled_from(["ann", "bob", "*", "a.b", "0x"]), max_size=2)
_flags = st.sampled_from([True, False] * 4 + ["yes", "no", "True", "1"])
_counts = st.sampled_from([0, 1, 2, 5] * 4 + ["010", 1.5, -1])


def _some(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({}, optional=fields)


_resource_limits = _some(max=_limits, guaranteed=_limits)
_user_limits = st.lists(
    _some(limit=st.just("x"), users=_people, groups=_people, maxresources=_limits,
          maxapplications=_counts),
    max_size=2,
)  # fmt: skip
_filters = _some(type=st.sampled_from(["", "allow", "Deny", "x"]),
                 users=st.lists(st.sampled_from(["ann", "a.*", "(?=x)", "["]), max_size=2),
                 groups=_people)  # fmt: skip
_rules = st.recursive(
    _some(
        name=st.sampled_from(["fixed", "fixed", "user", "tag", "provided", "9"]),
        value=st.sampled_from(["a", "root.a", "root.b", "a.b", "root.a.b", "namespace", "Root.a"]),
        create=_flags, filter=_filters,
    ),
    lambda inner: st.builds(lambda rule, parent: {**rule, "parent": parent}, inner, inner),
    max_leaves=3,
)  # fmt: skip
_queue_names = st.sampled_from(["a", "b", "A", "c-d", "root", "x.y", "q@1"])


def _queues(children: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.lists(
        st.builds(
            lambda name, more: {"name": name, **more},
            _queue_names,
            _some(parent=_flags, resources=_resource_limits, maxapplications=_counts,
                  limits=_user_limits, queues=children,
                  submitacl=st.sampled_from(["*", "ann", "a b c"]),
                  properties=st.just({"application.sort.policy": "fair"}),
                  childtemplate=_some(resources=_resource_limits)),
        ),
        max_size=3,
    )  # fmt: skip


_trees = st.recursive(_queues(st.just([])), _queues, max_leaves=4)
_partitions = st.builds(
    lambda name, top, more: {"name": name, "queues": top, **more},
    st.sampled_from(["default", "default", "default", "", "Default", "gpu"]),
    _trees.map(lambda below: [{"name": "root", "queues": below}]) | _trees,
    _some(placementrules=st.lists(_rules, max_size=2), limits=_user_limits,
          nodesortpolicy=_some(type=st.sampled_from(["fair", "binpacking", "Fair"]),
                               resourceweights=st.just({"vcore": -1}))),
)  # fmt: skip
_whole = st.lists(_partitions, min_size=1, max_size=2).map(lambda found: {"partitions": found})


def _as_text(value: Any, spoilt: bool) -> str:
    """Numbers and flags stand bare, as in JSON; `spoilt` writes texts bare too where they may."""
    text = json.dumps(value, indent=1)
    return text.replace('"max"', '"Max"', 1) if spoilt else text


documents = st.builds(_as_text, _whole, st.sampled_from([False] * 9 + [True]))


def document_by_dnm(text: str) -> Seen:
    """dnm shows the limits of a queue called root below root, which YuniKorn ignores, and edits no
    document that has one: they are left out here."""
    if check_text(text):
        return {"taken": False}
    document = parse_document(text)
    false_roots = {path for path in document.queues if path.endswith(".root")}
    assert document.refusal or not false_roots
    return _document_seen(
        (q.path, q.parent, q.is_leaf, {}, {})
        if q.path in false_roots
        else (q.path, q.parent, q.is_leaf, q.max, q.guaranteed)
        for q in document.queues.values()
    )


def document_by_sandbox(text: str) -> Seen:
    if refusal(text):
        return {"taken": False}
    partitions = read_document(text)["partitions"] or ()
    tops = [one["queues"][0] for one in partitions if one["name"] == "default"]
    queues = [queue for top in tops for queue in queues_in_force(top)]
    return _document_seen((q.path, q.parent, q.is_leaf, q.max, q.guaranteed) for q in queues)


def _document_seen(queues: Any) -> Seen:
    return {
        "taken": True,
        "queues": sorted(
            (path, parent, leaf, dict(most), dict(least))
            for path, parent, leaf, most, least in queues
        ),
    }
