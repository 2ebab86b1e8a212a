"""Tests of moving the registry into Kubernetes and back. Wherever the move is killed, at most one
of the registries is active, and the same command completes it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import pytest
from msgspec.structs import replace

from dnm.cli.set_up.registry import move
from dnm.host import place
from dnm.host.faults import inject_faults
from dnm.lab.sandbox.cluster import Sandbox
from dnm.model.config import Config
from dnm.model.errors import LockedError, RegistryError
from dnm.model.history import Memory
from dnm.model.registry import Registry
from dnm.run.lock import run_lock
from dnm.run.registry import load_registry, opened_state, save_registry
from tests.builders import NOW, a_lent_node, a_request
from tests.run.edges import PROCESS
from tests.site import QUEUE, WORKSHOP_QUEUES, Site, set_up_workshop

LENT = Registry(nodes={"a001": a_lent_node(), "a002": a_lent_node()}, held=("a001",))
AT_WORK = Registry(requests=(a_request(), a_request(id="r2", converter=PROCESS)))


class Killed(BaseException):
    pass


@pytest.fixture
def site(sandbox: Sandbox, tmp_path: Path) -> Site:
    sandbox.add_namespace("dnm")
    return Site(sandbox, tmp_path / "site")


def at(config: Config, kind: Kind) -> Config:
    return replace(config, registry_storage=kind)


def without_memory(registry: Registry) -> Registry:
    """Returns the registry without unwritten history and without ids of writes of the Lease."""
    return replace(registry, memory=Memory(), lease_words=())


def active_places(config: Config) -> list[str]:
    """Returns `file` and `kubernetes` if a run would act by the registry there."""
    lines = []
    for kind in ("file", "kubernetes"):
        try:
            if without_memory(load_registry(at(config, kind), NOW)) != Registry():
                lines.append(kind)
        except RegistryError as error:
            assert "dnm registry move --to" in str(error)
    return lines


def test_move_there_and_back_with_lent_nodes_keeps_the_registry(site: Site) -> None:
    config = site.config
    save_registry(config, LENT)
    message = move(config, "kubernetes")
    assert "Secret dnm/dnm-prod with 2 lent nodes" in message and "on every host" in message
    assert active_places(config) == ["kubernetes"]
    there = load_registry(at(config, "kubernetes"), NOW)
    assert "the registry is in" in move(at(config, "kubernetes"), "file", reason="back")
    assert active_places(config) == ["file"]
    back = load_registry(config, NOW)
    assert without_memory(there) == without_memory(back) == LENT
    rows = [json.loads(line) for line in (site.directory / "state/history.jsonl").open()]
    assert [(item["kind"], item["object"], item.get("reason", "")) for item in rows] == [
        ("verb", "move to kubernetes", ""), ("verb", "move to file", "back"),
    ]  # fmt: skip


def test_previous_place_names_the_new_place_of_the_registry(site: Site) -> None:
    save_registry(site.config, LENT)
    move(site.config, "kubernetes")
    with pytest.raises(RegistryError, match="set registry = kubernetes in"):
        site.run()
    moved = at(site.config, "kubernetes")
    move(moved, "file")
    with pytest.raises(RegistryError, match="set registry = file in"):
        load_registry(moved, NOW)


def test_other_hosts_name_the_host_that_has_the_registry_file(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error names the host and the file, and no advice in it leads to a second registry."""
    save_registry(at(site.config, "kubernetes"), LENT)
    monkeypatch.setattr(place, "_HOST", "east")
    move(site.config, "file")
    monkeypatch.setattr(place, "_HOST", "west")
    west = Site(site.sandbox, site.directory.parent / "west", registry="kubernetes").config
    file = f"east:{site.config.converted_nodes_path}"
    with pytest.raises(RegistryError, match=f"to {file}, and only that host acts"):
        load_registry(west, NOW)
    for kind in ("file", "kubernetes"):
        with pytest.raises(RegistryError, match=f"to {file}; run this command there"):
            move(west, kind)


def test_moved_registry_is_not_moved_again(site: Site) -> None:
    save_registry(site.config, LENT)
    move(site.config, "kubernetes")
    assert "was already in Secret" in move(at(site.config, "kubernetes"), "kubernetes")
    assert without_memory(load_registry(at(site.config, "kubernetes"), NOW)) == LENT


def test_two_registries_need_an_administrator(site: Site) -> None:
    save_registry(at(site.config, "kubernetes"), replace(LENT, held=()))
    save_registry(site.config, LENT)
    for kind in ("file", "kubernetes"):
        with pytest.raises(RegistryError, match="there are two registries"):
            move(site.config, kind)


