"""Tests of how sreport counts lent nodes, on a real slurmctld, slurmdbd and MariaDB (22.05 of
Debian 12): `pytest tests/real/slurm_accounting.py`, as root."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

import pytest

from dnm.converters.sreport import knows_account, read_weights
from dnm.lab.sandbox.cluster import Sandbox
from dnm.model.errors import SlurmError
from dnm.model.lent import Phase
from tests.docs.pages import ROOT, rows, section
from tests.processes import PATIENCE
from tests.real.accounting_lab import AccountingLab
from tests.site import WORKSHOP_QUEUES, Site
from tests.slurm_lab import SlurmSite, finished

pytestmark = [
    pytest.mark.slurm,
    pytest.mark.skipif(os.geteuid() != 0, reason="jobs of several users need root"),
]
NODES = tuple(f"a{number:03}" for number in range(1, 9))
CPUS = 8
HOURS = 3


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AccountingLab]:
    directory = tmp_path_factory.mktemp("books")
    for folder in (directory, *list(directory.parents)[:3]):
        folder.chmod(0o755)
    made = AccountingLab(directory, NODES, ("proj", "gone"))
    made.patience = 3
    try:
        made.start()
        yield made
    finally:
        made.stop()


@pytest.fixture(scope="module")
def site(lab: AccountingLab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SlurmSite]:
    directory = tmp_path_factory.mktemp("site")
    sandbox = Sandbox(directory / "sandbox", manual=False).start()
    yield SlurmSite(lab, sandbox, directory / "site")
    sandbox.stop()


def charged_hours(lab: AccountingLab, since: datetime) -> list[tuple[str, float]]:
    """Returns (node, hours since then) of each reservation with the flag MAINT in slurmdbd."""
    until = datetime.now(UTC)
    start, end = (f"{moment:%Y-%m-%dT%H:%M:%S}" for moment in (since, until))
    message = lab.run(
        "sacctmgr", "-nP", "show", "reservation", f"start={start}", f"end={end}",
        "format=start,end,nodenames,flags",
    )  # fmt: skip
    rows = [line.split("|") for line in message.splitlines()]
    return [
        (node, (_moment(last, until) - max(_moment(first, since), since)).total_seconds() / 3600)
        for first, last, node, flags in rows
        if "MAINT" in flags.split(",")
    ]


def _moment(text: str, unknown: datetime) -> datetime:
    try:
        return datetime.fromisoformat(text).replace(tzinfo=UTC)
    except ValueError:  # "Unknown", "None": it has not ended
        return unknown


def lend(site: SlurmSite, node: str, account: str = "", **environment: str) -> str:
    """Lends a node; returns the converter's stderr."""
    charged = ("--account", account) if account else ()
    words = ("--set", "k8s", "--node-name", node, "--namespace", "dev", *charged)
    process = site.start(*words, **environment)
    done = finished(process)
    expected = -signal.SIGKILL if environment else 0
    assert done.returncode == expected, done.stderr
    return done.stderr


def return_nodes(site: SlurmSite, *nodes: str) -> None:
    processes = [site.start("--set", "batch", "--node-name", node) for node in nodes]
    for process in processes:
        done = finished(process)
        assert done.returncode == 0, done.stderr
    site.assert_in_service(*nodes)


def reservation(lab: AccountingLab, name: str) -> str:
    results = {item.name: item for item in lab.client.read_reservations()}
    return results[name].charged_to if name in results else "none"


