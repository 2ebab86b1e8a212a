"""Tests of each administrator's command, killed at each fault point, or failing by a full disk.

Afterwards the registry contains the complete request or nothing of it, and the history has it once
or not at all. Nothing else is lost, and the next runs continue from there. A kill is an exception
that no code may catch. If two faults leave the same state, the runs after it are played once."""

from __future__ import annotations

import copy
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
import pytest

from dnm.cli.act import admin
from dnm.cli.manual import holds
from dnm.cli.manual.adopt import adopt
from dnm.cli.manual.lending import extend, lend
from dnm.cli.manual.returning import return_
from dnm.host.faults import inject_faults
from dnm.lab.sandbox.cluster import Sandbox
from dnm.model.config import Config
from dnm.model.departure import Leaving
from dnm.model.errors import DnmError
from dnm.model.lent import Phase
from dnm.model.orders import Keeping, LendOrder, Pause
from dnm.model.registry import Registry
from dnm.record.history_file import History, read_history
from dnm.run.registry import save_registry
from tests.builders import a_lent_node
from tests.cli.test_return import catch_up
from tests.night import sample_by_day
from tests.proof.edges import Killed
from tests.proof.play import ROUND, Play, make_config
from tests.proof.world import QUEUES
from tests.site import Site, set_up_workshop

_READS = re.compile(r".*\.(read|list|acquire|load)").match
Verb = Callable[[Config, str], object]
LATER = datetime.now(UTC) + timedelta(days=300)
UNTIL = LATER.isoformat()
# Each command acts on a lent node; a request that it ends was made before.
VERBS: Mapping[str, Verb] = {
    "lend": lambda c, n: lend(c, "dev", 1, until=UNTIL),
    "extend": lambda c, n: extend(c, [n], until=UNTIL),
    "return": lambda c, n: return_(c, [n]),
    "hold": lambda c, n: holds.hold(c, [n], until=UNTIL),
    "unhold": lambda c, n: holds.unhold(c, [n]),
    "exclude": lambda c, n: holds.exclude(c, ["a006"], until=UNTIL),
    "unexclude": lambda c, n: holds.unexclude(c, ["a005"]),
    "pause": lambda c, n: admin.pause(c, reason="a fan", returning=True),
    "resume": lambda c, n: admin.resume(c),
}
STRIKES: Mapping[str, type[BaseException]] = {"kill": Killed, "fail": OSError}


class Strike:
    """A fault at fault point `number`, counted from 0. With None, it only counts the points."""

    def __init__(self, number: int | None = None, kind: str = "kill") -> None:
        self.number, self.kind, self.passes = number, kind, 0

    def __call__(self, point: str, when: str) -> None:
        self.passes += 1
        if self.passes - 1 == self.number:
            raise STRIKES[self.kind](5, "struck")


def requests_of(registry: Registry) -> object:
    """Returns the administrators' requests in a registry, without times and generated names."""
    nodes = {
        name: (node.leaves, node.stays_until is not None, node.eviction is not None, node.phase)
        for name, node in registry.nodes.items()
    }
    pause = registry.pause.half if registry.pause else ""
    return nodes, registry.held, [*registry.excluded], [o.count for o in registry.orders], pause


def lines_of(config: Config, verb: str) -> int:
    """Counts the history lines of a command, on disk and in the registry, each only once."""
    history = History(config.converted_nodes_path, config.history_keep)
    written = read_history(history, datetime(2020, 1, 1, tzinfo=UTC), [])
    lines = [*written, *registry_of(config).memory.unwritten]
    return len({line.number for line in lines if line.kind == "verb" and line.event == verb})


def registry_of(config: Config) -> Registry:
    return msgspec.json.decode(config.converted_nodes_path.read_bytes(), type=Registry)


def strike_each(
    verb: str, request: Callable[[], object], config: Config, restore: Callable[[], None]
) -> Iterator[Registry]:
    """Repeats a request with a fault at each point, checks the result, yields new registries."""
    restore()
    before, lines_before = requests_of(registry_of(config)), lines_of(config, verb)
    counted = Strike()
    with inject_faults(counted):
        request()
    after, met = requests_of(registry_of(config)), set()
    assert after != before and lines_of(config, verb) == lines_before + 1
    for number in range(counted.passes):
        for text in STRIKES:
            restore()
            try:
                with inject_faults(Strike(number, text)):
                    request()
            except (Killed, DnmError):
                pass  # killed, or refused with an error
            left = registry_of(config)
            is_reported = requests_of(left) == after
            assert is_reported or requests_of(left) == before, (number, text)
            assert lines_of(config, verb) == lines_before + is_reported, (number, text)
            mark = (is_reported, bool(left.memory.unwritten))
            if mark not in met:
                met.add(mark)
                yield left
    assert {was_made for was_made, _ in met} == {True, False}


@pytest.fixture
def base(tmp_path: Path) -> Play:
    """Returns a world in which one lent node has pods and nothing is in progress."""
    play = Play(tmp_path, 1, is_shared=False)
    (host,) = play.hosts
    play.add_pods(3, 0, 4)
    while not any(node.phase is Phase.SERVING for node in host.registry().nodes.values()):
        play.run()
        play.wait(ROUND)
    play.run_until_steady()
    play.wait(3600)
    assert play.world.pods and not play.world._due and not play.world.processes
    return play


def prepared(verb: str, registry: Registry, node: str) -> Registry:
    """Returns the registry with what the command is to end, such as a hold for `unhold`."""
    now = datetime.now(UTC)
    changes: dict[str, dict[str, object]] = {
        "unhold": {"held": (node,), "holds": {node: Keeping(since=now)}},
        "unexclude": {"excluded": {"a005": Keeping(since=now)}},
        "resume": {"pause": Pause(since=now)},
    }
    return msgspec.structs.replace(registry, **changes.get(verb, {}))


