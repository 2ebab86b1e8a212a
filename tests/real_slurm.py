"""A real Slurm with many nodes on one machine, for the tests.

It has one slurmctld, a slurmd for each node, and one munged with its own key, all on loopback,
identified by their pid files. It neither reads nor writes /etc/slurm or /etc/munge. It works with
Debian's packages of Slurm 20.11 to 26.05, without systemd and cgroups. Jobs of other users need
root. Other settings are not written, because newer versions refuse to start with some defaults."""

from __future__ import annotations

import os
import random
import re
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path

from dnm.converters.slurm.commands import SlurmClient
from dnm.converters.slurm.text import SlurmNode
from dnm.host.fault_points import fault_point
from dnm.model.errors import SlurmError

PROGRAMS = ("slurmctld", "slurmd", "munged", "scontrol", "squeue", "sbatch", "scancel")
PACKAGES = "slurmctld slurmd slurm-client munge"
_SBIN = "/usr/sbin:/sbin:/usr/local/sbin"
_CONFIGURATION = """\
ClusterName=lab
SlurmctldHost=localhost(127.0.0.1)
SlurmctldPort={port}
SlurmdPort={slurmd_port}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={lab}/run/munge.sock
CredType=cred/munge
CommunicationParameters=NoCtldInAddrAny,NoInAddrAny
StateSaveLocation={lab}/state
SlurmdSpoolDir={lab}/spool/%n
SlurmctldPidFile={lab}/run/slurmctld.pid
SlurmdPidFile={lab}/run/slurmd-%n.pid
SlurmctldLogFile={lab}/log/slurmctld.log
SlurmdLogFile={lab}/log/slurmd-%n.log
SlurmctldDebug=verbose
MailProg=/bin/true
ProctrackType=proctrack/linuxproc
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
SchedulerType=sched/backfill
SchedulerParameters=bf_interval=1,sched_interval=2,batch_sched_delay=0,sched_min_interval=0
SlurmdParameters=config_overrides
Epilog={lab}/epilog
ReturnToService=1
SlurmdTimeout=10
InactiveLimit=0
KillWait=2
MinJobAge=300
MessageTimeout=3
TreeWidth=50
{more}
{nodes}
PartitionName=main Nodes={names} Default=YES MaxTime=INFINITE State=UP
"""
_EPILOG = """\
#!/bin/sh
# A job's node stays COMPLETING while this file is there.
while [ -e '{lab}/hold-'"$SLURMD_NODENAME" ]; do sleep 0.1; done
"""


def missing_programs(path: str = os.environ.get("PATH", "")) -> tuple[str, ...]:
    """Returns the programs that a real Slurm needs and this machine lacks."""
    return tuple(name for name in PROGRAMS if not _program(name, path))


def _program(name: str, path: str) -> str | None:
    return shutil.which(name, path=f"{path}:{_SBIN}")


