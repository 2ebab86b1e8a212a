"""Tests that dnm and the sandbox parse the same pods and queue documents to equal values. Recorded
answers of YuniKorn are compared with the amounts that the sandbox parses."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dnm.lab.sandbox.pod_reading import AmountError, canonical_amount, kubernetes_amount
from tests.lab.readings import (
    amount_by_dnm,
    amount_by_sandbox,
    amount_texts,
    document_by_dnm,
    document_by_sandbox,
    pod_by_dnm,
    pod_by_sandbox,
    pods,
)
from tests.queue_kit import DATA, check_text

TRIES = settings(
    max_examples=150, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
VECTORS = json.loads((DATA / "yunikorn_vectors.json").read_text())
JUDGED = [json.loads(line) for line in (DATA / "judged.jsonl").read_text().splitlines()]
TAKEN = [  # by YuniKorn and, in its stricter dialect, by dnm
    item["yaml"] for item in JUDGED if item["ok"] and not check_text(item["yaml"])
]


# --- the sandbox and YuniKorn --------------------------------------------------------------------


@pytest.mark.parametrize("vector", VECTORS["quantity"], ids=lambda vector: repr(vector["text"]))
def test_sandbox_parses_amounts_like_yunikorn(vector: dict[str, Any]) -> None:
    for name, field in (("memory", "other"), ("vcore", "vcore_milli")):
        assert amount_by_sandbox(name, vector["text"], False) == vector[field]


CANONICAL = {  # the output of kubernetes v1.34's resource.Quantity
    "4": "4", "0.5": "500m", ".5": "500m", "1000m": "1", "1500m": "1500m", "1000000": "1M",
    "16000000000": "16G", "1000000u": "1", "0.1n": "1n", "9E": "9E", "0Gi": "0", "1024": "1024",
    "1.5Gi": "1536Mi", "-1.5Gi": "-1536Mi", "0.5Gi": "512Mi", "1024Mi": "1Gi", "0.5Ki": "512",
    "1.5Ki": "1536", "0.1Ki": "102400m", "1.1Ki": "1126400m", "2000Ki": "2000Ki",
    "528000000Ki": "515625Mi", "1048576Ki": "1Gi", "1e3": "1e3", "12E2": "1200", "1.5e3": "1500",
    "3e4": "30e3", "15e-1": "1500e-3", "12e-4": "1200e-6",
}  # fmt: skip


@pytest.mark.parametrize(("written", "kept"), CANONICAL.items())
def test_sandbox_stores_amounts_like_the_api_server(written: str, kept: str) -> None:
    assert canonical_amount(written) == kept


@TRIES
@given(amount_texts)
def test_canonical_amount_equals_the_written_amount(text: str) -> None:
    try:
        amount = kubernetes_amount(text)
    except AmountError:
        return
    kept = canonical_amount(text)
    assert kubernetes_amount(kept) == amount and canonical_amount(kept) == kept


# --- dnm and the sandbox -------------------------------------------------------------------------


@TRIES
@given(st.sampled_from(["vcore", "memory", "pods"]), amount_texts, st.booleans())
def test_sandbox_and_dnm_parse_the_same_amounts(name: str, text: str, of_kubernetes: bool) -> None:
    seen = amount_by_dnm(name, text, of_kubernetes)
    assert seen == amount_by_sandbox(name, text, of_kubernetes)


@TRIES
@given(pods())
def test_sandbox_and_dnm_read_the_same_pod(pod: dict[str, Any]) -> None:
    assert pod_by_dnm(pod) == pod_by_sandbox(pod)


def test_sandbox_and_dnm_read_the_same_limits() -> None:
    for text in TAKEN:
        assert document_by_dnm(text) == document_by_sandbox(text), text
    assert len(TAKEN) > 130
