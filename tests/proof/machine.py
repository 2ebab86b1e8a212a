"""A state machine of hypothesis, which chooses the steps of histories. The invariants hold after
each step, and every history ends well. `test_machine.py` plays it in CI, `soak.py` for longer."""

from __future__ import annotations

import shutil
import tempfile
from collections import Counter
from pathlib import Path

from hypothesis import HealthCheck, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from tests.proof.edges import CALL_FAULTS, LENDING, RETURNING
from tests.proof.persons import REQUESTS
from tests.proof.play import FOR_SLURM, MEANWHILE, REGISTRY_HARM, STORE_HARM, Play
from tests.proof.remembering import HOW
from tests.reaper import in_memory

FIGURES: Counter[str] = Counter()

STRIKES = ("kill", "kill", "restart", "restart", "full", "io")
few = st.integers(0, 5)
jumps = st.sampled_from((-86_400.0, -300.0, 0.0, 300.0, 86_400.0))


class Machine(RuleBasedStateMachine):
    """A random history: steps of the cluster, of administrators and of runs of dnm."""

    HOSTS = (1, 2)
    play: Play

    def __init__(self) -> None:
        super().__init__()
        self.directory = Path(tempfile.mkdtemp(prefix="dnm-", dir=in_memory()))
        self.is_sound = True

    @initialize(
        hosts=st.integers(1, 2),
        is_shared=st.booleans(),
        tells=st.booleans(),
        remembers=st.booleans(),
        state=st.sampled_from(("file", "kubernetes")),
        rule=st.sampled_from(sorted(FOR_SLURM)),
    )
    def begin(
        self, hosts: int, is_shared: bool, tells: bool, remembers: bool, state: str, rule: str
    ) -> None:
        count = min(max(hosts, self.HOSTS[0]), self.HOSTS[1])
        FIGURES[state] += 1
        self.play = Play(
            self.directory, count, is_shared=is_shared, reports_claims=tells, remembers=remembers,
            state=state, rule=rule,
        )  # fmt: skip

    def teardown(self) -> None:
        try:
            if hasattr(self, "play") and self.is_sound:
                self.play.end_well()
                FIGURES["histories"] += 1
                FIGURES["steps"] += self.play.steps
                FIGURES["runs"] += self.play.runs
                ways = self.play.world.ways
                FIGURES["runs_that_listed_nothing"] += ways["changes", ""]
        finally:
            shutil.rmtree(self.directory, ignore_errors=True)

    @invariant()
    def holds(self) -> None:
        if hasattr(self, "play"):
            self.is_sound = False
            self.play.check()
            self.is_sound = True

    # --- runs -------------------------------------------------------------------------------

    @rule(host=few)
    def run(self, host: int) -> None:
        self._run(host)

    @rule()
    def run_every_host(self) -> None:
        for host in range(len(self.play.hosts)):
            self._run(host)
        self.play.wait(60)

    @rule(
        host=few,
        faults=st.dictionaries(
            st.integers(0, 13), st.sampled_from(CALL_FAULTS + MEANWHILE), min_size=1, max_size=3
        ),
    )
    def run_with_api_faults(self, host: int, faults: dict[int, str]) -> None:
        self._run(host, faults)

    @rule(host=few, at=st.integers(0, 75), what=st.sampled_from(STRIKES))
    def run_with_injected_fault(self, host: int, at: int, what: str) -> None:
        self._run(host, {}, {at: what})

    @rule(host=few, at=st.integers(1, 12))
    def run_and_stop(self, host: int, at: int) -> None:
        self._run(host, {}, {}, at)

    def _run(
        self,
        host: int,
        faults: dict[int, str] | None = None,
        strikes: dict[int, str] | None = None,
        is_stopped_at: int | None = None,
    ) -> None:
        self.is_sound = False
        self.play.run(host, faults or {}, strikes or {}, is_stopped_at)
        self.is_sound = True

    # --- the world ----------------------------------------------------------------------------

    @rule(seconds=st.sampled_from((10.0, 60.0, 120.0, 300.0, 900.0)))
    def wait(self, seconds: float) -> None:
        self.play.wait(seconds)

    @rule(count=st.integers(1, 8), namespace=few, vcore=st.sampled_from((1, 2, 4, 6, 20)))
    def add_some_pods(self, count: int, namespace: int, vcore: int) -> None:
        self.play.add_pods(count, namespace, vcore)

    @rule(count=st.sampled_from((1, 5, 60)))
    def pods_finish(self, count: int) -> None:
        self.play.finish_pods(count)

    @rule(behaviour=st.sampled_from(LENDING))
    def a_conversion_will(self, behaviour: str) -> None:
        self.play.converter_will(behaviour, "k8s")

    @rule(behaviour=st.sampled_from(RETURNING))
    def a_return_will(self, behaviour: str) -> None:
        self.play.converter_will(behaviour, "batch")

    @rule(
        what=st.sampled_from(
            ("cordon", "uncordon", "drain", "delete_node", "fail_node", "return_manually",
             "resume_manually", "drain_in_slurm")
        ),
        node=few,
    )  # fmt: skip
    def an_administrator_does(self, what: str, node: int) -> None:
        getattr(self.play, what)(node)

    @rule()
    def repair_nodes(self) -> None:
        self.play.repair_nodes()

    @rule()
    def a_job_is_submitted(self) -> None:
        self.play.submit_job()
        self.play.wait(1)

    @rule(count=st.sampled_from((0, 0, 1, 9)))
    def report_waiting_jobs(self, count: int) -> None:
        self.play.world.injected_jobs = count

    @rule()
    def jobs_finish(self) -> None:
        self.play.finish_jobs()

    @rule(
        what=st.sampled_from(
            ("reapply", "reapply", "replace_document", "delete_document", "break_document", "edit")
        ),
        number=few,
        cores=st.sampled_from((1, 3, -1)),
    )
    def the_document_changes(self, what: str, number: int, cores: int) -> None:
        play = self.play
        if what == "edit":
            play.edit(number, cores)
        elif what == "break_document":
            play.break_document(number)
        else:
            getattr(play, what)()

    @rule(how=st.sampled_from(HOW))
    def disturb_api_server(self, how: str) -> None:
        self.play.reported.disturb(how)

    # --- hosts --------------------------------------------------------------------------------

    @rule(host=few, seconds=jumps)
    def a_clock_jumps(self, host: int, seconds: float) -> None:
        self.play.jump_clock(host, seconds)

    @rule(host=few, how=st.sampled_from(REGISTRY_HARM))
    def a_registry_is_harmed(self, host: int, how: str) -> None:
        self.play.harm_registry(host, how)

    @rule(host=few, how=st.sampled_from(STORE_HARM))
    def a_store_is_harmed(self, host: int, how: str) -> None:
        self.play.harm_store(host, how)

    @rule(host=few)
    def a_host_is_restarted(self, host: int) -> None:
        self.play.restart_host(host)

    @rule(host=few)
    def a_person_pauses(self, host: int) -> None:
        self.play.pause(host)

    @rule(host=few, what=st.sampled_from(REQUESTS), node=st.integers(0, 11))
    def run_manual_command(self, host: int, what: str, node: int) -> None:
        self.play.request(host, what, node)

    @precondition(lambda self: self.play.world.is_tainted)
    @rule(namespace=few, count=st.integers(1, 6))
    def move_work_to_another_queue(self, namespace: int, count: int) -> None:
        """Lends nodes to one queue, ends its pods, then adds pods to the other queue."""
        self.play.add_pods(count, namespace, 6)
        self.run_every_host()
        self.run_every_host()
        self.play.finish_pods(60)
        self.run_every_host()
        self.run_every_host()
        self.play.add_pods(count, namespace + 1, 6)
        self.run_every_host()

    @precondition(lambda self: any(host.is_paused for host in self.play.hosts))
    @rule(host=few)
    def a_person_resumes(self, host: int) -> None:
        self.play.resume(host)


class OneHost(Machine):
    HOSTS = (1, 1)


class TwoHosts(Machine):
    HOSTS = (2, 2)


def play_machine(machine: type[Machine], number: int, histories: int, steps: int = 50) -> None:
    """Plays so many random histories from a seed; hypothesis shortens a failing one."""
    seed(number)(machine)
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=histories,
            stateful_step_count=steps,
            deadline=None,
            database=None,
            suppress_health_check=list(HealthCheck),
            print_blob=False,
        ),
    )
