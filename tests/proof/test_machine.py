"""Tests with random histories of demand, failures, kills, administrators and wrong answers. The
eight invariants hold after every step. Once the faults end, runs return all nodes and stop acting.

A failure prints its seed and the shortest history that leads to it. `make test` always uses the
same seed, so that its result depends on the code only. `DNM_PROOF_SEED=N` plays other histories,
and `make soak` always new ones."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

from tests.night import by_night
from tests.proof.machine import FIGURES, Machine, OneHost, TwoHosts, play_machine

SEED = 23


@pytest.mark.parametrize("histories", by_night(6, 50))
@pytest.mark.parametrize("machine", [OneHost, TwoHosts])
def test_random_histories_violate_no_invariant(
    machine: type[Machine], histories: int, record_property: Callable[[str, object], None]
) -> None:
    number = int(os.environ.get("DNM_PROOF_SEED") or SEED)
    print(f"DNM_PROOF_SEED={number}")
    FIGURES.clear()
    play_machine(machine, number, histories)
    output = " ".join(f"{name}={count}" for name, count in FIGURES.items())
    record_property("figures", f"machine {machine.__name__}: seed={number} {output}")
    assert FIGURES["histories"] >= histories
    if number == SEED:  # the walks with both options run at night
        assert FIGURES["kubernetes"] and FIGURES["runs_that_listed_nothing"]
