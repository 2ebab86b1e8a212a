"""Tests of the source of YuniKorn's document: which one dnm reads, and which it must not edit."""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Mapping
from typing import Any

import pytest

from dnm.model.cluster import ConfigMap
from dnm.model.errors import QueueError
from dnm.queues.yunikorn.document import read_document
from dnm.queues.yunikorn.ledger import MOST_TOTALS, decode_ledger, encode_ledger
from dnm.queues.yunikorn.rebase import LimitMeaning, rebase_document
from dnm.queues.yunikorn.source import LEDGER_ANNOTATION, resolve_document, with_document
from tests.queue_kit import (
    NODE,
    ONE,
    TREE,
    A,
    change,
    config_map,
    edit,
    lend,
    nodes_of,
    read,
    wants,
)

OTHER = TREE.replace("name: science", "name: other")


def packed(text: str) -> str:
    return base64.b64encode(gzip.compress(text.encode())).decode()


def maps(
    configs: Mapping[str, Any] | None, defaults: Mapping[str, Any] | None = None
) -> tuple[ConfigMap | None, ConfigMap | None]:
    named: dict[str, Any] = {"name": "yunikorn-defaults"}
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
def test_yunikorn_configs_and_defaults_decide_the_active_document(
    configs: dict[str, object], defaults: dict[str, object] | None, key: str
) -> None:
    source_document = resolve_document(*maps(configs, defaults))
    assert (source_document.text, source_document.key, source_document.refusal) == (TREE, key, None)
    assert (
        source_document.config_map is not None
        and source_document.config_map.name == "yunikorn-configs"
    )


REFUSED: dict[str, tuple[dict[str, Any] | None, dict[str, Any] | None, str]] = {
    "no ConfigMap": (None, None,
        "or create it; there is no queues.yaml in the cluster"),
    "no key": ({"data": {}}, None, "no queues.yaml in yunikorn/yunikorn-configs"),
    "empty": ({"data": {"queues.yaml": ""}}, None, "is empty"),
    "only in defaults": (None, {"data": {"queues.yaml": TREE}}, "which Helm owns"),
    "only in defaults, by a wrong name": (None, {"data": {"queues.yaml": TREE}},
        "no ConfigMap yunikorn/yunikorn-configs"),
    "configs has none": ({"data": {}}, {"data": {"queues.yaml": TREE}}, "which Helm owns"),
    "immutable": ({"data": {"queues.yaml": TREE}, "immutable": True}, None, "is immutable"),
}  # fmt: skip


@pytest.mark.parametrize(("configs", "defaults", "reason"), REFUSED.values(), ids=REFUSED)
def test_uneditable_document_source_is_refused(
    configs: dict[str, object] | None, defaults: dict[str, object] | None, reason: str
) -> None:
    source_document = resolve_document(*maps(configs, defaults))
    assert reason in (source_document.refusal or "")


def test_damaged_gzip_is_an_error_and_not_another_document() -> None:
    configs = {"data": {"queues.yaml": TREE}, "binary_data": {"queues.yaml.gz": "AAAA"}}
    with pytest.raises(QueueError, match=r"queues\.yaml\.gz .* is not gzip"):
        resolve_document(*maps(configs))


@pytest.mark.parametrize("value", ["false", "False", "F", "0"])
def test_disabled_hot_refresh_is_warned_of(value: str) -> None:
    data = {"queues.yaml": TREE, "service.enableConfigHotRefresh": value}
    source_document = resolve_document(*maps({"data": data}))
    assert not source_document.is_hot_refreshed
    assert "restart the scheduler" in source_document.warnings[0]


def test_compressed_document_is_written_compressed_under_its_key() -> None:
    configs = {"data": {"x": "y"}, "binary_data": {"queues.yaml.gz": packed(TREE), "b": "Yg=="}}
    source_document = resolve_document(*maps(configs))
    written = with_document(source_document, OTHER, "ledger")
    assert (
        gzip.decompress(base64.b64decode(written.binary_data["queues.yaml.gz"])) == OTHER.encode()
    )
    assert (written.data, written.binary_data["b"]) == ({"x": "y"}, "Yg==")
    assert written.annotations == {LEDGER_ANNOTATION: "ledger"}
    assert with_document(source_document, TREE, "") == source_document.config_map


# --- text, tree, ledger and verdict as one value -------------------------------------------------


def test_invalid_document_lists_all_violations_and_still_has_limits() -> None:
    invalid = change(TREE, "max: {vcore: 80,", "max: {vcore: 8000,")
    document = read(invalid)
    assert [
        (rule_violation.rule, rule_violation.queue, rule_violation.line)
        for rule_violation in document.violations
    ] == [("R2", A, 14)]
    assert document.limits[A].max["vcore"] == 8_000_000
    assert "line 14" in (document.refusal or "") and "dnm queues check" in (document.refusal or "")
    refused = edit(invalid, "", nodes_of(A, "n1"))
    assert refused.refusal == document.refusal
    assert refused.text == invalid and not refused.is_changed
    frozen = read_document(resolve_document(config_map(invalid, immutable=True), None))
    assert "immutable" in (frozen.refusal or "")  # the source comes first


