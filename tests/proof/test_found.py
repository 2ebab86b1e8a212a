"""Tests of defects that random histories have found, each as the shortest history that failed."""

from __future__ import annotations

from pathlib import Path

import pytest

from dnm.model.lent import Phase
from dnm.model.node import Mark
from tests.builders import count_of
from tests.night import sample_by_day
from tests.proof.play import Play

DEV, LAB, TRAIN = 0, 1, 2


@pytest.fixture
def play(tmp_path: object) -> Play:
    return patient(Play(tmp_path, 1, is_shared=False))  # type: ignore[arg-type]


@pytest.fixture
def two(tmp_path: object) -> Play:
    """Returns two hosts, east and west, that both serve the namespace dev."""
    return patient(Play(tmp_path, 2, is_shared=True))  # type: ignore[arg-type]


def patient(play: Play) -> Play:
    """Makes runs wait for the end of their converters, so that histories need fewer runs."""
    play.world.patience = 3600.0
    return play


def lend(play: Play, host: int = 0, pods: int = 4) -> str:
    """Lends one node of type a to dev; returns its name."""
    play.add_pods(pods, DEV, 4)
    play.run(host)
    play.run(host)
    return next(iter(play.hosts[host].registry().nodes))


def test_new_node_that_two_hosts_expect_belongs_to_the_first_counter(two: Play) -> None:
    two.add_pods(4, DEV, 4)
    two.converter_will("too late, unnamed", "k8s")
    two.converter_will("silent", "k8s")
    two.run(0)
    two.run(1)
    two.run(0, {4: "meanwhile other host"})
    two.check()
    two.run(0)  # uses the ledger, in which the other host counts it
    two.check()
    owners = [set(host.registry().nodes) for host in two.hosts]
    assert not owners[0] & owners[1]
    two.end_well()


@pytest.mark.parametrize("is_recorded", [False, True])
def test_manually_returned_node_belongs_to_the_host_that_lends_it_next(
    two: Play, is_recorded: bool
) -> None:
    two.add_pods(4, DEV, 4)
    two.run(0)
    if is_recorded:
        two.run(0)
    two.return_manually(0)
    two.add_pods(4, DEV, 4)
    two.run(1)
    for _ in range(3):
        for host in (0, 1):
            two.run(host)
        two.check()
        two.wait(60)
    assert "a001" in two.hosts[1].registry().nodes
    assert "a001" not in two.hosts[0].registry().nodes
    two.end_well()


def test_request_takes_no_more_unnamed_nodes_than_it_misses(two: Play) -> None:
    two.add_pods(4, DEV, 4)
    two.converter_will("late", "k8s")
    two.run(0)
    asked = sum(request.count for request in two.hosts[0].registry().requests)
    two.add_pods(16, DEV, 4)
    two.converter_will("silent", "k8s")
    two.run(1)
    two.run(0)
    assert len(two.hosts[0].registry().nodes) <= asked
    two.check()


@pytest.mark.parametrize("behaviour", ["misnamed", "chatty"])
def test_words_in_converter_output_are_not_taken_for_nodes(play: Play, behaviour: str) -> None:
    play.add_pods(4, DEV, 4)
    play.converter_will(behaviour, "k8s")
    play.run()
    play.run()
    assert list(play.hosts[0].registry().nodes) == ["a001"]
    assert play.world.nodes["k001"].mark is None
    play.end_well()


def test_node_renamed_by_the_converter_needs_an_administrator(play: Play) -> None:
    play.add_pods(4, DEV, 4)
    play.converter_will("renamed and said", "k8s")
    play.run()
    play.run()
    play.finish_pods(60)
    for _ in range(20):
        play.run()
        play.wait(60)
    (entry,) = play.hosts[0].registry().nodes.values()
    assert entry.phase is Phase.FAILED and "dnm forget a001-x" in entry.error