def test_lent_hours_are_planned_and_charged(site: SlurmSite, lab: AccountingLab) -> None:
    """Plays one lend of each kind, two of them in the same second. Three hours later, sreport's
    figures must equal the page's table."""
    assert knows_account(lab.environ, "Proj") and not knows_account(lab.environ, "nosuch")
    begun = datetime.now(UTC)
    lend(site, "a001")
    lend(site, "a002", "-")
    together = [site.start("--set", "k8s", "--node-name", node, "--namespace", "dev",
                           "--account", "proj") for node in ("a003", "a004")]  # fmt: skip
    assert [finished(popen).returncode for popen in together] == [0, 0]
    assert "Invalid account" in lend(site, "a005", "nosuch")
    charged = {node: reservation(lab, f"k8s-{node}") for node in NODES[:5]}
    assert charged == {"a001": "", "a002": "-", "a003": "proj", "a004": "proj", "a005": ""}
    site.assert_lent(*NODES[:5])
    all_lent = datetime.now(UTC)
    return_nodes(site, *NODES[:5])
    assert not lab.client.read_reservations()
    lab.has_been(HOURS, all_lent)
    since = datetime.fromtimestamp(begun.timestamp() - HOURS * 3600 + 3600, UTC)
    since = since.replace(minute=0, second=0, microsecond=0)  # sreport has whole hours
    full = lab.hours(since)
    down, planned = 2 * CPUS, 3 * CPUS
    assert full[:2] == [[down, planned, CPUS * len(NODES) - down - planned]] * 2, full
    used = dict(lab.sql(
        "select concat(a.acct, '/', a.user), max(u.alloc_secs) div 3600 "
        "from lab_assoc_usage_hour_table u join lab_assoc_table a on a.id_assoc=u.id "
        "where u.id_tres=1 group by u.id"
    ))  # fmt: skip
    assert used["proj/"] == str(2 * CPUS) and used["root/"] == str(CPUS), used
    assert "root/root" not in used or int(used["root/root"]) == 0, used
    table = {row[0]: row[1:] for row in rows(section("docs/accounting.md", "What sreport shows"))}
    name = str(CPUS)
    assert table == {
        "none": [name, "0", "nobody"], "`-`": ["0", name, f"root: {name}"],
        "`proj`": ["0", name, f"proj: {name}"], "unknown to Slurm": [name, "0", "nobody"],
    }  # fmt: skip
    assert {node for node, _ in charged_hours(lab, since)} == {"a002", "a003", "a004"}
    assert read_weights(lab.environ) == {}  # no partition has TRESBillingWeights


@pytest.mark.parametrize(
    "point",
    [
        "slurm.update_reservation:before:kill:1", "slurm.update_reservation:after:kill:1",
        "slurm.update_reservation:after:kill:2", "convert.verify:after:kill",
    ],
)  # fmt: skip
def test_kill_around_the_charge_is_repaired(
    site: SlurmSite, lab: AccountingLab, point: str
) -> None:
    lend(site, "a006", "proj", DNM_FAULT=point)
    lend(site, "a006", "proj")
    assert reservation(lab, "k8s-a006") == "proj"
    site.assert_lent("a006")
    for fault in ("slurm.update_reservation:before:kill", "slurm.update_reservation:after:kill",
                  "slurm.resume:after:kill"):  # fmt: skip
        process = site.start("--set", "batch", "--node-name", "a006", DNM_FAULT=fault)
        assert finished(process).returncode in (-signal.SIGKILL, 0)
    return_nodes(site, "a006")
    assert reservation(lab, "k8s-a006") == "none"


def test_reservation_of_another_owner_over_a_charged_node_is_kept(
    site: SlurmSite, lab: AccountingLab
) -> None:
    lend(site, "a006", "proj")
    lab.run("scontrol", "create", "reservation", "ReservationName=class", "Nodes=a006",
            "StartTime=now", "Duration=60", "Users=root")  # fmt: skip
    refused = site.run("--set", "k8s", "--node-name", "a006", RES_NAME="other", DNM_INSTANCE="two")
    assert refused.returncode == 1
    return_nodes(site, "a006")
    assert [item.name for item in lab.client.read_reservations()] == ["class"]
    lab.run("scontrol", "delete", "ReservationName=class")


def test_node_is_returned_after_its_account_was_deleted(
    site: SlurmSite, lab: AccountingLab
) -> None:
    lend(site, "a007", "gone")
    lab.run("sacctmgr", "-i", "delete", "account", "gone")
    assert reservation(lab, "k8s-a007") == "gone"
    return_nodes(site, "a007")
    assert reservation(lab, "k8s-a007") == "none"


