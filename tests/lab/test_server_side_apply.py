"""Server-side apply: what is laid over what, whose field is whose, and who is refused.

What is expected is what kubernetes v1.34's own field manager answers.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from dnm.lab.sandbox.server_side_apply import (
    Owner,
    apply_configuration,
    read_configuration,
    track_change,
)
from dnm.lab.sandbox.store import ApiError

CONFIG_MAP = {"apiVersion": "v1", "kind": "ConfigMap"}
Step = tuple[str, str, dict[str, Any]]  # operation, manager, data or spec


def play(*steps: Step, live: dict[str, Any] | None = None) -> dict[str, Any]:
    """The object after applies ("apply", "force") and other writes ("update")."""
    current = live or {}
    for number, (operation, manager, content) in enumerate(steps):
        one = {**CONFIG_MAP, "metadata": {"name": "c"}, **content}
        if operation == "update":
            current = track_change(current, one, Owner(manager, "Update"), str(number))
        else:
            owner, force = Owner(manager, "Apply"), operation == "force"
            current = apply_configuration(current, one, owner, str(number), force=force)
    return current


def data(**values: str) -> dict[str, Any]:
    return {"data": values}


def containers(*items: dict[str, Any]) -> dict[str, Any]:
    return {"spec": {"containers": list(items)}}


A1, A2 = data(a="1"), data(a="2")
C_X: dict[str, Any] = {"name": "c", "image": "x"}
D_Y: dict[str, Any] = {"name": "d", "image": "y"}

RESULTS = [
    pytest.param([("apply", "m", A1), ("apply", "m", A2)], A2, id="a value is changed"),
    pytest.param([("apply", "m", data(a="1", b="1")), ("apply", "m", A1)], A1,
                 id="what its owner says no more is gone"),
    pytest.param([("apply", "m", data(a="1", b="1")), ("apply", "o", data(b="1")),
                  ("apply", "m", A1)], data(a="1", b="1"), id="unless another says it"),
    pytest.param([("apply", "m", A1), ("apply", "o", data(b="1"))], data(a="1", b="1"),
                 id="another's fields stay"),
    pytest.param([("apply", "m", A1), ("force", "o", A2)], A2, id="force takes a field"),
    pytest.param([("apply", "m", A1), ("force", "o", A2), ("apply", "m", data(b="1"))],
                 data(a="2", b="1"), id="what was taken is not taken away"),
    pytest.param([("apply", "m", A1), ("update", "o", data(a="1", b="1")), ("apply", "m", A1)],
                 data(a="1", b="1"), id="an update's own field stays"),
    pytest.param([("apply", "m", containers(C_X)), ("apply", "o", containers(D_Y))],
                 containers(C_X, D_Y), id="items of a list by their key"),
    pytest.param([("apply", "m", containers(C_X, D_Y)), ("apply", "m", containers(D_Y))],
                 containers(D_Y), id="an item that is said no more"),
    pytest.param([("apply", "m", containers(C_X)),
                  ("apply", "o", containers({"name": "c", "tty": True})),
                  ("apply", "m", containers())],
                 containers({"name": "c", "tty": True}), id="an item that another has a part of"),
    pytest.param([("apply", "m", {"metadata": {"name": "c", "finalizers": ["x/a", "x/b"]}}),
                  ("apply", "m", {"metadata": {"name": "c", "finalizers": ["x/b"]}})],
                 {"metadata": {"name": "c", "finalizers": ["x/b"]}}, id="an item of a set"),
    pytest.param([("apply", "m", {"spec": {"args": ["a", "b"]}}),
                  ("apply", "m", {"spec": {"args": ["c"]}})],
                 {"spec": {"args": ["c"]}}, id="other lists are one field"),
    pytest.param([("apply", "m", {**A1, "metadata": {"name": "c", "creationTimestamp": None}})], A1,
                 id="null says nothing"),
]  # fmt: skip


@pytest.mark.parametrize(("steps", "expected"), RESULTS)
def test_an_apply_says_what_is_so(steps: list[Step], expected: dict[str, Any]) -> None:
    result = play(*steps)
    result["metadata"].pop("managedFields")
    assert result == {**CONFIG_MAP, "metadata": {"name": "c"}, **expected}


LAST = {"kubectl.kubernetes.io/last-applied-configuration": json.dumps(A1)}
BY_CLIENT = {**CONFIG_MAP, "metadata": {"name": "c", "annotations": LAST}, **A1}

CONFLICTS = [
    pytest.param([("apply", "m", A1), ("apply", "o", A2)], None, "m", id="another's apply"),
    pytest.param([("apply", "m", A1), ("update", "dnm", A2), ("apply", "m", A1)], None, "dnm",
                 id="another's update"),
    pytest.param([("apply", "m", A2)], {**BY_CLIENT, "metadata": {"name": "c"}},
                 "before-first-apply", id="what stood there before"),
    pytest.param([("apply", "m", A2)], BY_CLIENT, "before-first-apply",
                 id="what kubectl applied, by somebody else"),
    pytest.param([("apply", "kubectl", data(a="3"))], {**BY_CLIENT, **A2}, "before-first-apply",
                 id="what kubectl applied, and somebody has changed"),
]  # fmt: skip


@pytest.mark.parametrize(("steps", "live", "manager"), CONFLICTS)
def test_a_field_of_another_with_another_value_is_a_conflict(
    steps: list[Step], live: dict[str, Any] | None, manager: str
) -> None:
    with pytest.raises(ApiError) as refused:
        play(*steps, live=live)
    assert refused.value.code == 409
    expected = f'Apply failed with 1 conflict: conflict with "{manager}" using v1: .data.a'
    assert refused.value.message == expected


def test_kubectl_takes_over_what_it_applied_by_client() -> None:
    assert play(("apply", "kubectl", A2), live=BY_CLIENT)["data"] == A2["data"]


def test_owners_are_written_as_field_sets_and_the_same_apply_changes_nothing() -> None:
    once = play(("apply", "m", A1), ("update", "dnm", {**A1, "binaryData": {"b": "MQ=="}}))
    owners = {one["manager"]: one["fieldsV1"] for one in once["metadata"]["managedFields"]}
    assert owners == {"m": {"f:data": {"f:a": {}}}, "dnm": {"f:binaryData": {"f:b": {}}}}
    assert play(("apply", "m", A1), live=once) == once


@pytest.mark.parametrize("body", [b"", b"[", b"[1]", b"{kind: Pod}", b"\xff", b"[" * 9999], ids=str)
def test_what_is_no_object_is_refused(body: bytes) -> None:
    with pytest.raises(ApiError) as refused:
        read_configuration(body)
    assert refused.value.code == 400
