"""The two grammars compared with the real parsers, and the conversion back to YuniKorn's."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dnm.model.quantity import (
    INT64_MAX,
    QuantityError,
    format_amount,
    format_yunikorn,
    kube_resources,
    parse_kubernetes,
    parse_span,
    parse_yunikorn,
)
from tests.queue_kit import DATA

VECTORS = json.loads((DATA / "yunikorn_vectors.json").read_text())["quantity"]
assert len(VECTORS) == 77


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: repr(vector["text"]))
def test_yunikorn_quantities_are_parsed_like_in_yunikorn(vector: dict[str, object]) -> None:
    text = str(vector["text"])
    for resource, amount, error in (
        ("memory", vector["other"], vector["other_error"]),
        ("vcore", vector["vcore_milli"], vector["vcore_error"]),
    ):
        if error is None:
            assert parse_yunikorn(resource, text) == amount
        else:
            with pytest.raises(QuantityError, match=f"^{error}$"):
                parse_yunikorn(resource, text)


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
    for resource, amount in (("cpu", milli), ("vcore", milli), ("memory", whole)):
        if amount is None:
            with pytest.raises(QuantityError, match="is no Kubernetes quantity"):
                parse_kubernetes(resource, text)
        else:
            assert parse_kubernetes(resource, text) == amount


def test_resource_list_gets_the_names_of_yunikorn() -> None:
    assert kube_resources({"cpu": "500m", "memory": "1Gi", "nvidia.com/gpu": "2"}) == {
        "vcore": 500,
        "memory": 2**30,
        "nvidia.com/gpu": 2,
    }


STYLES = [
    pytest.param("memory", 576 * 10**9, "320G", "576G", id="same unit"),
    pytest.param("vcore", 256_000, "128000m", "256000m", id="millicores"),
    pytest.param("vcore", 208_000, "80", "208", id="cores"),
    pytest.param("vcore", 208_500, "80", "208500m", id="cores and a half"),
    pytest.param("vcore", 1_128_000, "1k", "1128", id="a unit that is not exact"),
    pytest.param("memory", 2**40 + 10**11, "1Ti", "1171398074Ki", id="binary and decimal mixed"),
    pytest.param("memory", 2**40, "300", "1099511627776", id="bytes stay bytes"),
    pytest.param("memory", 321 * 2**30, "320 Gi", "321 Gi", id="a space before the suffix"),
    pytest.param("memory", 2**30, " 5Gi ", " 1Gi ", id="spaces around"),
    pytest.param("pods", 160, "50\n", "160\n", id="a block's line end"),
    pytest.param("vcore", 138_000, "0010", "138", id="leading zeros go"),
    pytest.param("memory", 0, "5Gi", "0Gi", id="zero"),
    pytest.param("pods", 1001, "1k", "1001", id="counts"),
    pytest.param("memory", INT64_MAX, "1Ei", "9223372036854775807", id="the largest"),
]


@pytest.mark.parametrize(("resource", "amount", "like", "text"), STYLES)
def test_amount_is_written_in_the_previous_style(
    resource: str, amount: int, like: str, text: str
) -> None:
    assert format_yunikorn(resource, amount, like) == text
    assert parse_yunikorn(resource, text) == amount


@pytest.mark.parametrize("amount", [-1, INT64_MAX + 1])
def test_amount_beyond_the_range_of_yunikorn_is_refused(amount: int) -> None:
    with pytest.raises(QuantityError, match="outside what YuniKorn can count"):
        format_yunikorn("memory", amount, "1G")


@pytest.mark.parametrize("like", ["", "1.5Gi", "500m", "x"])
def test_style_that_is_no_quantity_is_refused(like: str) -> None:
    with pytest.raises(QuantityError, match="is no quantity of memory"):
        format_yunikorn("memory", 1, like)


resources = st.sampled_from(["vcore", "memory", "nvidia.com/gpu"])
legal = st.builds(
    "{}{}{}".format,
    st.integers(0, 9000),
    st.sampled_from(["", " ", "\t"]),
    st.sampled_from(["", "k", "M", "G", "T", "Ki", "Mi", "Gi", "Ti"]),
)


@given(resources, st.integers(0, INT64_MAX), legal)
def test_every_amount_is_written_exactly(resource: str, amount: int, like: str) -> None:
    assert parse_yunikorn(resource, format_yunikorn(resource, amount, like)) == amount
    assert parse_yunikorn(resource, format_amount(resource, amount)) == amount


@given(st.text(max_size=12))
def test_arbitrary_text_is_an_amount_or_an_error(text: str) -> None:
    for resource in ("vcore", "memory"):
        for parse in (parse_yunikorn, parse_kubernetes):
            try:
                amount = parse(resource, text)
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