@pytest.mark.parametrize("verb", sample_by_day(2, VERBS))
def test_command_with_a_fault_at_any_step_took_effect_or_did_not(
    base: Play, tmp_path: Path, verb: str
) -> None:
    (host,) = base.hosts
    config, directory, kept = host.config, host.path.parent, tmp_path / "kept"
    node = min(host.registry().nodes)
    save_registry(config, prepared(verb, host.registry(), node))
    shutil.copytree(directory, kept)

    def restore() -> None:
        shutil.rmtree(directory)
        shutil.copytree(kept, directory)

    for left in strike_each(verb, lambda: VERBS[verb](config, node), config, restore):
        play = copy.deepcopy(base)
        for _ in range(3):
            assert play.run().is_clean
            play.check()
            play.wait(ROUND)
        registry = play.hosts[0].registry()
        assert node in registry.nodes, "it has work"
        assert registry.held == left.held and [*registry.excluded] == [*left.excluded]
        assert [order.id for order in registry.orders] == [order.id for order in left.orders]
        assert registry.nodes[node].leaves == left.nodes[node].leaves
        is_fenced = registry.nodes[node].leaves == Leaving.MANUAL
        assert play.world.nodes[node].is_cordoned is is_fenced
        assert (len(registry.nodes) > len(left.nodes)) is bool(registry.orders)
        assert not registry.memory.unwritten, "the runs write the lines that the command could not"


def test_evicting_run_killed_at_each_step_is_completed(base: Play, tmp_path: Path) -> None:
    """Kills a run at each step of an eviction. Pods are evicted only from that node, and only while
    it is fenced (`edges.py` checks that). Each pod is created again, and the node is returned."""
    (host,) = base.hosts
    directory, kept = host.path.parent, tmp_path / "kept"
    node = min(host.registry().nodes)
    base.request(0, "return --evict", sorted(base.world.machines).index(node))
    base.wait(180)
    shutil.copytree(directory, kept)
    on_node = sum(pod.node == node for pod in base.world.pods.values())
    points: list[str] = []
    with inject_faults(lambda point, when: points.append(f"{point} {when}")):
        copy.deepcopy(base).run()
    changing = [n for n, name in enumerate(points) if name.endswith("after") and not _READS(name)]
    assert len(changing) > 15 and "kube.evict after" in points and on_node
    for number in changing:
        shutil.rmtree(directory)
        shutil.copytree(kept, directory)
        play = copy.deepcopy(base)
        assert play.run(strikes={number: "kill"}).killed
        for _ in range(on_node + 4):
            play.wait(ROUND)
            play.run()
            play.check()
        assert len(play.world.pods) == len(base.world.pods), points[number]
        left = host.registry().nodes.get(node)
        assert left is None or left.leaves is None, points[number]


def test_interrupted_return_of_an_order_is_repeatable(tmp_path: Path) -> None:
    """The return of an order changes each of its nodes, then the order; a kill may be between."""
    config = make_config(tmp_path, "prod", ("dev",))
    now = datetime.now(UTC)
    nodes = {
        name: a_lent_node(order="lend-1", stays_until=LATER, queue=QUEUES["dev"])
        for name in ("a001", "a002")
    }
    order = LendOrder(id="lend-1", node_type="a", namespace="dev", count=3, since=now, until=LATER)
    registry = Registry(nodes=nodes, orders=(order,))
    number, was_struck = 0, True
    while was_struck:
        save_registry(config, registry)
        try:
            with inject_faults(Strike(number)):
                return_(config, ["lend-1"])
            was_struck = False
        except Killed:
            config.lock_path.unlink(missing_ok=True)  # a process that ended holds no lock
            if registry_of(config).orders:
                return_(config, ["lend-1"])
        left = registry_of(config)
        assert {node.leaves for node in left.nodes.values()} == {Leaving.MANUAL}, number
        assert not left.orders
        number += 1
    assert number > 60


@pytest.fixture
def site(sandbox: Sandbox, tmp_path: Path) -> Site:
    """Returns a site on which an administrator converted a001, and dnm has not adopted it."""
    set_up_workshop(sandbox, 2)
    sandbox.add_namespace("dev")
    site = Site(sandbox, tmp_path / "site")
    site.run()
    sandbox.batch.claim(sandbox.batch.machines["a001"], "root-shell", "root converts it")
    sandbox.batch.machines["a001"].place = "kubernetes"
    sandbox.add_node("a001", labels={"dev": "true"})
    site.run()
    return site


def test_adopt_and_evict_are_repeatable_after_a_fault_at_any_step(
    site: Site, sandbox: Sandbox
) -> None:
    """Plays `adopt`, then `return --evict` of the adopted node."""
    config, directory = site.config, site.config.state_dir
    kept = directory.parent / "kept"

    def restore() -> None:
        shutil.rmtree(directory)
        shutil.copytree(kept, directory)

    def play(verb: str, request: Callable[[], object]) -> None:
        shutil.copytree(directory, kept, dirs_exist_ok=True)
        for left in strike_each(verb, request, config, restore):
            assert site.run().exit_code == 0
            assert site.registry.nodes.keys() == left.nodes.keys() and not sandbox.violations
        site.run()  # the last state contains the request

    play("adopt", lambda: adopt(config, "a001", "dev"))
    sandbox.add_pods(1, "dev", name="work")
    sandbox.bind("work-0", "a001", "dev")
    sandbox.tick(5)
    play("return", lambda: return_(config, ["a001"], evicts=True, yes=True))
    catch_up(sandbox)
    for _ in range(5):
        site.run()
        sandbox.tick(60)
    assert site.lent() == [] and not sandbox.violations
