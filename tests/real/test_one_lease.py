"""Tests of the Lease of an instance on a real API server, with the roles of etc/rbac.yaml: a wiped
state directory, two hosts with a registry file each, and two with a shared file."""

from __future__ import annotations

import json
import random
import shutil
from collections import Counter

import pytest

from dnm.model.errors import ExitCode
from tests.real.cluster import LEASE
from tests.real.conftest import MakeSite
from tests.real.programs import HUNG
from tests.real.rig import Rig
from tests.real.shared import Demand, make_hosts
from tests.real.site import Site, edit_file, request_one_node

ROUNDS = 12
HOSTS = ("east", "west")
NEEDS_PERSON, IN_USE = ExitCode.NEEDS_PERSON, ExitCode.LOCKED


def wipe(site: Site) -> None:
    """Deletes the state directory, as a new installation of the host does."""
    directory = site.directory / "state"
    shutil.rmtree(directory)
    directory.mkdir(mode=0o700)


@pytest.mark.parametrize("registry", ["file", "kubernetes"])
def test_holds_and_exclusions_survive_a_wiped_state_directory(
    rig: Rig, make_site: MakeSite, registry: str
) -> None:
    site = make_site(instance_id="prod", registry=registry)
    rig.shell("kubectl delete lease --namespace dnm --ignore-not-found dnm-prod")
    site.dnm("hold", "a001")
    site.dnm("exclude", "a002", "--for", "2d")
    site.dnm("pause", "--reason", "it burns")
    site.dnm("run")
    wipe(site)
    request_one_node(rig)
    if registry == "file":  # the Secret of the other place is not on this host
        refused = site.dnm("run", code=NEEDS_PERSON)
        assert "dnm resume" in refused.stdout + refused.stderr
        site.dnm("run", code=NEEDS_PERSON)
        assert "dnm resume" in site.dnm("status", "--health", code=None).stdout
        site.dnm("resume")
    assert site.json("status")["restrictions"]["pause"]
    site.dnm("run")
    assert not [call for call in site.calls if "--set" in call]
    site.dnm("resume")
    site.run_until(lambda: site.lent, "a node is lent")
    assert not {"a001", "a002"} & set(site.lent)
    assert [*site.json("status")["restrictions"]["excluded"]] == ["a002"]


def play_rounds(demand: Demand, sites: list[Site], codes: Counter[tuple[str, int]]) -> None:
    """Starts runs of all hosts at once, until all pods have run and all nodes are returned."""
    chance, rounds = random.Random(1), 0
    while rounds < ROUNDS // 2 or demand.is_wanted or not demand.is_back:
        rounds += 1
        assert rounds < ROUNDS + 40, demand.sites[0].dnm("status", code=None).stdout
        demand.move_on(begins_anew=rounds <= ROUNDS // 2)
        for site, run in [
            (site, site.start("run", "-o", "json")) for site in chance.sample(sites, 2)
        ]:
            message, errors = run.communicate(timeout=HUNG)
            assert "Traceback" not in errors, errors
            codes[site.directory.name, run.returncode] += 1
            if run.returncode == NEEDS_PERSON:
                assert all(host in message + errors for host in HOSTS), message + errors
                assert not message or not json.loads(message)["actions"]
        demand.check()


def test_second_host_with_its_own_file_does_not_act_until_a_takeover(
    rig: Rig, make_site: MakeSite
) -> None:
    east, west = sites = make_hosts(
        make_site, HOSTS, registry="file", max_converted_nodes=2, breaker_strikes=1000
    )
    rig.shell("kubectl delete lease --namespace dnm --ignore-not-found dnm-prod")
    east.dnm("hold", "a008")
    demand, codes = Demand(rig, [east], 2), Counter[tuple[str, int]]()
    demand.move_on()
    east.run_until(lambda: east.lent, "the first host lends")
    play_rounds(demand, sites, codes)
    assert not west.json("status")["nodes"] and codes["west", NEEDS_PERSON] > 2
    assert {code for host, code in codes if host == "east"} <= {0, IN_USE}

    demand.move_on()
    east.run_until(lambda: demand.is_served, "the first host lends again")
    west.dnm("takeover", "--yes")
    west.run_until(lambda: len(west.lent) == 2, "the second host has all lent nodes")
    east.dnm("run", code=NEEDS_PERSON)
    demand.acting, codes = west, Counter[tuple[str, int]]()
    play_rounds(demand, sites, codes)
    assert codes["east", NEEDS_PERSON] > 2
    assert {code for host, code in codes if host == "west"} <= {0, IN_USE}
    # A held node makes the run name each node that it lends.
    assert demand.calls("--set k8s") == 2 * demand.stories
    assert demand.calls("--set batch") == 2 * demand.stories


def test_two_hosts_with_a_shared_file_act_alternately(rig: Rig, make_site: MakeSite) -> None:
    east, west = sites = make_hosts(
        make_site, HOSTS, registry="file", max_converted_nodes=2, breaker_strikes=1000
    )
    rig.shell("kubectl delete lease --namespace dnm --ignore-not-found dnm-prod")
    edit_file(west.config, f"{west.directory}/state", f"{east.directory}/state")
    demand, codes = Demand(rig, sites, 2), Counter[tuple[str, int]]()
    play_rounds(demand, sites, codes)
    assert {code for _, code in codes} <= {0, IN_USE} and codes["west", 0] and codes["east", 0]
    assert "holderIdentity" not in rig.api.get(LEASE)["spec"]
