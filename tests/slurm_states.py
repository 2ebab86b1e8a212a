"""A real Slurm in which nodes reach every state that is possible on one machine."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.real_slurm import SlurmLab
from tests.slurm_lab import end_with_us

NODES = tuple(f"n{number:02}" for number in range(1, 27))
HAS_EXTERNAL = (25, 5)
WITHOUT_DAEMON = """\
GresTypes=gpu
SuspendProgram=/bin/true
ResumeProgram=/bin/true
RebootProgram=/bin/true
SuspendTimeout=10
ResumeTimeout=10
SuspendTime=86400
MaxNodeCount=200
PrivateData=cloud
NodeName=future1 State=FUTURE CPUs=8 RealMemory=16000
NodeName=unknown1 NodeAddr=127.0.0.1 Port=9 CPUs=8 RealMemory=16000
NodeName=cloud1 State=CLOUD NodeAddr=127.0.0.1 Port=9 CPUs=8 RealMemory=16000
NodeName=cloud2 State=CLOUD NodeAddr=127.0.0.1 Port=9 CPUs=8 RealMemory=16000
"""
EXTERNAL = "NodeName=external1 State=EXTERNAL CPUs=8 RealMemory=16000\n"
STATES = frozenset(
    frozenset(item.split("+"))
    for item in (
        "IDLE", "ALLOCATED", "MIXED", "DOWN", "UNKNOWN+*", "IDLE+COMPLETING", "IDLE+DRAIN",
        "MIXED+DRAIN", "IDLE+FAIL", "MIXED+FAIL", "IDLE+NOT_RESPONDING", "DOWN+NOT_RESPONDING",
        "IDLE+RESERVED", "IDLE+DRAIN+RESERVED", "IDLE+MAINTENANCE+RESERVED", "IDLE+PLANNED",
        "IDLE+POWERING_DOWN", "IDLE+POWERED_DOWN", "MIXED+POWER_DOWN", "MIXED+DRAIN+POWER_DOWN",
        "IDLE+CLOUD+POWERED_DOWN", "CLOUD+POWERING_UP+*", "MIXED+REBOOT_REQUESTED",
        "MIXED+DRAIN+REBOOT_REQUESTED", "DOWN+REBOOT_ISSUED", "INVALID_REG+*", "IDLE+DYNAMIC_NORM",
    )
)  # fmt: skip
"""Each must occur; an asterisk means any further words."""


@contextmanager
def states_lab(programs: Path | None = None) -> Iterator[SlurmLab]:
    """Yields a started Slurm with enough nodes for all states."""
    directory = Path(tempfile.mkdtemp(prefix="dnm-states-"))
    lab = SlurmLab(directory, NODES, more=WITHOUT_DAEMON, programs=programs)
    if lab.version >= HAS_EXTERNAL:
        lab.more += EXTERNAL
    end = end_with_us(directory)
    try:
        lab.start()
        yield lab
    finally:
        end()


def states_of(lab: SlurmLab) -> frozenset[frozenset[str]]:
    """Returns the states that nodes can reach in this version of Slurm."""
    return STATES | ({frozenset(("IDLE", "EXTERNAL"))} if lab.version >= HAS_EXTERNAL else set())


def change(lab: SlurmLab, node: str, *words: str) -> None:
    lab.run("scontrol", "update", f"nodename={node}", *words)


def bring_about(lab: SlurmLab) -> None:
    """Submits jobs and changes nodes, so that most states are reached; returns once jobs run."""
    small = ("-n1", "--mem=100")
    (lab.directory / "hold-n04").touch()
    lab.submit("-w", "n02", "--exclusive", "-t", "30", "--uid=games", "-A", "biology")
    for node in ("n03", "n06", "n10", "n14", "n16", "n17", "n18", "n19", "n20"):
        lab.submit("-w", node, *small)
    lab.submit("-w", "n04", *small, script="true")
    lab.submit("-w", "n01", *small, "--no-requeue", script="exit 3")
    lab.submit("-w", "n01", *small, script="kill -9 $$")
    lab.submit("-w", "n25", *small, ":", "-w", "n26", *small)  # one job of two, with one script
    lab.submit("-w", "n02,n13", "-N2", "--exclusive", "-t", "10")
    lab.submit("-w", "n21,n22,n23", "-N3", "--exclusive", "-t", "10", "--begin=now+1hour")
    lab.submit("-w", "n02", *small, "-t", "10", "--array=1-3,7", "--hold", "--comment=a|b|c")
    reserve(lab, "class", "n11", "Users=games,root")
    reserve(lab, "works", "n12", "Users=root", "Flags=MAINT,IGNORE_JOBS")
    reserve(lab, "lent", "n24", "Users=root", "Duration=UNLIMITED")
    reserve(lab, "account", "n21,n22", "Accounts=biology", "StartTime=now+3days")
    lab._spawn("slurmd", "-Z", "-N", "dynamic1", "--conf", "CPUs=8 RealMemory=16000")
    change(lab, "n05", "state=drain", "reason=disk State=IDLE [x@y]", "comment=two words")
    change(lab, "n07", "state=down", "reason=fan Reason=x Comment=y")
    change(lab, "n09", "state=fail", "reason=ecc")
    change(lab, "n23", 'extra={"a": 1, "b": "x y"}', "comment=Reason=z")
    change(lab, "n24", "state=drain", "reason=dnm:test op=1", "comment=dnm:test 1")
    change(lab, "future1", "state=resume")
    change(lab, "unknown1", "state=drain", "reason=not there yet")
    lab.stop_slurmd("n08")
    jobs = lab.client.read_jobs
    lab.wait_for(lambda: sum(job.state == "RUNNING" for job in jobs()) >= 12)
    change(lab, "n06", "state=drain", "reason=fan")
    change(lab, "n10", "state=fail", "reason=ecc")
    change(lab, "n16", "state=power_down_asap", "reason=saving")
    change(lab, "n17", "state=power_down")
    change(lab, "n20", "state=down", "reason=died")
    (suspended,) = [job.id for job in jobs() if job.nodes == ("n14",)]
    lab.run("scontrol", "suspend", suspended)
    lab.run("scontrol", "reboot", "n18")
    lab.run("scontrol", "reboot", "asap", "n19")
    # These last only seconds.
    lab.run("scontrol", "reboot", "n22")
    change(lab, "n15", "state=power_down")
    change(lab, "cloud2", "state=power_up")


def reserve(lab: SlurmLab, name: str, nodes: str, *words: str) -> None:
    defaults = [
        word for word in ("StartTime=now", "Duration=60") if not _is_overridden(word, words)
    ]
    lab.run(
        "scontrol", "create", "reservation", f"ReservationName={name}", f"Nodes={nodes}",
        *words, *defaults,
    )  # fmt: skip


def _is_overridden(default: str, words: tuple[str, ...]) -> bool:
    return any(word.startswith(default.partition("=")[0]) for word in words)


def restart_with_a_gpu(lab: SlurmLab) -> None:
    """Restarts slurmctld with a GPU configured for n01, which has none."""
    lab.stop_controller()
    configuration = lab.directory / "slurm.conf"
    text = configuration.read_text()
    configuration.write_text(text.replace("NodeName=n01 ", "NodeName=n01 Gres=gpu:2 "))
    lab.start_controller()


def play(lab: SlurmLab, look: Callable[[], None]) -> set[frozenset[str]]:
    """Brings about the states, and calls `look` until all have occurred. Returns missing ones."""
    missing = set(states_of(lab))

    def observe(seconds: float, late: frozenset[frozenset[str]] = frozenset()) -> None:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and not missing <= late:
            shown = [{node.state.base, *node.state.flags} for node in lab.read_nodes()]
            missing.difference_update(
                [group for group in missing
                 if any(group - {"*"} <= words if "*" in group else group == words
                        for words in shown)]
            )  # fmt: skip
            look()
            time.sleep(0.3)

    bring_about(lab)
    observe(60, frozenset({frozenset(("INVALID_REG", "*"))}))  # this state comes with the restart
    restart_with_a_gpu(lab)
    observe(20)
    return missing
