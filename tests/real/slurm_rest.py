"""Tests that compare slurmrestd of each Debian suite with the commands of the same Slurm.

pytest does not collect these with the other tests of real servers: they need no Kubernetes (`pytest
--numprocesses 2 --dist loadgroup tests/real/slurm_rest.py`). By slurmrestd of 22.05, dnm only
reads; by 24.11, it also changes nodes; by 26.05, it also reserves them."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from dnm.converters.slurm.commands import IGNORE_JOBS, SlurmRefused
from dnm.converters.slurm.rest import SlurmRestClient
from dnm.lab.sandbox.cluster import Sandbox
from dnm.model.errors import SlurmError
from tests.real.slurm_roots import REST_SUITES, programs_of
from tests.real_slurm import SlurmLab, _free_ports
from tests.rest_samples import assert_same, by_rest, by_text, compare_all_states, lines_of
from tests.slurm_lab import SlurmSite, end_with_us, finished
from tests.slurm_states import states_lab
from tests.slurmrestd import allow_tokens, slurmrestd, write_token

LOCKED = 60  # seconds
LOCK = re.compile(r"k8s-a00[1-4]_[0-9a-f]{8}")
NODES = ("a001", "a002", "a003", "a004")
EVERY = [pytest.param(suite, marks=pytest.mark.xdist_group(suite)) for suite in REST_SUITES]


class RestLab:
    """A small Slurm that accepts tokens, and its slurmrestd on loopback."""

    def __init__(self, lab: SlurmLab, url: str) -> None:
        self.lab = lab
        self.url = url
        self.token = write_token(lab, lab.directory / "token")
        self.client = SlurmRestClient(url, self.token)

    def compare(self) -> None:
        before = by_text(lines_of(self.lab))
        reported, _ = by_rest(self.client)
        after = by_text(lines_of(self.lab))
        assert assert_same(before, reported, after, self.client.offer.version)


@pytest.fixture(scope="module", params=EVERY)
def rest_lab(request: pytest.FixtureRequest) -> Iterator[RestLab]:
    directory = Path(tempfile.mkdtemp(prefix="dnm-rest-"))
    lab = SlurmLab(directory, NODES, programs=programs_of(request.param))
    lab.patience = 5
    end = end_with_us(directory)
    try:
        allow_tokens(lab)
        lab.start()
        with slurmrestd(lab, str(_free_ports(1)[0])) as url:
            yield RestLab(lab, url)
    finally:
        end()


@pytest.mark.parametrize("suite", EVERY)
def test_slurmrestd_and_commands_agree_on_every_state(
    suite: str, record_property: Callable[[str, object], None]
) -> None:
    with states_lab(programs_of(suite)) as lab:
        record_property("figures", compare_all_states(lab))


def rows(rest: RestLab, way: str, environment: dict[str, str]) -> list[dict[str, object]]:
    """Returns the nodes in `node-convert --list`, without the times, which change."""
    config = rest.lab.directory / f"{'rest' if way else 'commands'}.ini"
    config.write_text(
        f"[settings]\nstate_dir = {rest.lab.directory}/dnm\n[node_convert]\n"
        f"min_idle_seconds = 0\n{way}\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "dnm.converters.cli", "--list", "--output", "json"],
        env={"PYTHONPATH": os.getcwd(), "DNM_CONFIG": str(config), **environment},
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    result: list[dict[str, object]] = json.loads(done.stdout)["nodes"]
    for row in result:
        row["is_idle"] = row.pop("idle_seconds") is not None
    return result


def test_host_without_slurm_commands_gives_the_same_list(rest_lab: RestLab) -> None:
    lab = rest_lab.lab
    job = lab.submit("-w", "a002", "-n1", "--mem=100")
    lab.wait_for(lambda: bool(lab.client.read_jobs_on("a002")), 20)
    lab.run("scontrol", "update", "nodename=a003", "state=drain", "reason=fan 2")
    rest = f"slurmrestd_url = {rest_lab.url}\nslurmrestd_token_file = {rest_lab.token}"
    results = rows(rest_lab, rest, {"PATH": "/nonexistent"})
    assert results == rows(rest_lab, "", lab.environ)
    reasons = {str(row["node"]): str(row["reason"]) for row in results}
    assert reasons["a002"].startswith("not idle (MIXED): job ")
    assert reasons["a003"] == "state flag DRAIN: fan 2"
    rest_lab.compare()
    lab.run("scancel", job)
    lab.run("scontrol", "update", "nodename=a003", "state=resume")


def test_each_slurmrestd_failure_has_its_sentence(rest_lab: RestLab, tmp_path: Path) -> None:
    lab, url = rest_lab.lab, rest_lab.url
    old = lab.version < (23, 2)
    unclear = "has no answer of slurmctld .*(down).*rejects"

    def error_of(file: Path | None) -> str:
        with pytest.raises(SlurmError) as caught:
            SlurmRestClient(url, file).check_controller()
        assert not isinstance(caught.value, SlurmRefused)
        return str(caught.value)

    assert "requires a token" in error_of(None)
    good = rest_lab.token.read_text().strip()
    begin, _, signature = good.rpartition(".")
    forged = tmp_path / "forged"
    forged.touch(0o600)
    forged.write_text(f"{begin}.{signature[::-1]}")
    expected = unclear if old else "slurmctld rejects the token of"
    assert re.search(expected, error_of(forged)), error_of(forged)
    short = write_token(lab, tmp_path / "short", seconds=2)
    time.sleep(3)
    assert "expired at" in error_of(short)
    lab.stop_controller()
    try:
        assert re.search(unclear if old else "controller does not answer", error_of(rest_lab.token))
    finally:
        lab.start_controller()
        lab.wait_for(lambda: all(node.state.base == "IDLE" for node in lab.read_nodes()), 30)


def test_node_is_changed_or_refused_with_the_alternative(rest_lab: RestLab) -> None:
    lab, client = rest_lab.lab, rest_lab.client
    if lab.version < (23, 2):
        with pytest.raises(SlurmError, match=r"can't change nodes.*leave slurmrestd_url out"):
            client.drain("a004", "x", {})
        return
    client.drain("a004", 'dnm:test "op=1" [x@y]', {"comment": "dnm:test 1", "extra": "e"})
    node = lab.client.read_node("a004")
    assert "DRAIN" in node.state.flags and node.comment == "dnm:test 1" and node.extra == "e"
    assert client.read_node("a004").reason == 'dnm:test "op=1" [x@y]'
    rest_lab.compare()
    client.mark("a004", {"extra": ""})
    assert not lab.client.read_node("a004").extra
    client.resume("a004", {"comment": ""})
    node = lab.client.read_node("a004")
    assert "DRAIN" not in node.state.flags and not node.comment
    with pytest.raises(SlurmRefused):
        client.drain("a099", "x", {})


def race(rest_lab: RestLab) -> list[str]:
    """Lets four clients reserve a001 at once, three over REST; returns which succeeded."""
    won: list[str] = []

    def claim(way: str) -> None:
        rest = SlurmRestClient(rest_lab.url, rest_lab.token)
        try:
            (rest if way == "rest" else rest_lab.lab.client).create_reservation("k8s-a001", "a001")
        except SlurmRefused:
            return
        won.append(way)

    ways = ("rest", "rest", "rest", "commands")
    threads = [threading.Thread(target=claim, args=(way,)) for way in ways]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return won


def test_single_client_of_many_gets_the_claim(rest_lab: RestLab) -> None:
    lab, client = rest_lab.lab, rest_lab.client
    if lab.version < (25, 5):
        with pytest.raises(SlurmError, match=r"can't (make reserv|change).*slurmrestd_url out"):
            client.check_changes()
            client.create_reservation("k8s-a001", "a001")
        assert not lab.client.read_reservations()
        return
    client.check_changes()
    for _ in range(5):
        won = race(rest_lab)
        there = lab.client.read_reservations()
        assert len(won) <= 1, won
        assert [reservation.name for reservation in there] == ["k8s-a001"] * len(won), (won, there)
        if won:
            with pytest.raises(SlurmRefused):
                client.create_reservation("k8s-a001", "a001")
            client.delete_reservation("k8s-a001")
    client.create_reservation("k8s-a001", "a001")
    (made,) = lab.client.read_reservations()
    assert made.nodes == ("a001",) and made.users == "root" and made.end is not None
    rest_lab.compare()
    client.delete_reservation("k8s-a001")


def test_node_with_a_job_is_not_claimed_through_slurmrestd(rest_lab: RestLab) -> None:
    lab, client = rest_lab.lab, rest_lab.client
    if lab.version < (25, 5):
        return
    job = lab.submit("-w", "a002", "-n1", "--mem=100")
    lab.wait_for(lambda: bool(lab.client.read_jobs_on("a002")), 20)
    with pytest.raises(SlurmRefused, match="busy"):
        client.create_reservation("k8s-a002", "a002")
    client.create_reservation("k8s-a002", "a002", flags=IGNORE_JOBS)
    client.delete_reservation("k8s-a002")
    client.cancel_job(job)
    lab.wait_for(lambda: not lab.client.read_jobs_on("a002"), 30)
    assert not lab.client.read_reservations()


def rest_site(rest: RestLab, sandbox: Sandbox, directory: Path) -> SlurmSite:
    return SlurmSite(
        rest.lab, sandbox, directory / "site", slurmrestd_url=rest.url,
        slurmrestd_token_file=rest.token,
    )  # fmt: skip


def test_node_is_lent_and_returned_through_slurmrestd(rest_lab: RestLab, tmp_path: Path) -> None:
    """If this version of slurmrestd cannot do that, the converter refuses before any change."""
    lab = rest_lab.lab
    sandbox = Sandbox(tmp_path / "sandbox", manual=False).start()
    try:
        site = rest_site(rest_lab, sandbox, tmp_path)
        # A caller of Slurm's commands would fail.
        for name in ("scontrol", "squeue", "scancel"):
            (tmp_path / name).write_text("#!/bin/sh\nexit 99\n")
            (tmp_path / name).chmod(0o755)
        path = f"{tmp_path}:{lab.environ['PATH']}"
        lend = ("--set", "k8s", "--node-name", "a003", "--namespace", "dev")
        done = site.run(*lend, PATH=path)
        if lab.version < (25, 5):
            assert done.returncode != 0 and "leave slurmrestd_url out" in done.stderr
            assert not site.hook_calls and not lab.client.read_reservations()
            return
        assert done.returncode == 0, done.stderr
        site.assert_lent("a003")
        rest_lab.compare()
        done = site.run("--set", "batch", "--node-name", "a003", PATH=path)
        assert done.returncode == 0, done.stderr
        site.assert_in_service("a003")
        listed = json.loads(site.run("--list", "--output", "json", PATH=path).stdout)
        assert listed["options"] == ["--exclude", "--leave-drained"]
        assert site.run(*lend, PATH=path).returncode == 0
        back = ("--set", "batch", "--node-name", "a003", "--leave-drained", "Healthy:False")
        done = site.run(*back, PATH=path)
        assert done.returncode == 0, done.stderr
        node = lab.client.read_node("a003")
        assert "DRAIN" in node.state.flags and not lab.client.read_reservations()
        assert (node.reason, node.comment) == ("faulty in Kubernetes: Healthy:False", "")
        lab.run("scontrol", "update", "nodename=a003", "state=resume")
        site.assert_in_service("a003")
    finally:
        sandbox.stop()


def requests_of(site: SlurmSite, arguments: list[str], log: Path) -> list[str]:
    """Plays a conversion. Returns its requests to Slurm, as values of DNM_FAULT for a kill."""
    log.touch()
    done = site.run(*arguments, DNM_FAULT_LOG=str(log))
    assert done.returncode == 0, done.stderr
    seen = Counter[str]()
    lines = []
    for point in log.read_text().split():
        seen[point] += 1
        if point.startswith("slurm."):
            lines.append(f"{point}:after:kill:{seen[point]}")
    return lines


def test_conversion_killed_at_each_slurmrestd_request_is_repeatable(
    rest_lab: RestLab, tmp_path: Path
) -> None:
    """Kills a conversion after each of its requests, then repeats it, four at a time: with
    DNM_PROOF_ROUNDS=200 at all requests, by default at every third."""
    lab = rest_lab.lab
    if lab.version < (25, 5):
        return
    sandbox = Sandbox(tmp_path / "sandbox", manual=False).start()
    try:
        site = rest_site(rest_lab, sandbox, tmp_path)

        def order(direction: str, node: str) -> list[str]:
            return ["--set", direction, "--node-name", node, "--namespace", "dev"]

        every = 1 if int(os.environ.get("DNM_PROOF_ROUNDS", "1")) >= 200 else 3
        left = {item: requests_of(site, order(item, "a001"), tmp_path / item)[::every]
                for item in ("k8s", "batch")}  # fmt: skip
        numbers = {direction: len(points) for direction, points in left.items()}
        while any(left.values()):
            for direction, points in left.items():
                struck = dict(zip(NODES, points, strict=False))
                del points[: len(NODES)]
                play(site, {n: order(direction, n) for n in NODES}, struck)
                if direction == "k8s":
                    site.assert_lent(*NODES)
                    rest_lab.compare()
                else:
                    lab.wait_for(lambda: not _locks(lab), LOCKED)
                    site.assert_in_service(*NODES)
        assert not lab.client.read_reservations() and not sandbox.violations
        print(f"killed after {numbers} requests of slurmrestd {rest_lab.client.offer.version}")
        assert min(numbers.values()) >= 5
    finally:
        sandbox.stop()


def _locks(lab: SlurmLab) -> list[str]:
    """Returns the reservations that serve as locks of killed calls. A repeated call may let one
    expire, if the killed one had reserved the node."""
    reservations = [item for item in lab.client.read_reservations() if LOCK.fullmatch(item.name)]
    for reservation in reservations:
        assert (
            reservation.start
            and reservation.end
            and reservation.end - reservation.start <= timedelta(seconds=LOCKED)
        ), reservation
    return [item.name for item in reservations]


def play(site: SlurmSite, orders: dict[str, list[str]], struck: dict[str, str]) -> None:
    """Plays each node's conversion with its kill, if it has one, then repeats it to the end."""
    killed = {node: site.start(*orders[node], DNM_FAULT=fault) for node, fault in struck.items()}
    for node, process in killed.items():
        answer = finished(process)
        # An awaited change may have come sooner, with fewer requests.
        assert answer.returncode in (0, -signal.SIGKILL), (node, struck[node], answer.stderr)
    until = time.monotonic() + LOCKED + 30
    left = orders
    while left:
        repeated = {node: site.start(*arguments) for node, arguments in left.items()}
        ended = {node: finished(process) for node, process in repeated.items()}
        for node, answer in ended.items():
            # The lock of a test-and-set outlives a killed client by a minute at most.
            is_refused = re.search("no node can be lent now|overlaps with", answer.stderr)
            assert answer.returncode == 0 or is_refused, (node, struck.get(node), answer.stderr)
        assert time.monotonic() < until, (ended, struck)
        left = {node: left[node] for node, answer in ended.items() if answer.returncode}
        time.sleep(3 if left else 0)
