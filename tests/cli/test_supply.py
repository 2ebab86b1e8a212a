"""How many nodes could be lent now, wherever it is said: with the floors, the caps and what is kept
out, and not only by the converter's word."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest

from dnm.lab.sandbox.cluster import Sandbox
from tests.site import QUEUE, WORKSHOP_QUEUES, Site

ALL = "3 of 3 nodes of the type a can be lent now"
FEWER = "of 3 nodes of the type a can be lent now: 3 could be had, and"
# Lines of the ini -> what `dnm check` says, and `dnm nodes` where it is less than the table shows.
SUPPLIES = {
    "nothing bounds them": ((), ALL),
    "a floor": (("batch_floor = 2",), f"1 {FEWER} batch_floor of type a allows no more"),
    "a floor in percent": (
        ("batch_floor = 100%%",), f"0 {FEWER} batch_floor of type a allows no more"
    ),
    "a cap": (("max_converted_nodes = 2",), f"2 {FEWER} max_converted_nodes allows no more"),
    "a cap in percent": (
        ("max_converted_nodes = 67%%",), f"2 {FEWER} max_converted_nodes allows no more"
    ),
    "looking on": (("max_converted_nodes = 0",), f"0 {FEWER} max_converted_nodes allows no more"),
    "both": (
        ("batch_floor = 1", "max_converted_nodes = 2"),
        f"2 {FEWER} batch_floor of type a and max_converted_nodes allow no more",
    ),
    "kept out": (("exclude_nodes = a002",), "2 of 3 nodes of the type a can be lent now"),
}  # fmt: skip


@pytest.fixture
def site(sandbox: Sandbox, tmp_path: Path) -> Site:
    """Three machines are idle, and nobody waits."""
    sandbox.clock.set(time.time())
    sandbox.set_queues(WORKSHOP_QUEUES)
    sandbox.add_machines(3)
    return Site(sandbox, tmp_path)


def settings(site: Site, *lines: str) -> None:
    keys = {line.split(" = ")[0] for line in lines}
    text = site.path.read_text().splitlines()
    kept = [line for line in text if line.split(" = ")[0] not in keys]
    at = kept.index("[settings]") + 1
    site.write(site.path, "\n".join([*kept[:at], *lines, *kept[at:]]) + "\n")


@pytest.mark.parametrize("name", SUPPLIES)
def test_what_can_be_lent_now_is_what_a_run_could_lend(site: Site, name: str) -> None:
    lines, said = SUPPLIES[name]
    settings(site, *lines)
    assert f"✓ batch nodes: {said}\n" in site.command("check").stdout
    told = site.command("nodes").stdout.splitlines()[-1]
    assert (told == said) == ("could be had" in said)


UNKNOWN = "of how many nodes is not known, and no more are lent while it is"
# Lines of the ini -> what `dnm check` says of each cap.
SHARES = {
    "a number": (("max_converted_nodes = 2",), "✓ caps: {} = 2: at most 2 of {}, 66.7 %"),
    "more than there are": (
        ("max_converted_nodes = 30",), "✓ caps: {} = 30: at most 3 of {}, 100 %"
    ),
    "a percentage": (("max_converted_nodes = 5%%",), "✓ caps: {} = 5%: at most 1 of {}, 33.3 %"),
    "none": (("max_converted_nodes = 0",), "✓ caps: {} = 0: at most 0 of {}, 0 %"),
    "of an unknown number": (
        ("max_converted_nodes = 5%%", "batch_list_command = /bin/false"),
        f"! caps: {{}} = 5%: {UNKNOWN}",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", SHARES)
def test_check_says_what_share_a_cap_is(site: Site, name: str) -> None:
    lines, said = SHARES[name]
    settings(site, *lines)
    said = said.format("max_converted_nodes", "3 batch nodes")
    assert f"{said}\n" in site.command("check").stdout.replace(" → see to", "\n")


def test_check_says_the_share_of_a_namespace(site: Site) -> None:
    site.write(site.path, f"{site.path.read_text()}[namespace:dev]\nmax_nodes = 67%\n")
    assert (
        "✓ caps: [namespace:dev] max_nodes = 67%: at most 2 of 3 batch nodes, 66.7 %"
        in site.command("check").stdout
    )


NOT_LENT = {
    "nobody wants it": ((), "it could be lent: no queue wants one more of type a now"),
    "a floor": (("batch_floor = 3",), "it is not lent: batch_floor of type a allows no more"),
    "it is kept out": (("exclude_nodes = a001",), "it may not be lent: exclude_nodes names it"),
}


@pytest.mark.parametrize("name", NOT_LENT)
def test_explain_says_why_a_batch_node_is_not_lent(site: Site, name: str) -> None:
    lines, said = NOT_LENT[name]
    settings(site, *lines)
    done = site.command("explain", "a001")
    assert done.stdout == f"node a001 is not lent: Slurm has it as IDLE, and {said}\n", done.stderr


def test_explain_says_who_wants_a_node_that_is_not_lent(site: Site) -> None:
    site.sandbox.add_pods(20, "dev", queue=QUEUE, cpu="4", memory="16Gi")
    answer = site.command("explain", "node/a001").stdout
    assert f"it could be lent: {QUEUE} wants more of type a" in answer


def test_explain_names_a_batch_side_that_does_not_answer(site: Site) -> None:
    settings(site, "batch_list_command = /bin/false")
    answer = site.command("explain", "a001").stdout
    assert "which batch nodes there are could not be asked now: " in answer


def test_floors_are_brakes(site: Site) -> None:
    settings(site, "batch_floor = 2, partition gpu: 50%", "max_converted_nodes = 25%")
    brakes = site.command("status").stdout.partition("Brakes\n")[2].splitlines()
    share = "  max_converted_nodes: at most 25 % of the nodes that Slurm has, "
    assert share + "not known yet" in brakes
    assert "  batch_floor of type a: 2 nodes left to Slurm" in brakes
    assert "  batch_floor of partition gpu: 50 % of the nodes left to Slurm" in brakes


def test_a_share_is_so_many_nodes_once_a_run_has_read_them(site: Site) -> None:
    settings(site, "max_converted_nodes = 67%")
    site.sandbox.add_pods(20, "dev", queue=QUEUE, cpu="4", memory="16Gi")
    assert site.command("run").returncode == 0
    brakes = site.command("status").stdout.partition("Brakes\n")[2]
    assert "at most 67 % of the nodes that Slurm has, 2 nodes" in brakes
    assert "all: 2 of 2 nodes lent" in brakes
    told = site.command("status", "-o", "prometheus").stdout
    assert re.search(r'^dnm_cap_nodes\{.*scope="all"\} 2$', told, re.MULTILINE), told


def test_pods_in_their_grace_are_counted_beside_those_that_count(site: Site) -> None:
    site = Site(site.sandbox, site.directory, pending_grace_seconds=3600)
    site.sandbox.add_pods(7, "dev", queue=QUEUE, cpu="4", memory="16Gi")
    assert site.command("run").returncode == 0
    assert "pending (0 pods, 7 in their grace)" in site.command("status").stdout
