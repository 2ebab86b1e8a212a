"""Tests of Workloads that Kueue admits as a whole, and of several dnm hosts that serve them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from dnm.model.errors import ExitCode
from dnm.model.reason import Reason
from tests.real.kueue_site import (
    QUEUE,
    add_gang,
    add_job,
    converter_site,
    end_job,
    evicted,
    lent_quota,
    make_course,
    quota_of,
    return_all,
    workloads,
)
from tests.real.programs import HUNG
from tests.real.rig import Rig
from tests.real.shared import make_hosts
from tests.real.site import PODS, Site
from tests.real.unmanaged import places

HOSTS = ("east", "west")
CLOCKS = {"west": 600}  # seconds
MOST_ROUNDS = 60


def lending_calls(site: Site) -> list[str]:
    return [call for call in site.calls if "--set k8s" in call]


def test_gang_gets_all_of_its_nodes_or_none(
    kueue_rig: Rig, kueue_kubeconfig: Path, tmp_path: Path
) -> None:
    """Forty pods need three nodes, and Kueue admits them together."""
    rig = kueue_rig
    make_course(rig)
    site = converter_site(rig, tmp_path / "site", kueue_kubeconfig)
    excluded = [f"a{number:03}" for number in range(3, 9)]
    site.dnm("exclude", *excluded, "--for", "1h")
    add_gang(rig, "gang", 39, 40)
    for _ in range(2):
        site.dnm("run")
    assert not workloads(rig) and not lending_calls(site)

    add_gang(rig, "gang", 1, 40)
    rig.wait_for(lambda: workloads(rig), "the gang has a Workload")
    for _ in range(4):
        site.dnm("run")
    assert not lending_calls(site) and lent_quota_or_none(rig) == quota_of(0)
    reason = site.queue(QUEUE)["reason"]
    assert Reason.INCOMPLETE.text in reason and "needs 3 of type a; 2 can be lent" in reason

    assert "workload dev/gang waits" in site.dnm("explain", "dev/gang-07").stdout

    site.dnm("unexclude", *excluded)
    site.run_until(lambda: rig.running("dev") == 40, "every pod of the gang runs", 120)
    assert len(site.lent) == 3 and places(rig, "dev") == {*site.lent}
    rig.api.ask("DELETE", PODS)
    return_all(rig, site)


def lent_quota_or_none(rig: Rig) -> dict[str, int]:
    """Returns the quota of lent nodes, which is zero if the Cohort does not exist."""
    path = "/apis/kueue.x-k8s.io/v1beta2/cohorts/dnm-a8"
    return (lent_quota(rig) if rig.api.answers(path) else {}) or quota_of(0)


def test_partial_admission_takes_the_nodes_that_are_idle(
    kueue_rig: Rig, kueue_kubeconfig: Path, tmp_path: Path
) -> None:
    """Two nodes can be lent, for 32 of 75 pods. Kueue may admit a part of at least 30."""
    rig = kueue_rig
    make_course(rig)
    site = converter_site(rig, tmp_path / "site", kueue_kubeconfig)
    site.dnm("exclude", *(f"a{number:03}" for number in range(3, 9)), "--for", "1h")
    least = {"kueue.x-k8s.io/job-min-parallelism": "30"}
    add_job(rig, "workshop", 75, annotations=least)
    site.run_until(lambda: rig.running("dev") == 32, "the least pods run", 120)
    assert len(site.lent) == 2 and lent_quota(rig) == quota_of(2)
    rig.api.delete("/apis/batch/v1/namespaces/dev/jobs/workshop?propagationPolicy=Background")
    return_all(rig, site)


def test_hosts_with_a_shared_registry_lend_and_return_once(
    kueue_rig: Rig, kueue_kubeconfig: Path, tmp_path: Path
) -> None:
    """Two hosts start their runs at the same time, and one clock is ten minutes ahead."""
    rig = kueue_rig
    make_course(rig)
    hosts = make_hosts(partial(make_host, rig, kueue_kubeconfig, tmp_path), HOSTS, CLOCKS)
    site = hosts[0]  # its converter serves both
    add_job(rig, "workshop", 75)
    rig.wait_for(lambda: workloads(rig), "the Job has a Workload")
    play_rounds(rig, hosts, lambda: rig.running("dev") == 75)
    assert len(site.lent) == 5 and lent_quota(rig) == quota_of(5)
    assert len(lending_calls(site)) == 1
    end_job(rig, "workshop")
    play_rounds(rig, hosts, site.has_returned_nodes)
    assert len([call for call in site.calls if "--set batch" in call]) == 5
    return_all(rig, site)


def make_host(
    rig: Rig, kubeconfig: Path, directory: Path, name: str = "site", **settings: object
) -> Site:
    return converter_site(rig, directory / name, kubeconfig, **settings)


def play_rounds(rig: Rig, hosts: list[Site], is_over: Callable[[], bool]) -> None:
    """Starts runs of all hosts at once, repeatedly until `is_over`. Checks that the quota is always
    that of whole nodes, and that Kueue evicts no Workload."""
    for _ in range(MOST_ROUNDS):
        if is_over():
            return
        runs = [(site, site.start("run")) for site in hosts]
        for site, run in runs:
            message, errors = run.communicate(timeout=HUNG)
            assert run.returncode in (0, ExitCode.LOCKED), (site.directory, message, errors)
            assert "Traceback" not in errors, errors
        quota = lent_quota_or_none(rig)
        assert quota in [quota_of(count) for count in range(6)] and not evicted(rig)
    raise AssertionError(hosts[0].dnm("status", code=None).stdout)


def test_host_with_its_own_file_does_not_act_until_a_takeover(
    kueue_rig: Rig, kueue_kubeconfig: Path, tmp_path: Path
) -> None:
    rig = kueue_rig
    make_course(rig)
    make = partial(make_host, rig, kueue_kubeconfig, tmp_path)
    east, west = make_hosts(make, HOSTS, registry="file")
    rig.shell("kubectl delete lease --namespace dnm --ignore-not-found dnm-prod")
    add_job(rig, "workshop", 30)
    east.run_until(lambda: rig.running("dev") == 30, "the workshop runs", 120)
    add_job(rig, "more", 40)
    rig.wait_for(lambda: len(workloads(rig)) == 2, "the further Job has a Workload")
    for _ in range(2):
        west.dnm("run", code=ExitCode.NEEDS_PERSON)
    assert lent_quota(rig) == quota_of(2) and len(lending_calls(east)) == 1

    west.dnm("takeover", "--yes")
    west.run_until(lambda: rig.running("dev") == 70, "both Jobs run", 120)
    east.dnm("run", code=ExitCode.NEEDS_PERSON)
    assert lent_quota(rig) == quota_of(len(west.lent)) and not evicted(rig)
    for name in ("workshop", "more"):
        end_job(rig, name)
    return_all(rig, west)
    assert set(east.machines.places().values()) == {"batch"}
