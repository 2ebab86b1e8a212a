"""Where YuniKorn takes the document from, where dnm must not edit it, and what is read of it."""

from __future__ import annotations

import base64
import gzip
from collections.abc import Mapping

import pytest

from dnm.model.cluster import ConfigMap
from dnm.model.errors import QueueError
from dnm.queues.document import read_document
from dnm.queues.source import LEDGER_ANNOTATION, resolve_document, with_document
from tests.queue_kit import TREE, A, change, config_map, edit, lend, nodes_of, read

OTHER = TREE.replace("name: science", "name: other")


def packed(text: str) -> str:
    return base64.b64encode(gzip.compress(text.encode())).decode()


def maps(
    configs: Mapping[str, object] | None, defaults: Mapping[str, object] | None = None
) -> tuple[ConfigMap | None, ConfigMap | None]:
    named = {"name": "yunikorn-defaults"}
    return (
        None if configs is None else config_map("", **configs),
        None if defaults is None else config_map("", **named, **defaults),
    )


PLACES = {
    "data": ({"data": {"queues.yaml": TREE}}, None, "queues.yaml"),
    "configs before defaults": ({"data": {"queues.yaml": TREE}}, {"data": {"queues.yaml": OTHER}},
        "queues.yaml"),
    "binaryData before data": (
        {"data": {"queues.yaml": OTHER}, "binary_data": {"queues.yaml.gz": packed(TREE)}}, None,
        "queues.yaml.gz"),
    "data of configs before binaryData of defaults": ({"data": {"queues.yaml": TREE}},
        {"binary_data": {"queues.yaml.gz": packed(OTHER)}}, "queues.yaml"),
    "policy group": (
        {"data": {"service.policyGroup": "site", "site.yaml": TREE, "queues.yaml": OTHER}}, None,
        "site.yaml"),
    "policy group from defaults": ({"data": {"site.yaml": TREE, "queues.yaml": OTHER}},
        {"data": {"service.policyGroup": "site"}}, "site.yaml"),
    "policy group of configs before that of defaults": (
        {"data": {"service.policyGroup": "queues", "queues.yaml": TREE, "site.yaml": OTHER}},
        {"data": {"service.policyGroup": "site"}}, "queues.yaml"),
}  # fmt: skip


@pytest.mark.parametrize(("configs", "defaults", "key"), PLACES.values(), ids=PLACES)
def test_the_document_in_force(
    configs: dict[str, object], defaults: dict[str, object] | None, key: str
) -> None:
    found = resolve_document(*maps(configs, defaults))
    assert (found.text, found.key, found.refusal) == (TREE, key, "")
    assert found.config_map is not None and found.config_map.name == "yunikorn-configs"


REFUSED = {
    "no ConfigMap": (None, None,
        "if YuniKorn really has none, there is no queues.yaml in the cluster"),
    "no key": ({"data": {}}, None, "no queues.yaml in yunikorn/yunikorn-configs"),
    "empty": ({"data": {"queues.yaml": ""}}, None, "is empty"),
    "only in defaults": (None, {"data": {"queues.yaml": TREE}}, "which Helm owns"),
    "only in defaults, by a wrong name": (None, {"data": {"queues.yaml": TREE}},
        "no ConfigMap yunikorn/yunikorn-configs"),
    "configs has none": ({"data": {}}, {"data": {"queues.yaml": TREE}}, "which Helm owns"),
    "immutable": ({"data": {"queues.yaml": TREE}, "immutable": True}, None, "is immutable"),
}  # fmt: skip


@pytest.mark.parametrize(("configs", "defaults", "reason"), REFUSED.values(), ids=REFUSED)
def test_where_dnm_must_not_edit(
    configs: dict[str, object] | None, defaults: dict[str, object] | None, reason: str
) -> None:
    found = resolve_document(*maps(configs, defaults))
    assert reason in found.refusal


