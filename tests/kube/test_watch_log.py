"""Tests of watch events: dnm uses them only if all have arrived and fit the kept objects."""

from __future__ import annotations

import json
from typing import Any

import pytest

from dnm.kube.apply_changes import apply_to_nodes, apply_to_pods
from dnm.kube.nodes import read_node_page
from dnm.kube.pod_columns import PodColumns, make_columns
from dnm.kube.pods import PodReducer
from dnm.kube.watching import NotProved, WatchLog, Why, Witness, read_version
from dnm.model.node import Node
from dnm.model.pod import Pod
from dnm.queues.yunikorn.pods import YunikornPods

GONE = {"code": 410, "reason": "Expired", "message": "too old resource version: 5 (9)"}


def event(type_: str, version: int | str, name: str = "p", uid: str = "", **more: Any) -> bytes:
    metadata = {"name": name, "namespace": "dev", "uid": uid or f"uid-of-{name}",
                "resourceVersion": str(version)}  # fmt: skip
    item = {"kind": "Pod", "metadata": metadata, "spec": {"containers": []}, "status": {}, **more}
    return json.dumps({"type": type_, "object": item}).encode() + b"\n"


def bookmark(version: int | str) -> bytes:
    return event("BOOKMARK", version, "")


def error(status: dict[str, Any]) -> bytes:
    return json.dumps({"type": "ERROR", "object": {"kind": "Status", **status}}).encode()


NOBODY = Witness()


def a_log(*lines: bytes, last: int | None = None, witness: Witness = NOBODY) -> WatchLog:
    """Returns a log of these watch events after version 10; it is complete at version 20."""
    log = WatchLog("Pod", 10, 20, witness, last)
    for line in lines:
        log.take(line)
    return log


@pytest.mark.parametrize(
    ("lines", "is_proved", "version"),
    [
        pytest.param((), False, 10, id="no line at all"),
        pytest.param((event("ADDED", 19),), False, 19, id="a change before the goal"),
        pytest.param((event("ADDED", 20),), True, 20, id="a change at the goal"),
        pytest.param((event("ADDED", 99),), True, 99, id="a change after the goal"),
        pytest.param((bookmark(19),), False, 10, id="a bookmark before the goal"),
        pytest.param((bookmark(20),), True, 10, id="a bookmark is nothing to go on from"),
        pytest.param((event("ADDED", 12), bookmark(30)), True, 12, id="a change, and a bookmark"),
        pytest.param((event("ADDED", 20), bookmark(20)), True, 20, id="a bookmark of the same"),
    ],
)
def test_watch_is_proved_by_an_event_at_or_after_the_goal(
    lines: tuple[bytes, ...], is_proved: bool, version: int
) -> None:
    log = a_log(*lines)
    assert (log.is_proved, log.version) == (is_proved, version)
    assert WatchLog("Pod", 10, 10, NOBODY).is_proved, "what is at the goal needs no watch"


@pytest.mark.parametrize(
    ("line", "why"),
    [
        pytest.param(error(GONE), Why.EXPIRED, id="410"),
        pytest.param(error({"reason": "Gone"}), Why.EXPIRED, id="reason Gone"),
        pytest.param(error({"reason": "Expired"}), Why.EXPIRED, id="reason Expired"),
        pytest.param(error({"code": 500, "message": "etcd"}), Why.FAILED, id="another error"),
        pytest.param(b"<html>\n", Why.FAILED, id="no JSON"),
        pytest.param(b"{}\n", Why.FAILED, id="no event"),
        pytest.param(b'{"type":"ADDED","object":{}}\n', Why.FAILED, id="an object of no kind"),
        pytest.param(event("ADDED", 12, kind="Node"), Why.FAILED, id="another kind"),
        pytest.param(event("MOVED", 12), Why.FAILED, id="another type"),
        pytest.param(event("ADDED", "012"), Why.FAILED, id="a version with a leading zero"),
        pytest.param(event("ADDED", 10), Why.INCONSISTENT, id="the cached version"),
        pytest.param(event("ADDED", 9), Why.INCONSISTENT, id="an older version"),
        pytest.param(bookmark(9), Why.INCONSISTENT, id="an older bookmark"),
        pytest.param(b"[" * 100_000, Why.FAILED, id="a deep one"),
    ],
)
def test_other_watch_events_prove_nothing(line: bytes, why: Why) -> None:
    log = a_log()
    with pytest.raises(NotProved) as lack:
        log.take(line)
    assert lack.value.why is why and not log.is_proved


def test_changes_after_the_requested_version_are_left_out() -> None:
    log = a_log(event("ADDED", 20, "a"), event("ADDED", 21, "b"), last=20)
    assert [change.name for change in log.changes] == ["a"] and log.version == 20


