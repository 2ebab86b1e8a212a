"""Any history of demand, failures, kills, administrators and lies: the invariants hold after
every step, and when the faults stop it comes to rest and gives everything back.

A failure prints its seed and the shortest history that leads to it. `DNM_PROOF_SEED=N` plays the
same histories again.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable

import pytest

from tests.proof.machine import FIGURES, Machine, OneHost, TwoHosts, play_machine

HISTORIES = 50


@pytest.mark.parametrize("machine", [OneHost, TwoHosts])
def test_every_history_keeps_the_promises(
    machine: type[Machine], record_property: Callable[[str, object], None]
) -> None:
    number = int(os.environ.get("DNM_PROOF_SEED") or secrets.randbits(32))
    print(f"DNM_PROOF_SEED={number}")
    FIGURES.clear()
    play_machine(machine, number, HISTORIES)
    told = " ".join(f"{name}={count}" for name, count in FIGURES.items())
    record_property("figures", f"machine {machine.__name__}: seed={number} {told}")
    assert FIGURES["histories"] >= HISTORIES