def test_unreadable_ledger_is_reported_and_counts_every_node() -> None:
    document = read(TREE, "{")
    assert "cannot read" in (document.ledger_problem or "") and not document.refusal
    assert document.is_counted("n1", "prod") and document.is_counted("n9", "nobody")


def test_node_is_counted_by_the_instance_that_lent_it() -> None:
    made = lend(TREE, nodes_of(A, "n1", "n2"))
    document = read(made.text, made.ledger)
    asked = (("n1", "prod"), ("n3", "prod"), ("n1", "other"))
    assert [document.is_counted(*pair) for pair in asked] == [True, False, False]


def test_document_version_is_its_resource_version() -> None:
    of_the_api, untold = (
        resolve_document(config_map(TREE, resource_version=version), None) for version in ("7", "")
    )
    assert of_the_api.version == ("yunikorn", "yunikorn-configs", "queues.yaml", "7")
    assert untold.version is None and resolve_document(None, None).version is None


# --- the annotation: readable, terse, never taken for empty --------------------------------------


def test_ledger_is_readable_json() -> None:
    stored = json.loads(lend(TREE, ONE).ledger)
    assert stored["version"] == 1
    assert stored["instances"]["prod"]["queues"] == {A: {"n1": 0}}
    assert dict(zip(stored["resources"], stored["sizes"][0], strict=True)) == NODE
    assert stored["limits"][A]["max"] == {"vcore": "80", "memory": "320G"}


def test_ledger_records_the_written_limit_if_it_differs() -> None:
    made = lend(TREE, ONE)
    held = edit(made.text, made.ledger, {}, floors={A: {"vcore": 150_000}})
    assert json.loads(held.ledger)["limits"] == {A: {"max": {"vcore": ["80", "150"]}}}
    assert encode_ledger(decode_ledger(held.ledger)) == held.ledger


BROKEN = {
    "no JSON": ("{", "cannot read"),
    "newer": ('{"version":2}', "its version is 2, this dnm reads version 1"),
    "unknown field": ('{"version":1,"extra":1}', "unknown field `extra`"),
    "a bad number": ('{"version":1,"limits":{"root.a":{"max":{"vcore":"1.5"}}}}', "invalid"),
    "a bad kind": ('{"version":1,"limits":{"root.a":{"min":{"vcore":"1"}}}}', "neither max"),
    "no size": ('{"version":1,"instances":{"p":{"queues":{"root.a":{"n":0}}}}}', "index"),
    "minus": ('{"version":1,"instances":{"p":{"queues":{"root.a":{"n":-1}}}}}', ">= 0"),
}  # fmt: skip


@pytest.mark.parametrize(("ledger", "reason"), BROKEN.values(), ids=BROKEN)
def test_damaged_ledger_is_not_an_empty_ledger(ledger: str, reason: str) -> None:
    with pytest.raises(QueueError, match=reason):
        decode_ledger(ledger)
    refused = edit(TREE, ledger, {})
    assert reason in (refused.refusal or "") and refused.ledger == ledger
    mended = rebase_document(read(TREE, ledger), wants(ONE), LimitMeaning.BASELINE)
    assert mended.text == lend(TREE, ONE).text


def test_bounded_list_of_totals_causes_no_write_of_an_idle_run() -> None:
    """The ledger lists earlier totals up to a bound. Once, each run replaced some by others."""
    lines = ["partitions:", "- name: default", "  queues:", "  - name: root", "    queues:"]
    names = [f"q{number}" for number in range(MOST_TOTALS // 4 + 50)]
    both = "{vcore: 80, memory: 320G}"
    lines += [f"    - {{name: {name}, resources: {{max: {both}, guaranteed: {both}}}}}"
              for name in names]  # fmt: skip
    nodes = {f"root.{name}": {f"n-{name}": NODE} for name in names}
    made = lend("\n".join(lines) + "\n", nodes)
    again = edit(made.text, made.ledger, nodes, remembered=made.record)
    assert not again.is_changed and not again.refusal


WIDE: dict[str, dict[str, object]] = {
    "resources": {"resources": [f"r{number}" for number in range(20_000)]},
    "a path, of which each queue above is summed up": {
        "instances": {"p": {"queues": {"a." * 50_000 + "b": {"n1": 0}}}}
    },
}


@pytest.mark.parametrize("part", WIDE)
def test_ledger_of_another_instance_is_bounded(part: str) -> None:
    stored = {"version": 1, "resources": ["vcore"], "sizes": [[1]], **WIDE[part]}
    with pytest.raises(QueueError, match="of length <= 10") as raised:
        decode_ledger(json.dumps(stored))
    assert len(str(raised.value)) < 600