def test_node_is_charged_although_slurmdbd_was_down_during_the_lend(
    site: SlurmSite, lab: AccountingLab
) -> None:
    """slurmctld knows the accounts and sends all records when slurmdbd is back."""
    lab.stop_slurmdbd()
    begun = datetime.now(UTC)
    lend(site, "a008", "proj")
    assert reservation(lab, "k8s-a008") == "proj"
    return_nodes(site, "a008")
    lab.start_slurmdbd()

    def is_reported() -> bool:
        with suppress(SlurmError):  # slurmdbd is just starting
            return "a008" in [node for node, _ in charged_hours(lab, begun)]
        return False

    lab.wait_for(is_reported, 60)


# --- an administrator's walk, by the page alone ---------------------------------------------------

PAGE = "Accounts of lent nodes"
CONVERTER = """\
#!/bin/sh
PYTHONPATH={root} exec {python} -m dnm.converters.cli "$@"
"""


@pytest.fixture
def office(lab: AccountingLab, site: SlurmSite, tmp_path: Path) -> Site:
    """Returns a site of dnm on the real Slurm, without configured accounts."""
    program = tmp_path / "node-convert"
    program.write_text(CONVERTER.format(root=ROOT, python=sys.executable))
    program.chmod(0o755)
    site.sandbox.set_queues(WORKSHOP_QUEUES)
    site.sandbox.add_namespace("dev")
    return Site(
        site.sandbox, tmp_path / "dnm", node_convert_path=program, reversion_idle_seconds=3600,
        sections=f"[node_convert]\nhooks_dir = {site.hooks}\nmin_idle_seconds = 0\n",
        verify_seconds=0.5, poll_seconds=0.2,
    )  # fmt: skip


def test_availability_finding_of_check_leads_to_the_right_setting(
    lab: AccountingLab, site: SlurmSite, office: Site
) -> None:
    """Sets exactly the lines of the page to which `dnm check` refers."""

    def dnm(*words: str) -> str:
        done = office.process(*words, seconds=PATIENCE, **lab.environ)
        assert done.returncode in (0, 1), done.stderr
        return done.stdout

    message = dnm("check", "--wide")
    assert "sreport has the hours of lent nodes as Down; with charge_account = -" in message
    assert "docs/accounting.md" in message
    (lines,) = re.findall(r"^```ini\n(.*?)^```", section("docs/accounting.md", PAGE), re.S | re.M)
    of_dev, _, _ = lines.partition("[namespace:test]")  # which this site does not monitor
    office.write(office.path, f"{office.path.read_text()}\n{of_dev}")
    assert "Slurm has no account course" in dnm("check", "--wide")
    lab.run("sacctmgr", "-i", "add", "account", "course", "cluster=lab")
    message = dnm("check", "--wide")
    assert "sreport has lent nodes as planned, charged to course" in message
    assert "Slurm has no account" not in message
    begun = datetime.now(UTC)
    dnm("lend", "--namespace", "dev", "--node", "a001", "--now")

    def serves() -> bool:
        dnm("run")
        lent_node = office.registry.nodes.get("a001")
        return lent_node is not None and lent_node.phase is Phase.SERVING

    lab.wait_for(serves, 60)
    assert reservation(lab, "k8s-a001") == "course"
    assert "a001 is lent for" not in dnm("check", "--wide")
    dnm("return", "a001", "--now")

    def is_back() -> bool:
        dnm("run")
        return not office.registry.nodes

    lab.wait_for(is_back, 60)
    site.assert_in_service("a001")
    since = f"{begun:%Y-%m-%dT%H:%M:%SZ}"
    (bill,) = json.loads(dnm("report", "--since", since, "--format", "json"))["lends"]
    assert (bill["account"], bill["node"], bill["billed"]) == ("course", "a001", None)
    hours = sum(hours for node, hours in charged_hours(lab, begun) if node == "a001")
    assert abs(bill["lent_hours"] - hours) * 3600 < 60