def test_watch_log_bounds_the_number_of_changes() -> None:
    log = WatchLog("Pod", 10, 20, NOBODY, listed=12, most=2)
    for version in range(11, 15):  # events up to the list do not count
        log.take(event("ADDED", version, f"p{version}"))
    log.take(bookmark(15))
    with pytest.raises(NotProved) as lack:
        log.take(event("ADDED", 16))
    assert lack.value.why is Why.TOO_MUCH


@pytest.mark.parametrize(
    ("lines", "is_right"),
    [
        pytest.param((event("DELETED", 15, "gone"),), True, id="an end"),
        pytest.param(
            (event("ADDED", 13, "short"), event("MODIFIED", 14, "short"),
             event("DELETED", 15, "short")), True, id="a short life",
        ),
        pytest.param((event("ADDED", 15, "new"),), False, id="a beginning"),
        pytest.param((event("MODIFIED", 15),), False, id="a change"),
        pytest.param((event("DELETED", 15, "kept"),), False, id="a deletion of a listed object"),
        pytest.param((event("ADDED", 16, "new"),), True, id="after the list"),
    ],
)  # fmt: skip
def test_objects_seen_before_the_list_must_be_listed_or_deleted(
    lines: tuple[bytes, ...], is_right: bool
) -> None:
    log = WatchLog("Pod", 10, 20, Witness(), listed=15)
    for line in lines:
        log.take(line)
    if is_right:
        log.check_ends(["kept"], lambda change: change.name)
        return
    with pytest.raises(NotProved) as lack:
        log.check_ends(["kept"], lambda change: change.name)
    assert lack.value.why is Why.BACKWARDS


@pytest.mark.parametrize(("goal", "listed"), [(9, 0), (14, 15)], ids=["what is kept", "the list"])
def test_server_behind_the_cached_version_has_another_history(goal: int, listed: int) -> None:
    with pytest.raises(NotProved) as lack:
        WatchLog("Pod", 10, goal, NOBODY, listed=listed)
    assert lack.value.why is Why.BACKWARDS


KEPT = Witness("dev", "p", 9)


@pytest.mark.parametrize(
    ("witness", "lines", "proved", "is_right"),
    [
        pytest.param(KEPT, (bookmark(20),), 9, True, id="as it was"),
        pytest.param(KEPT, (bookmark(20),), 0, False, id="it is gone without an event"),
        pytest.param(KEPT, (bookmark(20),), 8, False, id="it is older"),
        pytest.param(
            KEPT, (event("MODIFIED", 12), bookmark(20)), 12, True, id="changed with an event"
        ),
        pytest.param(
            KEPT, (event("MODIFIED", 12), bookmark(20)), 9, False, id="an event without a change"
        ),
        pytest.param(
            KEPT, (event("DELETED", 12), bookmark(20)), 0, True, id="deleted with an event"
        ),
        pytest.param(KEPT, (event("MODIFIED", 21),), 9, True, id="changed after the look"),
        pytest.param(
            KEPT, (event("ADDED", 12, "q"), bookmark(20)), 9, True, id="another object was added"
        ),
        pytest.param(Witness("dev", "p", 0), (bookmark(20),), 0, True, id="deleted as cached"),
        pytest.param(Witness("dev", "p", 0), (bookmark(20),), 9, False, id="back from the dead"),
        pytest.param(Witness(), (bookmark(20),), 0, True, id="an empty cluster"),
    ],
)
def test_changed_reference_object_proves_another_history(
    witness: Witness, lines: tuple[bytes, ...], proved: int, is_right: bool
) -> None:
    log = a_log(*lines, witness=witness)
    if is_right:
        log.check_witness(proved)
        return
    with pytest.raises(NotProved) as lack:
        log.check_witness(proved)
    assert lack.value.why is Why.BACKWARDS


@pytest.mark.parametrize(
    ("line", "witness"),
    [
        (event("ADDED", 12), Witness("dev", "p", 12)),
        (event("DELETED", 12), Witness("dev", "p", 0)),
        (bookmark(20), KEPT),
    ],
)
def test_next_reference_object_is_the_last_changed_object(line: bytes, witness: Witness) -> None:
    assert a_log(line, witness=KEPT).last_witness == witness


@pytest.mark.parametrize("text", ["", "0x1", " 1", "01", "1.0", "\u0661", "9" * 20, "-1"])
def test_resource_versions_are_plain_numbers(text: str) -> None:
    with pytest.raises(ValueError, match="not a resourceVersion that dnm can compare"):
        read_version(text)


# --- applying ----------------------------------------------------------------------------------


def reduce(page: bytes) -> list[Pod]:
    reducer = PodReducer(YunikornPods())
    reducer.add(page)
    return reducer.pods


