"""Tests of a manifest that is applied again, with old or new values, while nodes are lent."""

from __future__ import annotations

import json

import pytest

from dnm.kube.objects import read_config_map
from dnm.model.cluster import ConfigMap
from dnm.queues.yunikorn.document_edit import DocumentEdit
from dnm.queues.yunikorn.edit import edit_source
from dnm.queues.yunikorn.source import LEDGER_ANNOTATION, resolve_document
from tests.queue_kit import (
    ONE,
    ONE_LIMIT,
    TREE,
    TWO,
    A,
    B,
    change,
    lend,
    limit,
    nodes_of,
    notes_of,
    wants,
)

X = "root.x"
LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"


def stored(text: str, ledger: str, tool: str, exported: dict[str, str] | None = None) -> ConfigMap:
    """Returns the ConfigMap after a tool has applied a manifest with this text. `exported` are the
    manifest's annotations, if it is an export of the cluster's object."""
    keeps = tool not in ("kubectl replace", "kubectl delete and create")
    annotations = {**(exported or {}), **({LEDGER_ANNOTATION: ledger} if keeps and ledger else {})}
    owner = {
        "kubectl edit": ("kubectl-edit", "Update"),
        "kubectl apply": ("kubectl-client-side-apply", "Update"),
        "kubectl apply --server-side": ("kubectl", "Apply"),
        "Argo CD": ("argocd-controller", "Update"),
        "Flux": ("kustomize-controller", "Apply"),
        "Helm": ("helm", "Update"),
        "kubectl replace": ("kubectl-replace", "Update"),
        "kubectl delete and create": ("kubectl-create", "Update"),
    }[tool]
    if tool in ("kubectl apply", "Argo CD"):
        manifest = {"metadata": {"annotations": exported or {}}, "data": {"queues.yaml": text}}
        annotations[LAST_APPLIED] = json.dumps(manifest)
    named: dict[str, dict[str, str]] = {f"f:{name}": {} for name in exported or {}}
    body = {
        "kind": "ConfigMap",
        "metadata": {
            "name": "yunikorn-configs", "namespace": "yunikorn", "resourceVersion": "9",
            "annotations": annotations,
            "managedFields": [
                {"manager": "dnm", "operation": "Update", "fieldsType": "FieldsV1",
                 "fieldsV1": {"f:metadata": {"f:annotations": {f"f:{LEDGER_ANNOTATION}": {}}}}},
                {"manager": owner[0], "operation": owner[1], "fieldsType": "FieldsV1",
                 "fieldsV1": {"f:data": {".": {}, "f:queues.yaml": {}},
                              "f:metadata": {"f:annotations": {".": {}, **named}}}},
            ],
        },
        "data": {"queues.yaml": text},
    }  # fmt: skip
    return read_config_map(json.dumps(body).encode(), "yunikorn", "yunikorn-configs")


def after(
    text: str, ledger: str, tool: str, nodes: object, exported: dict[str, str] | None = None
) -> DocumentEdit:
    source = resolve_document(stored(text, ledger, tool, exported), None)
    return edit_source(source, wants(nodes, remembered=ledger))  # type: ignore[arg-type]


APPLIERS = ["kubectl apply", "kubectl apply --server-side", "Argo CD", "Flux", "Helm"]
DROP = ["kubectl replace", "kubectl delete and create"]
NEW = {"up": "300", "down": "70", "far down": "10", "as it was": "80"}


@pytest.mark.parametrize("tool", [*APPLIERS, *DROP, "kubectl edit"])
@pytest.mark.parametrize("new", NEW.values(), ids=NEW)
def test_manifest_with_a_single_new_limit_is_a_new_baseline(tool: str, new: str) -> None:
    """All other limits are at their baselines, so the new one is the manifest's too."""
    made = lend(TREE, TWO)
    manifest = change(TREE, "max: {vcore: 80,", f"max: {{vcore: {new},")
    again = after(manifest, made.ledger, tool, TWO)
    assert not again.refusal and limit(again, A) == str(int(new) + 256)
    assert limit(again, "root.science") == "1256"
    assert not after(again.text, again.ledger, "kubectl edit", TWO).is_changed
    queue_edit = after(again.text, again.ledger, "kubectl edit", ONE)
    assert limit(queue_edit, A) == str(int(new) + 128)
    assert after(queue_edit.text, queue_edit.ledger, "kubectl edit", {}).text == manifest


@pytest.mark.parametrize("tool", [*APPLIERS, *DROP])
def test_other_queue_at_its_baseline_proves_a_reapplied_manifest(tool: str) -> None:
    """All limits of one queue are new. Others at their baselines show that it is a manifest."""
    nodes = {**ONE, **nodes_of(B, "m1")}
    made = lend(TREE, nodes, adjust_guaranteed=False)
    manifest = change(TREE, "max: {vcore: 80, memory: 320G}", "max: {vcore: 300, memory: 1T}")
    again = after(manifest, made.ledger, tool, nodes)
    assert [limit(again, A), limit(again, A, "memory")] == ["428", "1256G"]
    assert limit(again, B) == "192"
    assert after(again.text, again.ledger, "kubectl edit", {}).text == manifest