def test_a_broken_gzip_is_an_error_and_not_another_document() -> None:
    configs = {"data": {"queues.yaml": TREE}, "binary_data": {"queues.yaml.gz": "AAAA"}}
    with pytest.raises(QueueError, match=r"queues\.yaml\.gz .* is no gzip"):
        resolve_document(*maps(configs))


@pytest.mark.parametrize("value", ["false", "False", "F", "0"])
def test_without_hot_refresh_there_is_a_warning(value: str) -> None:
    data = {"queues.yaml": TREE, "service.enableConfigHotRefresh": value}
    found = resolve_document(*maps({"data": data}))
    assert not found.is_hot_refreshed
    assert "restart the scheduler" in found.warnings[0]


def test_a_packed_document_is_packed_again_under_its_key() -> None:
    configs = {"data": {"x": "y"}, "binary_data": {"queues.yaml.gz": packed(TREE), "b": "Yg=="}}
    found = resolve_document(*maps(configs))
    written = with_document(found, OTHER, "ledger")
    assert (
        gzip.decompress(base64.b64decode(written.binary_data["queues.yaml.gz"])) == OTHER.encode()
    )
    assert (written.data, written.binary_data["b"]) == ({"x": "y"}, "Yg==")
    assert written.annotations == {LEDGER_ANNOTATION: "ledger"}
    assert with_document(found, TREE, "") == found.config_map


# --- text, tree, ledger and verdict as one value -------------------------------------------------


def test_a_refused_document_is_reported_and_not_touched() -> None:
    invalid = change(TREE, "max: {vcore: 80, memory: 320G}", "max: {vcore: 8000, memory: 320G}")
    refused = edit(invalid, "", nodes_of(A, "n1"))
    assert "the queue document can't be edited as it stands, line 14" in refused.refusal
    assert refused.text == invalid and not refused.is_changed


def test_an_invalid_document_says_all_that_is_wrong_with_it_and_still_has_limits() -> None:
    document = read(change(TREE, "max: {vcore: 80,", "max: {vcore: 8000,"))
    assert [(found.rule, found.queue, found.line) for found in document.violations] == [
        ("R2", A, 14)
    ]
    assert document.limits[A].max["vcore"] == 8_000_000
    assert "line 14" in document.refusal and "dnm queues check" in document.refusal


def test_where_it_stands_is_said_before_what_is_wrong_with_it() -> None:
    invalid = change(TREE, "max: {vcore: 80,", "max: {vcore: 8000,")
    frozen = read_document(resolve_document(config_map(invalid, immutable=True), None))
    assert "immutable" in frozen.refusal


def test_a_ledger_that_can_not_be_read_is_told_and_counts_every_node() -> None:
    document = read(TREE, "{")
    assert "can't be read" in document.ledger_problem and not document.refusal
    assert document.is_counted("n1", "prod") and document.is_counted("n9", "nobody")


COUNTED = [
    pytest.param("n1", "prod", True, id="its own node"),
    pytest.param("n3", "prod", False, id="a node that is not lent"),
    pytest.param("n1", "other", False, id="a node of another instance"),
]


@pytest.mark.parametrize(("node", "instance", "is_counted"), COUNTED)
def test_a_node_is_counted_by_the_instance_that_lent_it(
    node: str, instance: str, is_counted: bool
) -> None:
    made = lend(TREE, nodes_of(A, "n1", "n2"))
    assert read(made.text, made.ledger).is_counted(node, instance) is is_counted


STATES = {
    "of the API": ({"resource_version": "7"}, ("yunikorn", "yunikorn-configs", "queues.yaml", "7")),
    "no resourceVersion": ({"resource_version": ""}, None),
}  # fmt: skip


@pytest.mark.parametrize(("fields", "version"), STATES.values(), ids=STATES)
def test_a_state_of_the_document_is_told_by_its_resource_version(
    fields: dict[str, object], version: tuple[str, ...] | None
) -> None:
    found = resolve_document(config_map(TREE, **fields), None)
    assert found.version == version
    assert resolve_document(None, None).version is None