def cached_columns() -> PodColumns:
    """Returns the pods p and q as dnm keeps them between runs, both at version 5."""
    items = [json.loads(event("ADDED", 5, name))["object"] for name in ("p", "q")]
    return make_columns(reduce(json.dumps({"items": items}).encode()), [5, 5])


def names(columns: PodColumns) -> list[tuple[str, int]]:
    return sorted(zip(columns.names, columns.versions, strict=True))


@pytest.mark.parametrize(
    ("lines", "after"),
    [
        pytest.param((), [("p", 5), ("q", 5)], id="nothing"),
        pytest.param((event("MODIFIED", 11),), [("p", 11), ("q", 5)], id="a change"),
        pytest.param((event("DELETED", 11),), [("q", 5)], id="an end"),
        pytest.param((event("ADDED", 11, "r"),), [("p", 5), ("q", 5), ("r", 11)], id="a beginning"),
        pytest.param(
            (event("DELETED", 11), event("ADDED", 12, uid="new")), [("p", 12), ("q", 5)],
            id="another of the same name",
        ),
        pytest.param(
            (event("ADDED", 11, "r"), event("MODIFIED", 12, "r"), event("DELETED", 13, "r")),
            [("p", 5), ("q", 5)], id="a short life",
        ),
        pytest.param(
            (event("DELETED", 11), event("ADDED", 12)), [("p", 12), ("q", 5)],
            id="it left the selection and returned",
        ),
    ],
)  # fmt: skip
def test_changes_are_applied_in_their_order(
    lines: tuple[bytes, ...], after: list[tuple[str, int]]
) -> None:
    columns = cached_columns()
    apply_to_pods(columns, a_log(*lines).changes, reduce)
    columns.check()
    assert names(columns) == after
    assert sorted(pod.name for pod in columns.to_pods()) == [name for name, _ in after]


@pytest.mark.parametrize(
    "lines",
    [
        pytest.param((event("MODIFIED", 11, "r"),), id="a change of a missing object"),
        pytest.param((event("DELETED", 11, "r"),), id="a deletion of a missing object"),
        pytest.param((event("ADDED", 11),), id="an addition of an existing object"),
        pytest.param((event("MODIFIED", 11, uid="new"),), id="a change of another"),
        pytest.param((event("MODIFIED", 11, "r", "uid-of-p"),), id="another name"),
        pytest.param((event("ADDED", 11, uid="new"),), id="two of one name"),
        pytest.param(
            (event("ADDED", 11, "r"), event("ADDED", 12, "r", "new")), id="two new of one name"
        ),
        pytest.param((event("DELETED", 11), event("MODIFIED", 12)), id="a change after the end"),
        pytest.param((event("DELETED", 11), event("DELETED", 12)), id="two ends"),
        pytest.param(
            (event("ADDED", 11, "r").replace(b"uid-of-r", b""),), id="a pod without a uid"
        ),
    ],
)
def test_inconsistent_change_discards_all_changes(lines: tuple[bytes, ...]) -> None:
    with pytest.raises(NotProved) as lack:
        apply_to_pods(cached_columns(), a_log(*lines).changes, reduce)
    assert lack.value.why is Why.INCONSISTENT


def test_pod_cached_at_a_later_version_discards_all_changes() -> None:
    columns = cached_columns()
    columns.versions[0] = 15
    with pytest.raises(NotProved, match="known at version 15"):
        apply_to_pods(columns, a_log(event("MODIFIED", 11)).changes, reduce)


def a_node_event(type_: str, version: int, name: str) -> bytes:
    metadata = {"name": name, "resourceVersion": str(version)}
    item = {"kind": "Node", "metadata": metadata, "spec": {}, "status": {}}
    return json.dumps({"type": type_, "object": item}).encode()


@pytest.mark.parametrize(
    ("type_", "name", "after"),
    [
        ("ADDED", "n2", ["n1:5", "n2:11"]),
        ("MODIFIED", "n1", ["n1:11"]),
        ("DELETED", "n1", []),
        ("ADDED", "n1", None),
        ("MODIFIED", "n2", None),
        ("DELETED", "n2", None),
    ],
)
def test_node_changes_are_applied_by_name(type_: str, name: str, after: list[str] | None) -> None:
    nodes = [Node(name="n1", allocatable={}, resource_version="5")]
    log = WatchLog("Node", 10, 20, Witness())
    log.take(a_node_event(type_, 11, name))
    if after is None:
        with pytest.raises(NotProved):
            apply_to_nodes(nodes, log.changes, read_node_page)
        return
    result = apply_to_nodes(nodes, log.changes, read_node_page)
    assert sorted(f"{node.name}:{node.resource_version}" for node in result) == after