class SlurmLab:
    """A real Slurm for tests: call `start`, use `environ` for each command, and always call `stop`.

    `directory` must be open to the users of the jobs. `nodes` are names; each has 8 CPUs and 16,000
    MB, more than the hardware may have. `programs` is a directory with a Slurm other than the
    installed one."""

    def __init__(
        self, directory: Path, nodes: Sequence[str], more: str = "", programs: Path | None = None
    ) -> None:
        self.directory = directory
        self.nodes = tuple(nodes)
        self.more = more  # further lines of slurm.conf
        self.programs = programs
        self.patience = 1  # the factor of all waits

    @property
    def environ(self) -> dict[str, str]:
        """Returns this process's environment with the lab's slurm.conf, and its programs first in
        PATH."""
        path = os.environ.get("PATH", "")
        return {
            **os.environ,
            "SLURM_CONF": str(self.directory / "slurm.conf"),
            "PATH": f"{self.programs}:{path}" if self.programs else path,
        }

    @cached_property
    def release(self) -> str:
        """Returns the release of slurmctld, such as 22.05.8."""
        program = _program("slurmctld", self.environ["PATH"])
        message = self.run(program or "slurmctld", "-V")
        result = re.search(r"\d+\.\d+\.\d+", message)
        if result is None:
            raise SlurmError(f"'slurmctld -V' prints no version: {message[:80]!r}")
        return result[0]

    @property
    def version(self) -> tuple[int, int]:
        """Returns the release without its last number, for comparisons: (22, 5)."""
        year, month, _ = self.release.split(".")
        return int(year), int(month)

    @property
    def client(self) -> SlurmClient:
        return SlurmClient(self.environ)

    def start(self) -> None:
        """Starts all daemons and waits until every node has registered. Raises SlurmError."""
        if missing := missing_programs(self.environ["PATH"]):
            raise SlurmError(
                f"{', '.join(missing)} not found: install them with 'apt-get install {PACKAGES}'"
            )
        self._write_files()
        self._start_munged()
        self.start_controller()
        for node in self.nodes:
            self.start_slurmd(node)
        self.wait_for(self._nodes_are_idle, 30)
        # No job starts within three seconds of slurmctld's start.
        time.sleep(3)

    def _nodes_are_idle(self) -> bool:
        idle = {node.name for node in self.read_nodes() if node.state.text == "IDLE"}
        return idle >= set(self.nodes)

    def _write_files(self) -> None:
        for name in ("run", "log", "state", "spool"):
            (self.directory / name).mkdir(parents=True, exist_ok=True)
        self.directory.chmod(0o755)
        ports = _free_ports(len(self.nodes) + 2)
        lines = [
            f"NodeName={node} NodeHostName=localhost NodeAddr=127.0.0.1 Port={port} CPUs=8 "
            "SocketsPerBoard=1 CoresPerSocket=8 ThreadsPerCore=1 RealMemory=16000"
            for node, port in zip(self.nodes, ports[2:], strict=True)
        ]
        epilog = self.directory / "epilog"
        epilog.write_text(_EPILOG.format(lab=self.directory))
        epilog.chmod(0o755)
        (self.directory / "slurm.conf").write_text(
            _CONFIGURATION.format(
                port=ports[0],
                slurmd_port=ports[1],
                user=_user_name(),
                lab=self.directory,
                nodes="\n".join(lines),
                names=",".join(self.nodes),
                more=self.more,
            )
        )
        if self.version >= (24, 5):
            # Else slurmd may refuse to start without a writable cgroup file system.
            (self.directory / "cgroup.conf").write_text("CgroupPlugin=disabled\n")
        key = self.directory / "munge.key"
        key.touch(0o600)
        key.write_bytes(random.randbytes(128))

    def _start_munged(self) -> None:
        run, log = self.directory / "run", self.directory / "log"
        self._spawn(
            "munged", "--force", f"--key-file={self.directory}/munge.key",
            f"--socket={run}/munge.sock", f"--pid-file={run}/munged.pid",
            f"--log-file={log}/munged.log", f"--seed-file={run}/munged.seed", "--num-threads=4",
        )  # fmt: skip

    def start_controller(self) -> None:
        """Starts slurmctld from its saved state, and waits until it answers."""
        self._spawn("slurmctld")
        self.wait_for(self._controller_answers, 20)

    def _controller_answers(self) -> bool:
        try:
            self.client.check_controller()
        except SlurmError:
            return False
        return True

    def stop_controller(self, sent: signal.Signals = signal.SIGTERM) -> None:
        self._end("slurmctld", sent)

    def start_slurmd(self, node: str) -> None:
        self._spawn("slurmd", "-N", node)

    def stop_slurmd(self, node: str) -> None:
        self._end(f"slurmd-{node}")

    def has_slurmd(self, node: str) -> bool:
        return self._process(f"slurmd-{node}") is not None

    def _spawn(self, program: str, *options: str) -> None:
        """Starts a daemon, which goes into the background by itself and writes a pid file."""
        path = _program(program, self.environ["PATH"])
        assert path is not None, program
        with fault_point("lab.start"):
            answer = subprocess.run(
                [path, *options],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                env=self.environ,
                timeout=300,
                check=False,
            )
        if answer.returncode:
            raise SlurmError(f"{program} does not start: {answer.stderr.decode()}")

    def _process(self, name: str) -> int | None:
        """Returns the process id in a daemon's pid file, if that process is the daemon."""
        try:
            pid = int((self.directory / "run" / f"{name}.pid").read_text())
            command = Path(f"/proc/{pid}/cmdline").read_bytes()
        except (OSError, ValueError):
            return None
        return pid if name.partition("-")[0].encode() in command else None

    def _end(self, name: str, sent: signal.Signals = signal.SIGTERM) -> None:
        pid = self._process(name)
        if pid is None:
            return
        with suppress(ProcessLookupError):
            os.kill(pid, sent)
        deadline = time.monotonic() + 10 * self.patience
        while self._process(name) is not None:
            if time.monotonic() > deadline:
                os.kill(pid, signal.SIGKILL)
            time.sleep(0.02)

    def run(self, *command: str) -> str:
        """Runs one of Slurm's own commands, with its defaults; raises SlurmError if it fails."""
        answer = subprocess.run(
            [_program(command[0], self.environ["PATH"]) or command[0], *command[1:]],
            env=self.environ,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        if answer.returncode:
            raise SlurmError(f"{' '.join(command)}: {answer.stderr.strip() or answer.stdout}")
        return answer.stdout.strip()

    def submit(self, *options: str, script: str = "sleep 300") -> str:
        """Submits a batch job and returns its id; `options` are sbatch's."""
        return self.run(
            "sbatch", "--parsable", "-o", "/dev/null", "-D", "/", *options, f"--wrap={script}"
        )

    def read_nodes(self) -> tuple[SlurmNode, ...]:
        """Returns the nodes in Slurm; none while slurmctld does not answer."""
        try:
            return self.client.read_nodes()
        except SlurmError:
            return ()

    def wait_for(self, is_so: Callable[[], bool], seconds: float = 60) -> None:
        """Waits until `is_so`. Raises SlurmError with the end of slurmctld's log after a time."""
        deadline = time.monotonic() + seconds * self.patience
        while not is_so():
            if time.monotonic() > deadline:
                raise SlurmError(f"the lab was not ready in {seconds} s:\n{self._log_end()}")
            time.sleep(0.25)  # each read starts a program of Slurm

    def _log_end(self) -> str:
        log = self.directory / "log" / "slurmctld.log"
        return "\n".join(log.read_text().splitlines()[-20:]) if log.exists() else ""

    def stop(self) -> None:
        """Ends the daemons and all jobs; keeps the files."""
        slurmds = [file.stem for file in (self.directory / "run").glob("slurmd-*.pid")]
        for pid in map(self._process, slurmds):
            if pid is not None:
                os.kill(pid, signal.SIGTERM)
        for name in ("slurmctld", *slurmds):
            self._end(name)
        for pid in self._leftovers():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._end("munged")

    def _leftovers(self) -> list[int]:
        """Returns the ids of slurmstepd and jobs, which outlive slurmd. A job has this Slurm's
        slurm.conf in its environment; a slurmstepd, since 24.11, only the directory."""
        rows = []
        for process in Path("/proc").iterdir():
            if process.name.isdecimal():
                with suppress(OSError):  # it has just ended
                    if self._is_job(process) or self._is_step(process):
                        rows.append(int(process.name))
        return rows

    def _is_job(self, process: Path) -> bool:
        variables = (process / "environ").read_bytes().split(b"\0")
        mark = f"SLURM_CONF={self.directory / 'slurm.conf'}".encode()
        return mark in variables and any(
            variable.startswith(b"SLURM_JOB_ID=") for variable in variables
        )

    def _is_step(self, process: Path) -> bool:
        is_step = (process / "comm").read_text().strip() == "slurmstepd"
        return is_step and (process / "cwd").readlink().is_relative_to(self.directory)


def _free_ports(count: int) -> list[int]:
    """Returns free ports below the range of ports that the kernel gives to outgoing connections."""
    for _ in range(50):
        first = random.randrange(16_000, 30_000)
        if all(map(_is_free, range(first, first + count))):
            return list(range(first, first + count))
    raise SlurmError(f"no {count} free ports in a row on loopback: stop what listens there")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def _user_name() -> str:
    import pwd

    return pwd.getpwuid(os.geteuid()).pw_name
