"""Where YuniKorn takes the document from, and where dnm must not edit it."""

from __future__ import annotations

import base64
import gzip
from collections.abc import Mapping

import pytest

from dnm.model.cluster import ConfigMap
from dnm.model.errors import QueueError
from dnm.queues.source import LEDGER_ANNOTATION, resolve_document, with_document
from tests.queue_kit import (
    TREE,
    config_map,
)

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
