"""The real Slurm that all tests share, and a site on it with the sandbox's Kubernetes API.

`make_site` gives a test its own sandbox, hooks, state directory and configuration. At its end, it
restores the Slurm: no jobs, no reservations, every node IDLE with its slurmd."""

from __future__ import annotations

import atexit
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from typing import Any

import msgspec
import pytest

from dnm.lab.sandbox.cluster import Sandbox
from dnm.model.errors import SlurmError
from tests.processes import Child, node_convert
from tests.real_slurm import SlurmLab, missing_programs
from tests.real_slurm_hooks import write_lab_hooks
from tests.site import ini_text

NODES = (*(f"a{number:03}" for number in range(1, 11)), "b001", "b002")
REPOSITORY = Path(__file__).parent.parent

_RUNS_HERE = [
    pytest.mark.slurm,
    pytest.mark.skipif(os.geteuid() != 0, reason="jobs of several users need root"),
    pytest.mark.skipif(bool(missing_programs()), reason="'make test' as root installs Slurm"),
]
# Each group has a lab of its own. They mostly wait, so two of them run in parallel.
needs_slurm = [*_RUNS_HERE, pytest.mark.xdist_group("slurm")]
needs_other_slurm = [*_RUNS_HERE, pytest.mark.xdist_group("other slurm")]


@lru_cache
def the_lab(programs: Path | None = None) -> SlurmLab:
    """Returns the shared real Slurm, started at the first call and stopped with the process."""
    directory = Path(tempfile.mkdtemp(prefix="dnm-slurm-"))
    lab = SlurmLab(directory, NODES, programs=programs)
    lab.patience = 5
    atexit.register(end_with_us(directory))
    lab.start()
    return lab


def end_with_us(directory: Path) -> Callable[[], None]:
    """Starts a guard process that stops and removes the Slurm in a directory when this process ends
    in any way. Returns a function that does so at once."""
    guard = subprocess.Popen(
        [sys.executable, "-m", "tests.slurm_lab", str(directory)],
        cwd=REPOSITORY,
        stdin=subprocess.PIPE,
        start_new_session=True,
    )

    def end() -> None:
        guard.communicate()

    return end


def guard_lab(directory: Path) -> None:
    """Waits until standard input is closed, as its writer has ended; then removes the Slurm."""
    sys.stdin.read()
    SlurmLab(directory, ()).stop()
    shutil.rmtree(directory, ignore_errors=True)


def restore_lab(lab: SlurmLab) -> None:
    """Ends everything that a test has left in Slurm."""
    for reported in (*lab.directory.glob("hold-*"), *lab.directory.glob("end-*")):
        reported.unlink()
    if jobs := sorted({job.id for job in lab.client.read_jobs()}):
        lab.run("scancel", *jobs)
    for reservation in lab.client.read_reservations():
        with suppress(SlurmError):  # it may just have expired
            lab.run("scontrol", "delete", f"ReservationName={reservation.name}")
    for node in lab.read_nodes():
        if not lab.has_slurmd(node.name):
            lab.start_slurmd(node.name)
        if node.state.base == "DOWN" or node.state.flags & {"DRAIN", "FAIL"}:
            marks = ["comment="] if node.comment else []
            with suppress(SlurmError):  # its slurmd may just have resumed it
                lab.run("scontrol", "update", f"nodename={node.name}", "state=resume", *marks)
    lab.wait_for(lambda: are_idle(lab, NODES))


def are_idle(lab: SlurmLab, nodes: Sequence[str]) -> bool:
    results = {node.name: node for node in lab.read_nodes()}
    return all(
        name in results
        and results[name].state.base == "IDLE"
        and results[name].state.flags <= {"RESERVED", "MAINTENANCE", "PLANNED"}
        for name in nodes
    )


