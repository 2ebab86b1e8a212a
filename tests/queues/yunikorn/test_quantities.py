"""Tests of quantities and resource names of YuniKorn, compared with results of its own parser."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dnm.model.cluster import QueueLimits
from dnm.model.quantity import INT64_MAX, QuantityError
from dnm.model.queue_edit import QueueWants
from dnm.queues.yunikorn.quantities import (
    format_amount,
    format_yunikorn,
    kubernetes_amounts,
    kubernetes_limits,
    parse_yunikorn,
    yunikorn_amounts,
    yunikorn_wants,
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
    with pytest.raises(QuantityError, match="is not a quantity of memory"):
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
        try:
            amount = parse_yunikorn(resource, text)
        except QuantityError:
            continue
        assert 0 <= amount <= INT64_MAX


# --- the names of Kubernetes ------------------------------------------------------------------


@given(st.dictionaries(st.sampled_from(["cpu", "memory", "pods", "nvidia.com/gpu"]), st.integers()))
def test_amounts_have_the_same_names_again_after_both_translations(amounts: dict[str, int]) -> None:
    translated = yunikorn_amounts(amounts)
    assert "cpu" not in translated
    assert kubernetes_amounts(translated) == amounts


def test_cpu_of_the_document_limits_no_pod() -> None:
    assert kubernetes_amounts({"vcore": 4000, "cpu": 1, "memory": 5}) == {"cpu": 4000, "memory": 5}


def test_limits_and_wants_are_translated() -> None:
    queue = QueueLimits(
        path="root.a", parent="root", is_leaf=True, max={"vcore": 4000, "pods": 0},
        guaranteed={"vcore": 1000}, fixed=frozenset({"vcore", "pods"}),
    )  # fmt: skip
    (limits,) = kubernetes_limits({"root.a": queue}).values()
    assert (limits.max, limits.guaranteed) == ({"cpu": 4000, "pods": 0}, {"cpu": 1000})
    assert limits.fixed == {"cpu", "pods"} and limits.is_leaf
    wants = QueueWants(
        instance_id="prod", nodes={"root.a": {"n1": {"cpu": 2000}}}, floors={"root": {"cpu": 1}},
    )  # fmt: skip
    assert yunikorn_wants(wants).nodes == {"root.a": {"n1": {"vcore": 2000}}}
    assert yunikorn_wants(wants).floors == {"root": {"vcore": 1}}
