"""Tests of accounting in `dnm check`: how sreport counts lent nodes; the settings to change."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dnm.checks.batch import check_charges
from dnm.model.batch import BatchClaim, BatchList
from dnm.model.charge import Charge
from dnm.model.registry import Registry
from tests.builders import NOW, a_batch_node, a_config, a_lent_node
from tests.converter.programs import script
from tests.plan.worlds import namespace_policy

DOWN = "sreport has the hours of lent nodes as Down; with charge_account = - in [namespace"
SACCTMGR = """\
case "$*" in
*away*) echo 'sacctmgr: error: Connection refused' >&2; exit 1 ;;
*proj*) echo proj ;;
esac
"""


def lent(account: str, charged: str) -> tuple[Registry, BatchList]:
    charge = Charge(account=account, since=NOW) if account else None
    claim = BatchClaim(instance="prod", account=charged)
    nodes = {"a001": a_batch_node("a001", False, claim=claim, reports_claim=True)}
    registry = Registry(nodes={"a001": a_lent_node(charge=charge)})
    return registry, BatchList(nodes=nodes, charges=True)


@pytest.mark.parametrize(
    ("account", "charges", "lends", "expected"),
    [
        ("", False, ("", ""), []),
        ("", True, ("", ""), [DOWN]),
        ("proj", False, ("", ""), ["proj is to be charged, and the converter can't: sreport has"]),
        ("-", True, ("-", "-"), ["sreport has lent nodes as planned, charged to -"]),
        ("Proj", True, ("Proj", "proj"), ["sreport has lent nodes as planned, charged to Proj"]),
        ("proj", True, ("", ""), ["sreport has lent nodes as planned, charged to proj"]),
        ("proj", True, ("proj", ""),
         ["sreport has", "a001 is lent for proj, and Slurm charges no account"]),
        ("nosuch", True, ("proj", "-"),
         ["sreport has", "Slurm has no account nosuch",
          "a001 is lent for proj, and Slurm charges -"]),
        ("away", True, ("", ""),
         ["sreport has", "whether Slurm has the account away is unknown"]),
    ],
)  # fmt: skip
def test_check_reports_the_slurm_accounting_setup(
    account: str, charges: bool, lends: tuple[str, str], expected: list[str], tmp_path: Path
) -> None:
    script(tmp_path, SACCTMGR, "sacctmgr")
    registry, listed = lent(*lends)
    changes: dict[str, Any] = {"namespaces": namespace_policy(a_config(), charge_account=account)}
    listed = BatchList(nodes=listed.nodes, charges=charges)
    result = check_charges(a_config(**changes), registry, listed, {"PATH": f"{tmp_path}:/bin"})
    texts = [finding.text for finding in result]
    assert len(texts) == len(expected), texts
    assert all(text.startswith(begin) for text, begin in zip(texts, expected, strict=True)), texts