@pytest.mark.parametrize("tool", APPLIERS)
@pytest.mark.parametrize("new", NEW.values(), ids=NEW)
def test_single_limit_is_judged_by_the_client_that_wrote_it(tool: str, new: str) -> None:
    """The only limit is now 300: a baseline, because a client that applies manifests wrote it."""
    nodes = nodes_of(X, "n1", "n2")
    made = lend(ONE_LIMIT, nodes)
    manifest = ONE_LIMIT.replace("80", new)
    again = after(manifest, made.ledger, tool, nodes)
    assert limit(again, X) == str(int(new) + 256)
    text = f"max vcore has a new baseline, {new} instead of 80, as after an applied manifest:"
    if new == "80":
        text = "back at its baseline (max vcore), as after a manifest was applied again:"
    (note,) = notes_of(again)
    assert note.startswith(f"{X}: {text} lent nodes are added")
    assert after(again.text, again.ledger, "kubectl edit", {}).text == manifest


@pytest.mark.parametrize("tool", DROP)
def test_single_new_limit_without_a_ledger_needs_an_administrator(tool: str) -> None:
    """The only limit changed and the ledger is gone: 300 may contain lent nodes or not."""
    nodes = nodes_of(X, "n1", "n2")
    made = lend(ONE_LIMIT, nodes)
    asked = after(ONE_LIMIT.replace("80", "300"), made.ledger, tool, nodes)
    assert "is 300, which fits neither" in (asked.refusal or "") and not asked.is_changed
    same = after(ONE_LIMIT, made.ledger, tool, nodes)
    assert (same.text, same.ledger) == (made.text, made.ledger)


@pytest.mark.parametrize("tool", ["kubectl apply", "kubectl apply --server-side", "Flux"])
def test_edited_export_is_a_new_total(tool: str) -> None:
    """The manifest contains the ledger, so it is an export by `kubectl get -o yaml`."""
    nodes = nodes_of(X, "n1", "n2")
    made = lend(ONE_LIMIT, nodes)
    export = made.text.replace("336", "400")
    again = after(export, made.ledger, tool, nodes, {LEDGER_ANNOTATION: made.ledger})
    assert limit(again, X) == "400"
    assert limit(after(again.text, again.ledger, "kubectl edit", {}), X) == "144"


@pytest.mark.parametrize("tool", APPLIERS)
def test_manifest_with_the_written_limits_causes_no_change(tool: str) -> None:
    made = lend(TREE, TWO)
    assert not after(made.text, made.ledger, tool, TWO).is_changed
    edited = change(made.text, "max: {vcore: 336,", "max: {vcore: 400,")
    again = after(edited, made.ledger, tool, TWO)
    assert limit(again, A) == "400"


@pytest.mark.parametrize("tool", [*APPLIERS, *DROP])
def test_manifest_with_a_changed_queue_tree_is_the_new_baseline(tool: str) -> None:
    """The manifest adds a limit and a queue and removes a limit. Its values are the baselines."""
    made = lend(TREE, TWO)
    manifest = change(TREE, "max: {vcore: 80, memory: 320G}", "max: {vcore: 90, pods: 20}")
    manifest = change(
        manifest, "          - name: free\n", "          - name: free\n          - name: new\n"
    )
    again = after(manifest, made.ledger, tool, TWO)
    assert [limit(again, A), limit(again, A, "pods")] == ["346", "240"]
    assert after(again.text, again.ledger, "kubectl edit", {}).text == manifest


@pytest.mark.parametrize(
    "fields",
    [None, [], [{}], [{"manager": "x", "operation": "Apply", "fieldsV1": "?"}],
     [{"manager": "x", "operation": "Apply", "fieldsV1": {"f:data": [1]}}]],
)  # fmt: skip
@pytest.mark.parametrize("applied", ["", "{", "[]", "null", '{"metadata": 1}', '{"data": {}}'])
def test_malformed_managed_fields_are_ignored(fields: object, applied: str) -> None:
    nodes = nodes_of(X, "n1", "n2")
    made = lend(ONE_LIMIT, nodes)
    body = {
        "kind": "ConfigMap",
        "metadata": {
            "name": "c", "namespace": "n", "resourceVersion": "9", "managedFields": fields,
            "annotations": {LEDGER_ANNOTATION: made.ledger, LAST_APPLIED: applied},
        },
        "data": {"queues.yaml": ONE_LIMIT.replace("80", "300")},
    }  # fmt: skip
    config_map = read_config_map(json.dumps(body).encode(), "n", "c")
    edit = edit_source(resolve_document(config_map, None), wants(nodes, remembered=made.ledger))
    assert limit(edit, X) == "300"


@pytest.mark.parametrize("tool", APPLIERS)
def test_manifest_that_is_partly_an_older_export_needs_an_administrator(tool: str) -> None:
    """Queue A is at its baseline, but B's limit contains B's node, as in an older export."""
    nodes = {**ONE, **nodes_of(B, "m1")}
    made = lend(TREE, nodes, adjust_guaranteed=False)
    mixed = change(TREE, "max: {vcore: 64, memory: 256G}", "max: {vcore: 192, memory: 512G}")
    asked = after(mixed, made.ledger, tool, nodes)
    assert "a manifest was applied" in (asked.refusal or "") and "contains them" in (
        asked.refusal or ""
    )


@pytest.mark.parametrize("tool", APPLIERS)
def test_manually_written_total_is_recognized_in_an_older_export(tool: str) -> None:
    """A limit of 300, set manually, contains a node. Once, dnm took it for a baseline later."""
    made = lend(ONE_LIMIT, nodes_of(X, "n1"))
    nodes = nodes_of(X, "n1", "n2")
    edited = ONE_LIMIT.replace("80", "300")
    two = after(edited, made.ledger, "kubectl edit", nodes)
    assert limit(two, X) == "428"
    assert "is 300, which dnm" in (after(edited, two.ledger, tool, nodes).refusal or "")
