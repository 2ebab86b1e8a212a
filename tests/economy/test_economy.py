"""A small version of the economy benchmark: two days instead of a week (`python -m tests.economy`).

The bounds are those of the full table; what they are measured against is in tests/economy.
"""

from __future__ import annotations

import pytest

from tests.economy.measure import Row, measure
from tests.economy.workloads import ALL
from tests.economy.world import DAY

LASTS = 2 * DAY


@pytest.fixture(scope="module")
def rows() -> dict[tuple[str, str], Row]:
    policies = ("dnm", "predecessor", "node per pod")
    found = [measure(make(LASTS), policy) for make in ALL for policy in policies]
    return {(row.workload, row.policy): row for row in found}


WORKLOADS = [make(LASTS).name for make in ALL]


@pytest.mark.parametrize("workload", WORKLOADS)
def test_every_pod_runs(rows: dict[tuple[str, str], Row], workload: str) -> None:
    still_converting = 8  # pods of the last minutes of the second day
    assert rows[workload, "dnm"].unserved <= still_converting


@pytest.mark.parametrize("workload", WORKLOADS)
def test_dnm_waits_no_longer_than_the_predecessor(
    rows: dict[tuple[str, str], Row], workload: str
) -> None:
    assert rows[workload, "dnm"].waited <= rows[workload, "predecessor"].waited


@pytest.mark.parametrize("workload", WORKLOADS)
def test_dnm_lends_little_more_than_a_clairvoyant(
    rows: dict[tuple[str, str], Row], workload: str
) -> None:
    row = rows[workload, "dnm"]
    assert row.volume <= row.oracle * 1.001
    assert row.lent <= 1.25 * row.oracle


def test_on_average_at_most_a_seventh_more(rows: dict[tuple[str, str], Row]) -> None:
    ratios = [rows[name, "dnm"].lent / rows[name, "dnm"].oracle for name in WORKLOADS]
    assert sum(ratios) / len(ratios) <= 1.15


def test_fewer_conversions_than_the_predecessor(rows: dict[tuple[str, str], Row]) -> None:
    """In a week it is a half and less (the predecessor converts for GPU pods for ever)."""

    def conversions(policy: str) -> int:
        return sum(rows[name, policy].conversions for name in WORKLOADS)

    assert conversions("dnm") <= 0.75 * conversions("predecessor")
    assert conversions("dnm") < conversions("node per pod")
