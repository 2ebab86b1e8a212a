"""The steps of a history: a model of the world, and one or two hosts that run dnm on it.

Every step is a method with small numbers as arguments, which hypothesis and the soak test choose.
`Play.check` raises if an invariant is violated. `Play.end_well` stops the faults, lets an
administrator follow dnm's messages, and waits until nothing changes."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path

import msgspec

from dnm.host.faults import inject_faults
from dnm.model.config import Config, NamespacePolicy
from dnm.model.errors import DnmError, RegistryError
from dnm.model.lent import Phase
from dnm.model.lent_state import Returning
from dnm.model.node_type import NodeType
from dnm.model.orders import Pause
from dnm.model.plan import Pass
from dnm.model.registry import Registry
from dnm.model.share import Floor
from dnm.plan.limits import queue_wants, serving_sizes
from dnm.queues.yunikorn.document import read_document
from dnm.queues.yunikorn.quantities import format_yunikorn
from dnm.queues.yunikorn.rebase import LimitMeaning, rebase_document
from dnm.queues.yunikorn.source import DEFAULT_PLACE
from dnm.queues.yunikorn.system import apply_queue_edit
from dnm.queues.yunikorn.text_edit import replace_limits
from dnm.queues.yunikorn.tree import LimitPlace, parse_tree
from dnm.run.registry import state_in
from dnm.run.runner import run_pass
from dnm.run.state import previous_path
from dnm.run.verbs import change_in, change_registry
from tests.proof import invariants
from tests.proof.edges import Killed, ModelConverter, ModelKube, Operation, Weather
from tests.proof.persons import make_request, without_requests
from tests.proof.remembering import RememberingKube, ReportedWorld
from tests.proof.world import (
    BROKEN_DOCUMENTS,
    QUEUES,
    SIZES,
    TAINT,
    World,
    read_limits,
)

ROUND = 60.0  # seconds between two runs, as in cron
MEANWHILE = (
    "meanwhile other host", "meanwhile pods", "meanwhile finished", "meanwhile cordon",
    "meanwhile uncordon", "meanwhile node gone", "meanwhile reapply", "meanwhile edit",
    "meanwhile job",
)  # fmt: skip
BY_ROOT = "root"  # an administrator's drain
STORE_HARM = ("flipped", "truncated", "stale", "gone")
REGISTRY_HARM = ("truncated", "newer", "gone", "gone with its previous", "empty", "stale")

logging.getLogger("dnm").addHandler(logging.NullHandler())


def make_config(
    directory: Path, instance: str, namespaces: tuple[str, ...], remembers: bool = False
) -> Config:
    types = {name: {k: v for k, v in SIZES[name].items() if k != "pods"} for name in SIZES}
    return Config(
        path=directory / "dnm.ini",
        namespaces={
            name: NamespacePolicy(
                name=name,
                queue=QUEUES[name],
                node_types=("b", "a") if name == "lab" else ("a", "b"),
                max_nodes=3 if name == "lab" else None,
                reversion_idle=timedelta(seconds=120),
            )
            for name in namespaces
        },
        node_types={
            "a": NodeType(name="a", size=types["a"]),
            "b": NodeType(name="b", size=types["b"], max_nodes=2),
        },
        max_converted_nodes=4,
        max_conversions_per_run=2,
        max_reversions_per_run=2,
        pending_grace=timedelta(0),
        join_timeout=timedelta(seconds=300),
        convert_timeout=timedelta(seconds=600),
        state_dir=directory,
        converted_nodes_path=directory / "converted_nodes.json",
        instance_id=instance,
        relist_interval=timedelta(minutes=20),
        watch_from_pods=0 if remembers else 1_000_000,
    )


# The options for Slurm's benefit, and the host's configuration with each.
FOR_SLURM: dict[str, dict[str, object]] = {
    "nothing": {},
    "floors": {"batch_floor": Floor(nodes=2)},
    "time": {"options": {"max_lend_hours": timedelta(minutes=20)}},
    "budget": {"node_hours_per_week": 4.0},
    "moves": {"move_in_place": True},
}  # fmt: skip


def for_slurm(config: Config, rule: str) -> Config:
    """Returns the configuration with the options in FOR_SLURM[rule]."""
    changes = dict(FOR_SLURM[rule])
    hours = changes.pop("node_hours_per_week", None)
    namespaces = {
        name: msgspec.structs.replace(
            policy, options={"node_hours_per_week": hours} if hours else {}
        )
        for name, policy in config.namespaces.items()
    }
    if "move_in_place" in changes:
        changes["node_types"] = {
            name: msgspec.structs.replace(node_type, taints=(TAINT,))
            for name, node_type in config.node_types.items()
        }
    return msgspec.structs.replace(config, namespaces=namespaces, **changes)


class Host:
    """A machine that runs dnm: its configuration, its state directory, its clock."""

    def __init__(self, directory: Path, config: Config, world: World) -> None:
        directory.mkdir(mode=0o755)
        self.config, self._world = config, world
        self.skew = timedelta(0)
        self.is_running = False
        self.is_paused = False
        self.has_old_registry = False
        self.looked_at = 0  # `World.number` of its last complete run
        self.old: list[bytes] = []  # earlier contents of its registry
        self.old_stores: list[bytes] = []  # earlier contents of its store of the cluster
        self.outputs: dict[str, Operation] = {}  # the output that converters wrote

    @property
    def instance(self) -> str:
        return self.config.instance_id

    @property
    def path(self) -> Path:
        return self.config.converted_nodes_path

    def now(self) -> datetime:
        """Returns the time by the clock of this host, which may be wrong."""
        return self._world.now + self.skew

    def restart(self) -> None:
        """Restarts the host: its converters end with everything that ran there."""
        for operation in self.outputs.values():
            operation.vanish()

    def record(self) -> bytes:
        """Returns the bytes of the host's registry; empty if there is none."""
        return self.path.read_bytes() if self.path.exists() else b""

    def registry(self) -> Registry:
        """Returns the registry on disk, read without dnm's code; raises RegistryError."""
        try:
            registry = msgspec.json.decode(self.path.read_bytes(), type=Registry)
        except FileNotFoundError:
            if previous_path(self.path).exists():
                raise RegistryError("it is gone") from None
            return Registry()
        except msgspec.MsgspecError as error:
            raise RegistryError("it is broken") from error
        if registry.version != 1:
            raise RegistryError("it is of a newer version")
        return registry


