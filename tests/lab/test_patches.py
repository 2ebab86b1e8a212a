"""Tests of patches and selectors in the sandbox's API."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dnm.lab.sandbox.matching import field_test, label_test
from dnm.lab.sandbox.patches import JSON, MERGE, STRATEGIC, apply_patch
from dnm.lab.sandbox.store import ApiError, copy_of


def node(**fields: Any) -> dict[str, Any]:
    return {"metadata": {"name": "n", **fields.pop("metadata", {})}, **fields}


PATCHES = [
    pytest.param(
        MERGE, {"a": {"b": 1, "c": 2}}, {"a": {"b": None, "d": 3}}, {"a": {"c": 2, "d": 3}},
        id="merge: null removes, objects merge",
    ),
    pytest.param(MERGE, {"l": [1, 2]}, {"l": [3]}, {"l": [3]}, id="merge: lists are replaced"),
    pytest.param(MERGE, {"a": 1}, {"a": {"b": 1}}, {"a": {"b": 1}}, id="merge: scalar to object"),
    pytest.param(
        STRATEGIC, {"metadata": {"labels": {"a": "1", "b": "2"}}},
        {"metadata": {"labels": {"a": None, "c": "3"}}},
        {"metadata": {"labels": {"b": "2", "c": "3"}}},
        id="strategic: maps merge and null removes",
    ),
    pytest.param(
        STRATEGIC, {"spec": {"taints": [{"key": "a", "effect": "NoSchedule"}]}},
        {"spec": {"taints": [{"key": "b", "effect": "NoSchedule"}]}},
        {"spec": {"taints": [{"key": "b", "effect": "NoSchedule"}]}},
        id="strategic: taints are atomic",
    ),
    pytest.param(
        STRATEGIC, {"conditions": [{"type": "A", "status": "1"}, {"type": "B", "status": "1"}]},
        {"conditions": [{"type": "B", "status": "2"}, {"type": "C", "status": "3"}]},
        {"conditions": [{"type": "A", "status": "1"}, {"type": "B", "status": "2"},
                        {"type": "C", "status": "3"}]},
        id="strategic: conditions merge by type",
    ),
    pytest.param(
        STRATEGIC, {"containers": [{"name": "a", "image": "x"}, {"name": "b"}]},
        {"containers": [{"name": "a", "$patch": "delete"}]}, {"containers": [{"name": "b"}]},
        id="strategic: $patch delete of an item",
    ),
    pytest.param(
        JSON, {"metadata": {"labels": {"a/b": "1"}}},
        [{"op": "test", "path": "/metadata/labels/a~1b", "value": "1"},
         {"op": "remove", "path": "/metadata/labels/a~1b"}],
        {"metadata": {"labels": {}}}, id="json: test and remove with an escaped path",
    ),
    pytest.param(
        JSON, {"l": [{"a": "1"}, {"a": "2"}], "n": {}},
        [{"op": "replace", "path": "/l/1/a", "value": "3"},
         {"op": "add", "path": "/n/b", "value": "4"},
         {"op": "remove", "path": "/l/0"}],
        {"l": [{"a": "3"}], "n": {"b": "4"}}, id="json: replace, add and remove in lists",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "target", "patch", "expected"), PATCHES)
def test_patch_is_applied(kind: str, target: Any, patch: Any, expected: Any) -> None:
    before = copy_of(target)
    assert apply_patch(kind, target, patch) == expected
    assert target == before


REFUSED = [
    pytest.param(JSON, [{"op": "test", "path": "/a", "value": 2}], 422, id="a test that fails"),
    pytest.param(JSON, [{"op": "remove", "path": "/x/y"}], 422, id="a path that is not there"),
    pytest.param(JSON, [{"op": "remove", "path": "/l/0"}], 422, id="an item of a list"),
    pytest.param(JSON, [{"op": "copy", "from": "/a", "path": "/b"}], 422, id="another operation"),
    pytest.param(
        JSON, [{"op": "replace", "path": "/b", "value": 1}], 422, id="replacement of no value"
    ),
    pytest.param(JSON, [{"op": "remove", "path": "/l/0"}], 422, id="an item beyond a list"),
    pytest.param(JSON, {"a": 2}, 400, id="a JSON patch that is no list"),
    pytest.param(MERGE, [1], 400, id="a merge patch that is no object"),
    pytest.param(STRATEGIC, {"containers": [{"image": "x"}]}, 400, id="no merge key"),
    pytest.param(STRATEGIC, {"a": {"$retainKeys": ["b"]}}, 400, id="a directive of a patch"),
    pytest.param("text/plain", {}, 415, id="another media type"),
]


@pytest.mark.parametrize(("kind", "patch", "code"), REFUSED)
def test_invalid_patch_is_refused(kind: str, patch: Any, code: int) -> None:
    with pytest.raises(ApiError) as refused:
        apply_patch(kind, {"a": 1, "l": []}, patch)
    assert refused.value.code == code


_values = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text("ab", max_size=2),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text("ab", max_size=2), inner),
    max_leaves=6,
)
_objects = st.dictionaries(st.text("abc", max_size=1), _values, max_size=3)


@given(_objects, _objects)
def test_repeated_merge_patch_changes_nothing(target: Any, patch: Any) -> None:
    once = apply_patch(MERGE, target, patch)
    assert apply_patch(MERGE, once, patch) == once


LABELS = [
    ("a=1", True), ("a==1", True), ("a=2", False), ("a!=2", True), ("b!=2", True), ("a", True),
    ("!a", False), ("b", False), ("!b", True), ("a in (1,2)", True), ("a in (2)", False),
    ("a notin (2)", True), ("a in (1,2),x.y/z=w", True), ("a=1,!x.y/z", False), ("", True),
]  # fmt: skip


@pytest.mark.parametrize(("selector", "selected"), LABELS)
def test_label_selector_selects_objects(selector: str, selected: bool) -> None:
    assert label_test(selector)(node(metadata={"labels": {"a": "1", "x.y/z": "w"}})) is selected


FIELDS = [
    ("metadata.name=n", True), ("metadata.name!=n", False), ("spec.nodeName=", True),
    ("spec.nodeName!=", False), ("status.phase!=Succeeded,status.phase!=Failed", True),
    ("status.phase=Pending", True), ("spec.schedulerName=yunikorn", False),
]  # fmt: skip


@pytest.mark.parametrize(("selector", "selected"), FIELDS)
def test_field_selector_selects_pods(selector: str, selected: bool) -> None:
    pod = node(spec={}, status={"phase": "Pending"})
    assert field_test("pods", selector)(pod) is selected


@pytest.mark.parametrize("selector", ["status.message=x", "metadata.labels.a=b", "spec.nodeName"])
def test_unsupported_field_selector_is_refused(selector: str) -> None:
    with pytest.raises(ApiError) as refused:
        field_test("pods", selector)
    assert refused.value.code == 400