def test_node_uncordoned_after_a_failed_return_is_fenced_again(play: Play) -> None:
    """Once, dnm planned to return the open node, which its own check refused in each run."""
    name = lend(play)
    play.converter_will("hangs", "batch")
    play.finish_pods(4)
    while play.hosts[0].registry().nodes[name].phase is not Phase.RETURNING:
        play.run()
        play.wait(60)
    play.world.change_node(name, is_cordoned=False)
    for _ in range(8):
        ran = play.run()
        assert ran.result is not None and not ran.result.plan.is_refused
        play.check()
        play.wait(60)
    play.end_well()


def test_machine_without_a_node_is_returned_despite_unreadable_pods(tmp_path: Path) -> None:
    """Without a Node there can be no pods on it. The check once took the return for a violation."""
    play = Play(tmp_path, 1, is_shared=True, state="kubernetes", rule="budget")
    play.add_pods(8, 1, 2)
    play.run(strikes={69: "io"})
    play.run(faults={3: "meanwhile pods"})
    play.run(strikes={15: "restart"})
    play.run(strikes={65: "kill"})
    assert "a001" not in play.world.nodes
    assert "return a001" in play.run(faults={3: "409"}).effects
    play.check()
    play.end_well()


def test_manually_returned_machine_counts_no_more(tmp_path: Path) -> None:
    """The check once counted the machine's old claim beside the node lent in its place."""
    play = Play(tmp_path, 1, is_shared=False)
    play.add_pods(8, 1, 1)
    play.run()
    play.wait(60)
    play.add_pods(4, DEV, 6)
    play.run()
    play.wait(60)
    play.delete_node(5)
    play.run()
    play.wait(60)
    assert "a002" in play.world.nodes
    play.resume_manually(1)
    play.add_pods(6, DEV, 4)
    play.delete_node(1)
    assert play.run().effects == ["write", "convert 2 a dev"]
    play.check()
    play.end_well()


def test_node_booting_for_another_host_causes_no_error(tmp_path: Path) -> None:
    """The other instance lends the node again, which takes several runs. Meanwhile there is no
    Node, and Slurm shows the other instance's mark."""
    two = Play(tmp_path, 2, is_shared=True)
    two.add_pods(4, DEV, 4)
    for _ in range(8):
        two.run(0)
        two.wait(60)
    assert two.hosts[0].registry().nodes["a001"].phase is Phase.SERVING
    two.return_manually(0)
    two.add_pods(4, DEV, 4)
    for _ in range(12):
        two.run(1)
        ran = two.run(0)
        assert ran.result is not None and not ran.result.plan.errors
        two.check()
        two.wait(60)
    east, west = (host.registry().nodes for host in two.hosts)
    assert "a001" in west and "a001" not in east


def test_forged_mark_gives_a_node_to_no_instance(two: Play) -> None:
    """dnm trusts Slurm's reservation more than a mark on the Node, which a kubelet can write."""
    two.add_pods(4, DEV, 4)
    two.run(1)
    mark = Mark(instance="east", node_type="a", namespace="lab", queue="x")
    assert two.world.nodes["a001"].mark is None
    two.world.change_node("a001", mark=mark)
    for _ in range(4):
        for host in (0, 1):
            two.run(host)
        two.wait(60)
    east, west = (host.registry().nodes for host in two.hosts)
    assert "a001" in west and "a001" not in east


def test_claim_for_a_renamed_node_needs_an_administrator(play: Play) -> None:
    play.add_pods(4, DEV, 4)
    play.converter_will("renamed", "k8s")
    play.run()
    for _ in range(8):
        play.run()
        play.wait(60)
    entry = play.hosts[0].registry().nodes["a001"]
    assert entry.phase is Phase.FAILED and "a001 is not in Kubernetes" in entry.error
    play.end_well()


