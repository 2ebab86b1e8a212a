"""The tests of `dnm report --format`, over a month of history."""

from __future__ import annotations

import csv
import io
import json
import os
import subprocess
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from dnm.lab.sandbox.cluster import Sandbox
from dnm.record.history_file import History
from tests.converter.programs import script
from tests.record.test_bill import a_month
from tests.site import Site

SPAN = ("--since", "2026-03-01", "--until", "2026-04-01")
LINE = (
    "NodeName={} CPUAlloc=0 OS=Linux State=IDLE Partitions=gpu "
    "CfgTRES=cpu=128,mem=256000M,billing=128,gres/gpu=4 Reason=x"
)
PARTITION = "PartitionName=gpu AllowGroups=ALL TRESBillingWeights=CPU=1.0,Mem=0.25G,GRES/gpu=2.0"
WEIGHT = 128 + 250 * 0.25 + 4 * 2
Run = Callable[..., subprocess.CompletedProcess[str]]

pytestmark = pytest.mark.xdist_group("bill")  # one worker builds the fixture once


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Site:
    directory = tmp_path_factory.mktemp("bill")
    made = Site(Sandbox(directory / "sandbox"), directory / "site", history_days="4000")
    history = History(made.config.converted_nodes_path, timedelta(days=4000))
    history.append(a_month(5), datetime.now(UTC))
    return made


@pytest.fixture
def bill(site: Site, tmp_path: Path) -> Run:
    """Runs `dnm report`, with Slurm's programs first in PATH."""
    script(tmp_path, "\n".join([
        'case "$*" in',
        "*config*) echo 'PriorityFlags           = CALCULATE_RUNNING' ;;",
        f"*partition*) echo '{PARTITION}' ;;",
        "*nodes*) cat <<X", *(LINE.format(f"a{n:03}") for n in range(12)), "X", ";;", "esac",
    ]), "scontrol")  # fmt: skip

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        return site.command("report", *SPAN, *words, PATH=f"{tmp_path}:{os.environ['PATH']}")

    return run


def test_csv_and_json_usage_reports_have_the_same_lends(bill: Run) -> None:
    rows = list(csv.DictReader(io.StringIO(bill("--format", "csv").stdout)))
    document = json.loads(bill("--format", "json").stdout)
    assert document["schema"] == "dnm.bill/1" and len(rows) == len(document["lends"]) > 60
    for row, lend in zip(rows, document["lends"], strict=True):
        assert [row["node"], float(row["lent_hours"])] == [lend["node"], lend["lent_hours"]]
        parts = sum(lend[f"{name}_hours"] for name in ("booting", "used", "idle"))
        assert parts == pytest.approx(lend["lent_hours"], abs=0.001)
        assert lend["billed"] == pytest.approx(lend["lent_hours"] * WEIGHT, rel=0.001)
    for total in document["accounts"]:
        account = [total[key] for key in ("account", "namespace", "queue")]
        of = [
            lend for lend in document["lends"]
            if [lend[key] for key in ("account", "namespace", "queue")] == account
        ]  # fmt: skip
        assert total["lends"] == len(of)
        assert total["lent_hours"] == pytest.approx(
            sum(item["lent_hours"] for item in of), abs=0.01
        )
        assert total["billed"] == pytest.approx(total["lent_hours"] * WEIGHT, rel=0.001)


@pytest.mark.parametrize("form", ["csv", "json"])
def test_span_with_an_offset_equals_its_utc_span(bill: Run, form: str) -> None:
    """Once, a lend that began before the span had a local start time with the wrong zone."""
    there = ("--since", "2026-03-02T17:00+05:00", "--until", "2026-03-20T10:00-02:00")
    in_utc = ("--since", "2026-03-02T12:00Z", "--until", "2026-03-20T12:00Z")
    assert bill("--format", form, *there).stdout == bill("--format", form, *in_utc).stdout


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("--format", "xml"), "--format 'xml' is unknown; write csv or json"),
        (("--format", "csv", "--until", "2026-02-01"), "--until is not after --since"),
    ],
)
def test_malformed_report_request_gets_a_single_sentence(
    bill: Run, words: tuple[str, ...], text: str
) -> None:
    done = bill(*words)
    assert done.returncode == 2 and text in done.stderr and "Traceback" not in done.stderr


def test_usage_report_without_slurm_has_no_weights(site: Site, tmp_path: Path) -> None:
    done = site.command("report", *SPAN, "--format", "json", PATH="/nonexistent")
    assert {lend["billed"] for lend in json.loads(done.stdout)["lends"]} == {None}
    assert done.returncode == 0 and "no billing weights" in done.stderr
    assert "nothing is done" not in done.stderr


def test_report_shows_node_hours_by_account(site: Site) -> None:
    message = site.command("report", "--since", "2026-03-01").stdout
    assert "Node-hours by account" in message and "course" in message