def test_missing_registry_is_not_moved(site: Site) -> None:
    for kind in ("file", "kubernetes"):
        with pytest.raises(RegistryError, match="the next run creates one"):
            move(site.config, kind)
        written = [site.sandbox.get(kind, "dnm-prod", "dnm") for kind in ("leases", "secrets")]
        assert written == [None, None]  # a Lease of a Secret would refuse the registries of files


def test_running_converters_are_moved_with_their_host_name(site: Site) -> None:
    save_registry(site.config, AT_WORK)
    move(site.config, "kubernetes")
    moved = load_registry(at(site.config, "kubernetes"), NOW)
    hosts = {
        request.id: request.converter.host if request.converter else ""
        for request in moved.requests
    }
    assert all(hosts.values()) and len(hosts) == 2


def test_move_is_refused_during_a_run(site: Site) -> None:
    save_registry(site.config, LENT)
    with run_lock(site.config), pytest.raises(LockedError):
        move(site.config, "kubernetes")
    elsewhere = Site(site.sandbox, site.directory.parent / "elsewhere", registry="kubernetes")
    with opened_state(elsewhere.config) as state:
        state.begin()
        with pytest.raises(LockedError, match="is at work"):
            move(site.config, "kubernetes")
    assert active_places(site.config) == ["file"]


Kind = Literal["file", "kubernetes"]


def points(site: Site, kind: Kind) -> list[tuple[str, str]]:
    passed: list[tuple[str, str]] = []
    with inject_faults(lambda point, when: passed.append((point, when))):
        move(site.config, kind)
    return passed


def sites(sandbox: Sandbox, tmp_path: Path) -> Iterator[Site]:
    number = 0
    while True:
        number += 1
        site = Site(sandbox, tmp_path / f"site{number}", instance_id=f"i{number}")
        save_registry(site.config, LENT)
        yield site


@pytest.mark.parametrize("kind", ["kubernetes", "file"])
@pytest.mark.parametrize("kind_after", ["kubernetes", "file"])
def test_killed_move_leaves_at_most_a_single_place_and_is_repeatable(
    sandbox: Sandbox, tmp_path: Path, kind: Kind, kind_after: Kind
) -> None:
    """Kills the move before and after each step; then repeats it, or moves back."""
    sandbox.add_namespace("dnm")
    fresh = sites(sandbox, tmp_path)

    def a_site() -> Site:
        site = next(fresh)
        if kind == "file":
            move(site.config, "kubernetes")
        return site

    steps = [
        (number, step)
        for number, step in enumerate(points(a_site(), kind))
        if step[0].startswith(("kube.write", "registry.rename"))
    ]
    assert len(steps) > 12
    for number, step in steps:
        site, passed = a_site(), 0

        def strike(point: str, when: str, last: int = number) -> None:
            nonlocal passed
            if passed == last:
                raise Killed
            passed += 1

        with pytest.raises(Killed), inject_faults(strike):
            move(site.config, kind)
        assert len(active_places(site.config)) <= 1, step
        move(site.config, kind_after)
        assert active_places(site.config) == [kind_after], step
        assert without_memory(load_registry(at(site.config, kind_after), NOW)) == LENT


def test_lent_nodes_are_returned_after_the_registry_moved(sandbox: Sandbox, tmp_path: Path) -> None:
    """A host with a registry file lends nodes. After a move, another host returns them."""
    sandbox.add_namespace("dnm")
    set_up_workshop(sandbox, 4)
    sandbox.add_pods(2, "dev", queue=QUEUE, cpu="100", memory="200G", run_seconds=150)
    east = Site(sandbox, tmp_path / "east")
    west = Site(sandbox, tmp_path / "west", registry="kubernetes")
    for _ in range(3):
        east.run()
        sandbox.tick(30)
    assert len(east.lent()) == 2
    move(east.config, "kubernetes")
    for _ in range(8):
        assert west.run().exit_code == 0
        sandbox.tick(60)
    assert west.lent() == [] and sandbox.queues_text() == WORKSHOP_QUEUES
    assert not sandbox.violations


def test_move_begun_on_another_host_is_not_continued(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The move was killed on another host. Its registry is still active and has changed."""
    monkeypatch.setattr(place, "_HOST", "east")
    save_registry(site.config, LENT)

    def strike(point: str, when: str) -> None:
        if point.startswith("registry.rename"):
            raise Killed

    with pytest.raises(Killed), inject_faults(strike):
        move(site.config, "kubernetes")
    save_registry(site.config, replace(LENT, held=("a001", "a002")))
    monkeypatch.setattr(place, "_HOST", "west")
    west = Site(site.sandbox, site.directory.parent / "west", registry="kubernetes").config
    with pytest.raises(RegistryError, match=r"is from east:.* run this command there"):
        move(west, "kubernetes")
    assert active_places(site.config) == ["file"]