@pytest.mark.parametrize("strike", sample_by_day(4, range(38, 54)))
def test_hanging_converter_of_a_killed_run_is_ended(play: Play, strike: int) -> None:
    play.add_pods(4, DEV, 4)
    play.converter_will("hangs", "k8s")
    play.run(0, {}, {strike: "kill"})
    play.end_well()


def test_temporarily_wrong_clock_blocks_nothing(play: Play) -> None:
    play.add_pods(4, DEV, 4)
    play.jump_clock(0, 86_400 * 365)
    play.converter_will("stuck", "k8s")
    for _ in range(3):
        play.run()
    play.end_well()


def test_two_types_with_a_used_up_type_do_not_oscillate(play: Play) -> None:
    for number in range(1, 6):
        play.world.batch.drain(f"a{number:03}", "look at it")
    play.add_pods(8, DEV, 4)
    taken = []
    for _ in range(60):
        taken += [effect for effect in play.run().effects if effect.startswith("convert")]
        play.check()
        play.wait(60)
    assert len(taken) <= 4, taken


def test_node_that_left_kubernetes_counts_for_no_queue_if_slurm_is_unreadable(play: Play) -> None:
    name = lend(play)
    play.delete_node(0)
    play.run(0, {3: "unknown"})
    play.world.pods.clear()
    play.run(0, {3: "unknown"})
    assert play.hosts[0].registry().nodes[name].phase is Phase.FAILED
    assert play.world.text == play.world.manifest


def test_manually_lifted_fence_is_not_restored(play: Play) -> None:
    name = lend(play)
    play.world.pods.clear()
    while not play.world.nodes[name].is_cordoned:
        play.run()
        play.wait(60)
    play.uncordon(0)
    ran = play.run()
    assert f"fence {name}" not in ran.effects and not play.world.nodes[name].is_cordoned
    play.end_well()


def test_node_returned_and_lent_by_another_host_is_left_to_that_host(two: Play) -> None:
    name = lend(two)
    two.world.pods.clear()
    while two.world.nodes.get(name):
        two.run(0)
        two.wait(60)
    assert two.hosts[0].registry().nodes[name].phase is Phase.RETURNING
    assert lend(two, host=1) == name
    ran = two.run(0)
    assert not ran.effects and name not in two.hosts[0].registry().nodes
    two.check()


@pytest.mark.parametrize("call", sample_by_day(4, range(14)))
def test_second_host_with_the_same_instance_does_not_act(tmp_path: Path, call: int) -> None:
    """A second host with the same instance id has a whole run between two calls of the first. Then
    both run each minute, with one clock a day ahead: only one of them may act."""
    play = Play(tmp_path, 2, is_shared=True, instances=("prod", "prod"))
    play.add_pods(40, DEV, 4)
    play.jump_clock(1, 86_400)
    play.run(0, {call: "meanwhile other host"})
    for minute in range(8):
        play.wait(60)
        ran = [play.run(number) for number in (0, 1)]
        codes = [item.result.exit_code for item in ran if item.result is not None]
        assert sorted(codes) == [0, 2], ran
        recorded = [host.registry() for host in play.hosts]
        assert len([registry for registry in recorded if registry.nodes or registry.requests]) == 1
        out = [m for m in play.world.machines.values() if m.place != "batch"]
        assert len(out) <= count_of(play.hosts[0].config.max_converted_nodes)
        assert not play.world.broken
        if minute == 4:
            play.replace_document()


def test_outdated_registry_takes_no_node_from_slurm(play: Play) -> None:
    name = lend(play)
    old = play.hosts[0].path.read_bytes()
    play.return_manually(0)
    play.world.pods.clear()
    play.submit_job()
    play.wait(1)
    play.run()
    play.hosts[0].path.write_bytes(old)
    play.hosts[0].has_old_registry = True  # its history is newer
    assert play.world.batch.jobs_on(play.world.machines[name])
    play.run()
    assert name not in play.hosts[0].registry().nodes
    play.check()