class Ran(msgspec.Struct, kw_only=True):
    """The end of one run. `is_clean` is true if nothing failed in it and nothing interfered."""

    host: str
    result: Pass | None
    error: str = ""
    killed: bool = False
    is_clean: bool = False
    effects: list[str] = []


class Play:
    """A history in progress: a world, its hosts, and their earlier states."""

    def __init__(
        self,
        directory: Path,
        hosts: int,
        *,
        is_shared: bool,
        reports_claims: bool = True,
        remembers: bool = False,
        instances: tuple[str, str] = ("east", "west"),
        state: str = "file",
        rule: str = "nothing",
    ) -> None:
        self.world = World()
        self.world.is_tainted = rule == "moves"
        remembers = remembers and rule != "moves"  # its API server reports no tolerations
        self.world.reports_claims = reports_claims
        theirs = (("dev", "lab"), ("train", "dev") if is_shared else ("train",))
        self.reported = ReportedWorld(self.world)
        self.hosts = [
            Host(place, make_config(place, instances[index], theirs[index], remembers), self.world)
            for index, place in enumerate((directory / "east", directory / "west")[:hosts])
        ]
        for item in self.hosts:
            item.config = msgspec.structs.replace(item.config, registry_storage=state)
        for host in self.hosts:
            host.config = for_slurm(
                host.config, rule if rule != "floors" or hosts == 1 else "nothing"
            )
        self.behaviours: dict[str, list[str]] = {"k8s": [], "batch": []}
        self.steps = self.runs = 0

    # --- runs -------------------------------------------------------------------------------

    def run(
        self,
        number: int = 0,
        faults: Mapping[int, str] = {},
        strikes: Mapping[int, str] = {},
        is_stopped_at: int | None = None,
    ) -> Ran:
        """Plays one `dnm run` of a host, with these faults."""
        host = self.hosts[number % len(self.hosts)]
        meanwhile = self._meanwhile(host)
        weather = Weather(faults, strikes, meanwhile, is_stopped_at)
        ran = self._run(host, weather)
        ran.effects = weather.effects
        if "nodes" not in weather.failed and ran.result is not None:
            host.looked_at = self.world.number()
        is_struck = faults or strikes or ran.killed or ran.error
        ran.is_clean = not is_struck and not weather.failed
        self.runs += 1
        invariants.judge_run(self, host, ran, weather)
        return ran

    def _run(self, host: Host, weather: Weather) -> Ran:
        world = self.world

        kube = ModelKube(world, host, weather)
        if not host.config.watch_from_pods:
            kube = RememberingKube(self.reported, host, weather)
        converter = ModelConverter(world, host, weather, self._behaviour)
        self._keep_old(host)
        host.is_running = True
        try:
            with inject_faults(weather.strike):
                result = run_pass(
                    host.config, {}, weather.should_stop, host.now, lambda *_: (kube, converter)
                )
            return Ran(host=host.instance, result=result)
        except DnmError as error:
            return Ran(host=host.instance, result=None, error=str(error))
        except Killed:
            return Ran(host=host.instance, result=None, killed=True)
        finally:
            host.is_running = False

    def _behaviour(self, direction: str) -> str:
        planned = self.behaviours[direction]
        return planned.pop(0) if planned else "good"

    def _keep_old(self, host: Host) -> None:
        with suppress(OSError):
            host.old = [*host.old[-5:], host.path.read_bytes()]
        with suppress(OSError):
            host.old_stores = [*host.old_stores[-5:], host.config.store_path.read_bytes()]

    def _meanwhile(self, host: Host) -> Callable[[str], None]:
        """Returns a function that plays what happens between two calls of a run."""

        def happen(event: str) -> None:
            if event == "other host":
                for other in self.hosts:
                    if not other.is_running:
                        unharmed = Weather()
                        self._run(other, unharmed)
                return
            if event == "restart":
                host.restart()
                return
            actions: dict[str, Callable[[], None]] = {
                "pods": lambda: self.add_pods(1, 0, 4),
                "finished": lambda: self.finish_pods(3),
                "cordon": lambda: self.cordon(0),
                "uncordon": lambda: self.uncordon(0),
                "node gone": lambda: self.delete_node(0),
                "reapply": self.reapply,
                "edit": lambda: self.edit(0, 1),
                "job": self.submit_job,
            }
            actions[event]()
            self.world.advance(1)

        return happen

    # --- actions of people and machines ------------------------------------------------------

    def wait(self, seconds: float) -> None:
        self.world.advance(seconds)

    def add_pods(self, count: int, namespace: int, vcore: int) -> None:
        if len(self.world.pods) < 60:
            self.world.add_pods(count, sorted(QUEUES)[namespace % len(QUEUES)], vcore)

    def finish_pods(self, count: int) -> None:
        """Ends up to `count` pods: the bound ones first, then waiting ones."""
        pods = sorted(self.world.pods.values(), key=lambda pod: (not pod.node, pod.created))
        for pod in pods[:count]:
            del self.world.pods[pod.name]

    def converter_will(self, behaviour: str, direction: str) -> None:
        self.behaviours[direction].append(behaviour)

    def _lent_node(self, number: int) -> str:
        names = sorted(name for name in self.world.nodes if name != "k001")
        return names[number % len(names)] if names else ""

    def cordon(self, number: int) -> None:
        name = self._lent_node(number)
        node = self.world.nodes.get(name)
        if node is not None and not node.is_cordoned:
            # If an administrator removed dnm's fence and no run has noticed, its annotation is
            # still there and marks the cordon as dnm's.
            is_fence = node.mark is not None and node.mark.fenced
            self.world.fences[name] = node.mark.instance if node.mark and is_fence else "admin"
            self.world.change_node(name, is_cordoned=True)

    def uncordon(self, number: int) -> None:
        """Plays `kubectl uncordon` of a node; dnm's annotation for its fence stays."""
        name = self._lent_node(number)
        if name and self.world.nodes[name].is_cordoned:
            self.world.fences.pop(name, None)
            self.world.opened_manually.add(name)
            self.world.change_node(name, is_cordoned=False)

    def drain(self, number: int) -> None:
        """Plays `kubectl drain`: cordon, evict pods; their controllers create new ones."""
        name = self._lent_node(number)
        self.cordon(number)
        for pod in [pod for pod in self.world.pods.values() if pod.node == name]:
            self.world.pods[pod.name] = msgspec.structs.replace(pod, node="")

    def delete_node(self, number: int) -> None:
        name = self._lent_node(number)
        if not name:
            return
        if self.world.nodes[name].mark is None and (machine := self.world.machine_of(name)):
            self.world.astray_is_excused.add(machine.name)  # gone before dnm could see it
        self.world.remove_node(name, "")

    def fail_node(self, number: int) -> None:
        name = self._lent_node(number)
        if name:
            self.world.change_node(name, is_ready=False)

    def repair_nodes(self) -> None:
        for name in self.world.nodes:
            if not self.world.nodes[name].is_ready:
                self.world.change_node(name, is_ready=True)

    def return_manually(self, number: int) -> None:
        """Returns a lent machine manually, as an administrator."""
        name = self._lent_node(number)
        machine = self.world.machine_of(name) if name else None
        if machine is not None:
            self.world.remove_node(name, "")
            self.world.return_nodes(machine)

    def resume_manually(self, number: int) -> None:
        """Plays an administrator's mistake: `scontrol resume` of a node that is lent."""
        name = self._lent_node(number)
        machine = self.world.machine_of(name) if name else None
        if machine is not None and machine.place == "kubernetes":
            self.world.share(machine)
            self.world.astray_is_excused.add(machine.name)

    def submit_job(self) -> None:
        self.world.submit_job()

    def finish_jobs(self) -> None:
        for job in [job for job in self.world.batch.jobs.values() if job.on]:
            self.world.batch.finish_job(job.id)

    def drain_in_slurm(self, number: int) -> None:
        machines = sorted(self.world.machines.values(), key=lambda machine: machine.name)
        machine = machines[number % len(machines)]
        if BY_ROOT in machine.drains:
            self.world.batch.resume(machine.name)
        else:
            self.world.batch.drain(machine.name, "look at it")

    # --- the queue document ---------------------------------------------------------------------

    def reapply(self) -> None:
        self.world.apply_manifest(self.world.manifest)

    def replace_document(self) -> None:
        """Plays `kubectl replace`, which drops dnm's annotation."""
        self.world.apply_manifest(self.world.manifest, keeps_ledger=False)

    def delete_document(self) -> None:
        self.world.config_map, self.world.admin_wrote = None, True

    def break_document(self, number: int) -> None:
        if self.world.config_map is not None:
            self.world.apply_manifest(BROKEN_DOCUMENTS[number % len(BROKEN_DOCUMENTS)])

    def edit(self, number: int, cores: int) -> None:
        """Plays an administrator who changes one limit in the current document, and accordingly in
        the manifest, in which no lent nodes are counted."""
        world = self.world
        if world.config_map is None or world.admin_wrote or read_limits(world.text) is None:
            return
        place = LimitPlace(("root.site.dev", "root.site.lab")[number % 2], "max", "vcore")
        texts = []
        for text in (world.text, world.manifest):
            document = parse_tree(text)
            amount = document.queues[place.queue].max["vcore"] + cores * 1000
            if not 5_000 <= amount <= document.queues["root.site"].max["vcore"]:
                return
            like = document.places[place].text
            new = format_yunikorn("vcore", amount, like)
            texts.append(replace_limits(document, {place: new}).text)
        world.apply_manifest(texts[0])
        world.manifest = texts[1]

    # --- hosts ------------------------------------------------------------------------------------

    def restart_host(self, number: int) -> None:
        self.hosts[number % len(self.hosts)].restart()

    def jump_clock(self, number: int, seconds: float) -> None:
        self.hosts[number % len(self.hosts)].skew = timedelta(seconds=seconds)

    def harm_registry(self, number: int, how: str) -> None:
        host = self.hosts[number % len(self.hosts)]
        if not host.path.exists():
            return
        content = host.path.read_bytes()
        match how:
            case "truncated":
                host.path.write_bytes(content[: len(content) // 2])
            case "newer":
                host.path.write_bytes(content.replace(b'"version": 1', b'"version": 2'))
            case "empty":
                host.path.write_bytes(b"")
            case "stale" if host.old:
                host.has_old_registry = True
                host.path.write_bytes(host.old[0])
            case "gone":
                # Without a previous registry, dnm takes this for a first run: its numbers restart.
                host.has_old_registry |= not previous_path(host.path).exists()
                host.path.unlink()
            case "gone with its previous":
                host.has_old_registry = True
                self._lose_registry(host)

    def harm_store(self, number: int, how: str) -> None:
        """Damages the file in which a host keeps the objects that it has read, if it has one."""
        host = self.hosts[number % len(self.hosts)]
        path = host.config.store_path
        if not host.old_stores:
            return
        content = host.old_stores[-1]
        place = self.world.number() * 7919 % len(content)
        harmed = {
            "flipped": content[:place] + bytes([content[place] ^ 4]) + content[place + 1 :],
            "truncated": content[:place],
            "stale": host.old_stores[0],
        }
        if how == "gone":
            path.unlink(missing_ok=True)
        else:
            path.write_bytes(harmed[how])
            path.chmod(0o600)

    def _lose_registry(self, host: Host) -> None:
        """Deletes the registry and its previous copy; in Kubernetes also the Lease."""
        host.path.unlink(missing_ok=True)
        previous_path(host.path).unlink(missing_ok=True)
        self.world.states.pop(host.instance, None)

    def _change(self, host: Host, change: Callable[[Registry], Registry]) -> None:
        """Applies a change to the registry, as an administrator's command on that host does."""
        if host.config.registry_storage == "file":
            change_registry(host.config, change)
            return
        state = state_in(host.config, ModelKube(self.world, host, Weather()))
        state.begin()
        change_in(host.config, state, change)
        state.end()

    def pause(self, number: int) -> None:
        host = self.hosts[number % len(self.hosts)]
        pause = Pause(since=self.world.now)
        with suppress(RegistryError):
            host.is_paused = True
            self._change(host, lambda r: msgspec.structs.replace(r, pause=pause))

    def request(self, number: int, kind: str, node: int) -> None:
        """Plays an administrator's request of this kind for some node, lent or not."""
        host = self.hosts[number % len(self.hosts)]
        names = sorted(self.world.machines)
        name = names[node % len(names)]
        with suppress(RegistryError):
            self._change(host, lambda r: make_request(kind, host.config, r, name, host.now()))

    def resume(self, number: int) -> None:
        host = self.hosts[number % len(self.hosts)]
        with suppress(RegistryError):
            host.is_paused = False
            self._change(host, lambda r: msgspec.structs.replace(r, pause=None))

    # --- judgement -----------------------------------------------------------------------------

    def check(self) -> None:
        """Checks all invariants now."""
        self.steps += 1
        invariants.check(self)

    def have_all_looked(self, node: str) -> bool:
        """Returns whether each host had a complete run since the last change of the Node."""
        result = self.world.nodes.get(node)
        changed = int(result.resource_version) if result else self.world.removed_at.get(node, 0)
        return all(host.looked_at > changed for host in self.hosts)

    def end_well(self) -> None:
        """Stops the faults and lets an administrator follow dnm's messages. Checks that runs stop
        acting while pods stay the same, and return all nodes once there are no pods."""
        self.stop_faults()
        self.run_until_steady()
        for _ in range(3):
            records = [host.record() for host in self.hosts]
            for ran in self.run_all():
                invariants.rests(ran)
            invariants.writes_nothing(self, records)
            self.world.advance(ROUND)
        self.world.pods.clear()
        self.run_until_steady()
        invariants.all_is_back(self)

    def stop_faults(self) -> None:
        """Stops the faults, except jobs that wait in Slurm for ever: they are no fault."""
        world = self.world
        self.behaviours = {"k8s": [], "batch": []}
        self.reported.disturb("well")
        world.batch.jobs.clear()
        self.repair_nodes()
        for machine in world.machines.values():
            world.batch.resume(machine.name)
            if machine.is_shared_manually and machine.name not in world.nodes:
                world.return_nodes(machine)  # its Node was deleted meanwhile: only Slurm has it
            machine.is_shared_manually = False
        for name, owner in list(world.fences.items()):
            if owner == "admin":
                world.fences.pop(name)
                world.change_node(name, is_cordoned=False)
        if read_limits(world.text) is None:
            self.reapply()
        for host in self.hosts:
            host.skew = timedelta(0)
            # It moves nodes without any change in demand.
            host.config = msgspec.structs.replace(host.config, options={})
            self._restore_registry(host)
            self._change(host, _resumed_and_reset)
        world.advance(700)  # everything under way has ended

    def _restore_registry(self, host: Host) -> None:
        """Repairs the registry as the message of the RegistryError advises an administrator."""
        try:
            host.registry()
            if not host.path.exists():
                self._lose_registry(host)  # a Lease may still name a registry
            return
        except RegistryError:
            host.has_old_registry = True  # the previous one is a step behind
        with suppress(OSError):
            shutil.copy(previous_path(host.path), host.path)
        try:
            host.registry()
        except RegistryError:
            self._lose_registry(host)

    def run_all(self) -> list[Ran]:
        return [self.run(number) for number in range(len(self.hosts))]

    def run_until_steady(self, most: int = 80) -> None:
        """Plays runs and follows dnm's error messages, until nothing changes any more."""
        quiet = 0
        for _ in range(most):
            rans = self.run_all()
            self.check()
            for host, ran in zip(self.hosts, rans, strict=True):
                self._help(host, ran)
            is_quiet = not any(ran.effects or _is_open(ran) for ran in rans)
            quiet = quiet + 1 if is_quiet else 0
            if quiet >= 6:
                return
            self.world.advance(ROUND)
        open_now = [_is_open(ran) for ran in rans]
        raise AssertionError(f"not steady after {most} rounds: {open_now} {rans}")

    def _help(self, host: Host, ran: Ran) -> None:
        """Does what the run's errors advise an administrator to do."""
        if ran.result is None:
            raise AssertionError(f"without faults, {host.instance} reports: {ran.error}")
        if any("dnm queues rebase" in error for error in ran.result.plan.errors):
            self._rebase(host)
        if any("`dnm resume`" in error for error in ran.result.plan.errors):
            self._change(host, lambda registry: msgspec.structs.replace(registry, pause=None))
        self._change(host, self._deal_with_failed)
        self._change(host, lambda registry: self._deal_with_claimed(host, registry))

    def _deal_with_claimed(self, host: Host, registry: Registry) -> Registry:
        """Plays an administrator who resolves each claimed node: returns this instance's manually,
        and forgets another instance's (`dnm forget`). The administrator also ends a hanging
        converter of which only a lost registry knew."""
        claimed = dict(registry.claimed)
        for name, claim in registry.claimed.items():
            machine = self.world.machine_of(name)
            is_unknown = "no run of dnm has started" in claim.why and host.has_old_registry
            if is_unknown and machine is not None and machine.claim is not None:
                machine.claim.operation.kill()
            if "returns it" not in claim.why or machine is None or machine.claim is None:
                continue
            if machine.claim.instance != host.instance:
                del claimed[name]
            elif machine.claim.operation.has_ended:
                self.world.remove_node(machine.node_name or name, "")
                self.world.return_nodes(machine)
        return msgspec.structs.replace(registry, claimed=claimed)

    def _deal_with_failed(self, registry: Registry) -> Registry:
        """Plays an administrator who resolves each failed node: by `dnm reset`, or if it has
        another name in Kubernetes, by a manual return and `dnm forget`."""
        nodes = dict(registry.nodes)
        for name, entry in registry.nodes.items():
            machine = self.world.machine_of(name)
            if entry.phase is not Phase.FAILED:
                continue
            nodes[name] = msgspec.structs.replace(entry, state=Returning(since=self.world.now))
            if machine is None or machine.node_name not in ("", name) or machine.name != name:
                del nodes[name]
                if machine is not None:
                    self.world.remove_node(machine.node_name, "")
                    self.world.return_nodes(machine)
        return msgspec.structs.replace(registry, nodes=nodes)

    def _rebase(self, host: Host) -> None:
        """Plays `kubectl apply` of the manifest and `dnm queues rebase --as baseline`."""
        self.reapply()
        kube = ModelKube(self.world, host, Weather())
        registry = host.registry()
        nodes = serving_sizes(host.config, registry)
        wants = queue_wants(host.config, registry, nodes)
        apply_queue_edit(
            kube,
            DEFAULT_PLACE,
            lambda source: rebase_document(read_document(source), wants, LimitMeaning.BASELINE),
        )


def _resumed_and_reset(registry: Registry) -> Registry:
    """Returns the registry after `dnm resume` and a `dnm reset` of all queues and node types."""
    return without_requests(msgspec.structs.replace(registry, pause=None, breakers={}, backoffs={}))


def _is_open(ran: Ran) -> list[str]:
    """Returns which nodes, claims and requests a run has left unfinished."""
    if ran.result is None:
        return ["stopped"]
    registry = ran.result.outcome.registry if ran.result.outcome else ran.result.plan.registry
    nodes = registry.nodes.items()
    unfinished = [f"{n}={e.phase.value}" for n, e in nodes if e.phase is not Phase.SERVING]
    unfinished += [f"{name}=claimed" for name in registry.claimed]
    return unfinished + [f"request {request.count}" for request in registry.requests]