class SlurmSite:
    """The files of a site on the shared Slurm, and node-convert with its configuration."""

    def __init__(
        self, lab: SlurmLab, sandbox: Sandbox, directory: Path, **settings: object
    ) -> None:
        self.lab = lab
        self.sandbox = sandbox
        self.directory = directory
        self.hooks = directory / "hooks"
        directory.mkdir(parents=True, exist_ok=True, mode=0o755)
        write_lab_hooks(
            self.hooks,
            lab.directory,
            sandbox.url,
            {"cpu": "8", "memory": "16Gi", "pods": "110"},
        )
        values = {"hooks_dir": self.hooks, "min_idle_seconds": 0, **settings}
        instance = values.pop("instance", "test")
        pace = {
            "verify_seconds": values.pop("verify_seconds", 0.5),
            "boot_timeout_seconds": values.pop("boot_timeout_seconds", 120),
            "stage_timeout_seconds": 120,
            "poll_seconds": 0.4,
        }
        lines = [f"{key} = {value}" for key, value in values.items()]
        self.config = directory / "dnm.ini"
        self.config.write_text(
            f"{ini_text({**pace, 'kubeconfig_path': sandbox.kubeconfig})}"
            f"state_dir = {directory / 'state'}\ninstance_id = {instance}\n\n"
            "[node_type:a]\ntaints = {namespace}=true:NoSchedule\n[node_type:b]\n[node_convert]\n"
            + "\n".join(lines)
            + "\n"
        )

    def _environ(self, more: dict[str, str]) -> dict[str, str]:
        own = {"PYTHONPATH": str(REPOSITORY), "DNM_CONFIG": str(self.config)}
        return {**self.lab.environ, **own, **more}

    def start(self, *arguments: str, **environment: str) -> subprocess.Popen[str]:
        """Starts node-convert as a process, which runs while the test does something else."""
        return subprocess.Popen(
            [sys.executable, "-m", "dnm.converters.cli", *arguments],
            env=self._environ(environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def begin(self, *arguments: str, **environment: str) -> Child:
        """Starts node-convert in a forked process with all imports done (warm.py)."""
        return node_convert(arguments, self._environ(environment))

    def run(self, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        child = self.begin(*arguments, **environment)
        return subprocess.CompletedProcess(arguments, *child.wait())

    def verdicts(self, *options: str, **environment: str) -> dict[str, tuple[str, str]]:
        """Returns node -> (verdict, reason) by `node-convert --list`."""
        answer = self.run("--list", "--output", "json", *options, **environment)
        assert answer.returncode == 0, answer.stderr
        nodes: list[dict[str, Any]] = msgspec.json.decode(answer.stdout)["nodes"]
        return {node["node"]: (node["verdict"], node["reason"]) for node in nodes}

    @property
    def hook_calls(self) -> list[str]:
        log = self.hooks / "hooks.log"
        return log.read_text().splitlines() if log.exists() else []

    @property
    def kube_nodes(self) -> set[str]:
        return {node["metadata"]["name"] for node in self.sandbox.objects("nodes")}

    def assert_lent(self, *nodes: str) -> None:
        """Checks that dnm has the nodes in Slurm, without jobs, and that their Nodes are Ready."""
        reservations = {reservation.name for reservation in self.lab.client.read_reservations()}
        for name in nodes:
            node = self.lab.client.read_node(name)
            assert "DRAIN" in node.state.flags, node
            assert node.reason.startswith("dnm:test ") and node.comment.startswith("dnm:test ")
            assert f"k8s-{name}" in reservations
            assert not self.lab.client.read_jobs_on(name)
            manifest = self.sandbox.get("nodes", name)
            assert manifest is not None and manifest["metadata"]["labels"]["dev"] == "true"
            if name.startswith("a"):
                taint = {"key": "dev", "value": "true", "effect": "NoSchedule"}
                assert taint in manifest["spec"]["taints"]

    def assert_in_service(self, *nodes: str) -> None:
        """Waits until Slurm has the nodes in service; checks that nothing of dnm is left."""

        def all_answer() -> bool:
            slurm_nodes = [node for node in self.lab.read_nodes() if node.name in nodes]
            return not any("NOT_RESPONDING" in node.state.flags for node in slurm_nodes)

        self.lab.wait_for(all_answer)
        reservations = self.lab.client.read_reservations()
        for name in nodes:
            node = self.lab.client.read_node(name)
            assert node.state.base in ("IDLE", "MIXED", "ALLOCATED"), node
            assert not node.state.flags & {"DRAIN", "NOT_RESPONDING"}, node
            assert not node.comment and not node.extra, node
            assert not any(
                name in reservation.nodes and "k8s" in reservation.name
                for reservation in reservations
            )
            assert self.sandbox.get("nodes", name) is None


def finished(process: subprocess.Popen[str]) -> subprocess.CompletedProcess[str]:
    stdout, stderr = process.communicate(timeout=300)
    return subprocess.CompletedProcess(process.args, process.returncode, stdout, stderr)


@contextmanager
def make_site(
    directory: Path, programs: Path | None = None, **settings: object
) -> Iterator[SlurmSite]:
    """Yields a site. `programs` is the directory of a Slurm other than the installed one."""
    lab = the_lab(programs)
    sandbox = Sandbox(directory / "sandbox", manual=False).start()
    try:
        yield SlurmSite(lab, sandbox, directory / "site", **settings)
    finally:
        sandbox.stop()
        restore_lab(lab)


def is_running(lab: SlurmLab, job: str) -> bool:
    return lab.client.read_job(job).state == "RUNNING"


if __name__ == "__main__":
    guard_lab(Path(sys.argv[1]))
