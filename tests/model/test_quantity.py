"""Tests of quantities, compared with recorded results of Kubernetes' parser, and of time spans."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dnm.model.quantity import (
    INT64_MAX,
    QuantityError,
    format_amount,
    kube_resources,
    parse_kubernetes,
    parse_span,
)

# Text, cpu in millicores, other resources; None: refused. From resource.Quantity of apimachinery
# 0.33 (MilliValue, Value). Beyond int64 it wraps around, and dnm stops at the largest.
KUBERNETES = [
    ("0", 0, 0), ("+1", 1000, 1), ("5.", 5000, 5), (".5", 500, 1), ("1.5", 1500, 2),
    ("0.1", 100, 1), ("0.0001", 1, 1), ("100m", 100, 1), ("1500m", 1500, 2), ("1n", 1, 1),
    ("1u", 1, 1), ("999999999n", 1000, 1), ("1000000001n", 1001, 2), ("1.0000000001", 1001, 2),
    ("1k", 1_000_000, 1000), ("1Ki", 1_024_000, 1024), ("0.5Ki", 512_000, 512),
    ("0.0001Ki", 103, 1), ("1.5Gi", 1_610_612_736_000, 1_610_612_736),
    ("128974848000m", 128_974_848_000, 128_974_848), ("129e6", 129_000_000_000, 129_000_000),
    ("1e3", 1_000_000, 1000), ("1E3", 1_000_000, 1000), ("1e-3", 1, 1), ("1e-100", 1, 1),
    ("1E", INT64_MAX, 10**18), ("8Ei", INT64_MAX, INT64_MAX), ("1e100", INT64_MAX, INT64_MAX),
    ("-1.5", -1500, -2), ("", None, None), (".", None, None), ("1K", None, None),
    ("1ki", None, None), ("1e", None, None), ("1e1.5", None, None), ("1E2Ki", None, None),
    ("1 Gi", None, None), ("1GB", None, None), ("--1", None, None), ("1.2.3", None, None),
    ("0x1", None, None), ("１", None, None),
]  # fmt: skip


@pytest.mark.parametrize(("text", "milli", "whole"), KUBERNETES, ids=lambda value: repr(value))
def test_kubernetes_quantities_are_rounded_up_like_in_yunikorn(
    text: str, milli: int | None, whole: int | None
) -> None:
    for resource, amount in (("cpu", milli), ("memory", whole)):
        if amount is None:
            with pytest.raises(QuantityError, match="is not a Kubernetes quantity"):
                parse_kubernetes(resource, text)
        else:
            assert parse_kubernetes(resource, text) == amount


def test_resource_list_keeps_the_names_of_kubernetes() -> None:
    assert kube_resources({"cpu": "500m", "memory": "1Gi", "nvidia.com/gpu": "2"}) == {
        "cpu": 500,
        "memory": 2**30,
        "nvidia.com/gpu": 2,
    }


@given(st.sampled_from(["cpu", "memory", "nvidia.com/gpu"]), st.integers(0, INT64_MAX))
def test_every_amount_is_written_exactly(resource: str, amount: int) -> None:
    assert parse_kubernetes(resource, format_amount(resource, amount)) == amount


@given(st.text(max_size=12))
def test_arbitrary_text_is_an_amount_or_an_error(text: str) -> None:
    for resource in ("cpu", "memory"):
        try:
            amount = parse_kubernetes(resource, text)
        except QuantityError:
            continue
        assert -INT64_MAX <= amount <= INT64_MAX


# --- spans, as people write them --------------------------------------------------------------

SPANS = {
    "90s": 90, "90m": 5400, "2h": 7200, "1d": 86_400, "1w": 604_800, "1.5h": 5400, "36 h": 129_600,
    "45": None, "": None, "m": None, "2y": None, "-1h": None, "1h30m": None, "1e3s": None,
}  # fmt: skip


@pytest.mark.parametrize("text", SPANS)
def test_time_span_is_parsed(text: str) -> None:
    seconds = SPANS[text]
    assert parse_span(text) == (None if seconds is None else timedelta(seconds=seconds))


def test_number_without_unit_has_the_unit_of_its_option() -> None:
    assert parse_span("45", "m") == timedelta(minutes=45)
    assert parse_span("45s", "m") == timedelta(seconds=45)
