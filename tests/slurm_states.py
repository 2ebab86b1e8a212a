"""A lab in which Slurm brings about every state that it can on one machine, and what it says then.

`judge` reads Slurm's JSON, which is of another program path than its text, without dnm's code; the
tests compare the two field by field. `python -m tests.slurm_states` keeps what is met as samples
for the tests that start no Slurm; with the name of a suite of tests/real/slurm_roots.py, that of
its Slurm.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dnm.converters.slurm.text import JOB_FORMAT
from dnm.model.errors import SlurmError
from tests.real_slurm import SlurmLab
from tests.slurm_lab import end_with_us

SAMPLES = Path(__file__).parent / "data" / "slurm_states"
NODES = tuple(f"n{number:02}" for number in range(1, 27))
HAS_JSON_OF_ALL = (23, 2)  # scontrol --json; before that only sinfo and squeue have it
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
    frozenset(one.split("+"))
    for one in (
        "IDLE", "ALLOCATED", "MIXED", "DOWN", "UNKNOWN+*", "IDLE+COMPLETING", "IDLE+DRAIN",
        "MIXED+DRAIN", "IDLE+FAIL", "MIXED+FAIL", "IDLE+NOT_RESPONDING", "DOWN+NOT_RESPONDING",
        "IDLE+RESERVED", "IDLE+DRAIN+RESERVED", "IDLE+MAINTENANCE+RESERVED", "IDLE+PLANNED",
        "IDLE+POWERING_DOWN", "IDLE+POWERED_DOWN", "MIXED+POWER_DOWN", "MIXED+DRAIN+POWER_DOWN",
        "IDLE+CLOUD+POWERED_DOWN", "CLOUD+POWERING_UP+*", "MIXED+REBOOT_REQUESTED",
        "MIXED+DRAIN+REBOOT_REQUESTED", "DOWN+REBOOT_ISSUED", "INVALID_REG+*", "IDLE+DYNAMIC_NORM",
    )
)  # fmt: skip
"""Each must have been met; an asterisk stands for any further words."""

Facts = dict[str, dict[str, Any]]


@dataclass(frozen=True)
class Moment:
    """What the text and the JSON of one Slurm said at the same time, for what did not change."""

    version: tuple[int, int]
    nodes: str
    jobs: str
    records: str
    reservations: str
    judged_nodes: Facts
    judged_jobs: Facts
    judged_reservations: Facts  # empty where this version has no JSON for them


@contextmanager
def states_lab(programs: Path | None = None) -> Iterator[SlurmLab]:
    """Started, with a node for each state, and nothing done to them yet."""
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
    """Those that can be had of this version."""
    return STATES | ({frozenset(("IDLE", "EXTERNAL"))} if lab.version >= HAS_EXTERNAL else set())


def met_in(moment: Moment, wanted: Iterable[frozenset[str]]) -> set[frozenset[str]]:
    """Those of the wanted ones that a node was in."""
    shown = [set(facts["state"].split("+")) for facts in moment.judged_nodes.values()]
    return {
        one for one in wanted if any(one - {"*"} <= words if "*" in one else one == words
                                     for words in shown)
    }  # fmt: skip


def named(states: Iterable[frozenset[str]]) -> str:
    return ", ".join(sorted("+".join(sorted(one)) for one in states)) or "none"


def change(lab: SlurmLab, node: str, *words: str) -> None:
    lab.run("scontrol", "update", f"nodename={node}", *words)


def bring_about(lab: SlurmLab) -> None:
    """Returns when the jobs run; the rest comes in the seconds after."""
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
    # These pass in seconds.
    lab.run("scontrol", "reboot", "n22")
    change(lab, "n15", "state=power_down")
    change(lab, "cloud2", "state=power_up")


def reserve(lab: SlurmLab, name: str, nodes: str, *words: str) -> None:
    defaults = [word for word in ("StartTime=now", "Duration=60") if not _is_given(word, words)]
    lab.run(
        "scontrol", "create", "reservation", f"ReservationName={name}", f"Nodes={nodes}",
        *words, *defaults,
    )  # fmt: skip


def _is_given(default: str, words: tuple[str, ...]) -> bool:
    return any(word.startswith(default.partition("=")[0]) for word in words)


def restart_with_a_gpu(lab: SlurmLab) -> None:
    """slurmctld knows no state for some seconds; then n01 turns out to lack what it should have."""
    lab.stop_controller()
    configuration = lab.directory / "slurm.conf"
    text = configuration.read_text()
    configuration.write_text(text.replace("NodeName=n01 ", "NodeName=n01 Gres=gpu:2 "))
    lab.start_controller()


def moments(lab: SlurmLab, seconds: float) -> Iterator[Moment]:
    """One after the other until `seconds` have passed, of all that is wanted; each is true."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        yield take(lab)
        time.sleep(0.3)


def take(lab: SlurmLab) -> Moment:
    """Text between two looks at the JSON; what differs between those is left out."""
    before = judge(lab)
    nodes = lab.client._read("scontrol", "-a", "-o", "show", "nodes")
    jobs = lab.client._read("squeue", "-a", "-h", "--noconvert", "-o", JOB_FORMAT)
    records = lab.client._read("scontrol", "-a", "-o", "show", "jobs")
    reservations = lab.client._read("scontrol", "-a", "-o", "show", "reservation")
    after = judge(lab)
    same = [_unchanged(*both) for both in zip(before, after, strict=True)]
    return Moment(lab.version, nodes, jobs, records, reservations, *same)


def _unchanged(before: Facts, after: Facts) -> Facts:
    return {name: facts for name, facts in before.items() if after.get(name) == facts}


def judge(lab: SlurmLab) -> tuple[Facts, Facts, Facts]:
    """Nodes, jobs and reservations as Slurm's JSON tells them."""

    def ask(key: str, *command: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = json.loads(lab.run(*command))[key]
        return found

    if lab.version >= HAS_JSON_OF_ALL:
        nodes = ask("nodes", "scontrol", "show", "nodes", "--all", "--json")
        reservations = ask("reservations", "scontrol", "show", "reservations", "--all", "--json")
    else:
        nodes = ask("nodes", "sinfo", "--all", "--json")
        reservations = []
    jobs = ask("jobs", "squeue", "--all", "--json")
    return (
        {node["name"]: _node(node) for node in nodes},
        {str(job["job_id"]): _job(job) for job in jobs},
        {one["name"]: _reservation(one) for one in reservations},
    )


def _words(value: object) -> list[str]:
    """A list, or one word in small letters as 22.05 has it."""
    return [value.upper()] if isinstance(value, str) else list(value)  # type: ignore[call-overload]


def _number(value: Any) -> int | None:
    """None where Slurm says that it has none: not set, zero, or no time."""
    if isinstance(value, dict):
        value = value["number"] if value["set"] else None
    return value if value and value < 2**32 - 2 else None


def _node(node: dict[str, Any]) -> dict[str, Any]:
    return {
        "state": "+".join(sorted({*_words(node["state"]), *node.get("state_flags", ())})),
        "cpus_allocated": node["alloc_cpus"],
        "memory_allocated": node["alloc_memory"],
        "partitions": node["partitions"],
        "slurmd_started": _number(node["slurmd_start_time"]),
        "last_busy": _number(node["last_busy"]),
        "reason": node["reason"],
        "comment": node["comment"],
        "extra": node["extra"],
        "version": node.get("version", node.get("slurmd_version")),
    }


def _job_state(words: list[str]) -> str:
    return "COMPLETING" if "COMPLETING" in words else words[0]


def _job(job: dict[str, Any]) -> dict[str, Any]:
    return {
        "state": _job_state(_words(job["job_state"])),
        "user": job["user_name"],
        "account": job["account"],
        "partitions": job["partition"].split(","),
        "priority": _number(job["priority"]) or 0,
        "start": _number(job["start_time"]),
        "reservation": job["resv_name"],
        "nodes": expanded(job["nodes"]),
        "is_requeueable": job["requeue"],
        "is_batch": job["batch_flag"],
    }


def _reservation(one: dict[str, Any]) -> dict[str, Any]:
    return {
        "start": _number(one["start_time"]),
        "end": _number(one["end_time"]),
        "nodes": expanded(one["node_list"]),
        "users": one["users"],
        "flags": sorted(one["flags"]),
    }


def expanded(hosts: str) -> list[str]:
    """Names of `n[02-03,13],n20`: one range of two digits a group, as this lab's are."""
    names: list[str] = []
    for prefix, inside, plain in re.findall(r"([a-z]+)\[([0-9,-]+)\]|([a-z]+[0-9]+)", hosts or ""):
        names += [plain] if plain else []
        for part in inside.split(",") if inside else ():
            first, _, last = part.partition("-")
            names += [f"{prefix}{at:02}" for at in range(int(first), int(last or first) + 1)]
    return names


def play(lab: SlurmLab, look: Callable[[Moment], None]) -> set[frozenset[str]]:
    """Brings about what it can and lets `look` see it until all was met; returns what was not."""
    missing = set(states_of(lab))

    def see(moment: Moment) -> None:
        look(moment)
        missing.difference_update(met_in(moment, missing))

    bring_about(lab)
    late = frozenset(("INVALID_REG", "*"))  # comes with the restart
    for moment in moments(lab, 60):
        see(moment)
        if missing <= {late}:
            break
    restart_with_a_gpu(lab)
    for moment in moments(lab, 20):
        see(moment)
        if not missing:
            break
    return missing


def keep(moment: Moment, directory: Path, known: set[str]) -> None:
    """As a sample: of the nodes, jobs and reservations that are in a state that is not `known` yet
    the text as it was, and what the JSON said. Nothing where there is no new one."""
    kinds = {"nodes": "NodeName=", "jobs": "", "reservations": "ReservationName="}
    texts: dict[str, str] = {}
    for kind, begin in kinds.items():
        judged: Facts = getattr(moment, f"judged_{kind}")
        keys = {key: f"{kind} {facts.get('state', key)}" for key, facts in judged.items()}
        new = {key for key, state in keys.items() if state not in known}
        known.update(keys.values())
        texts[f"{kind}.txt"] = _lines_about(getattr(moment, kind), begin, new)
        entries = [f"{json.dumps(key)}: {json.dumps(judged[key])}" for key in sorted(new)]
        texts[f"{kind}.json"] = "{\n" + ",\n".join(entries) + "\n}\n"
        if kind == "jobs":
            texts["records.txt"] = _lines_about(moment.records, "JobId=", new)
    if any(text for name, text in texts.items() if name.endswith(".txt")):
        directory.mkdir(parents=True, exist_ok=True)
        for name, text in texts.items():
            (directory / name).write_text(text)


def _lines_about(text: str, begin: str, names: Collection[str]) -> str:
    """Those lines of a text whose first word names one of them."""
    lines = text.splitlines(keepends=True)
    return "".join(
        line
        for line in lines
        if re.split(r"[ |]", line.removeprefix(begin), maxsplit=1)[0] in names
    )


def load(directory: Path) -> Moment:
    """What `keep` has written."""
    major, _, minor = directory.parent.name.partition(".")

    def judged(kind: str) -> Facts:
        found: Facts = json.loads((directory / f"{kind}.json").read_text())
        return found

    nodes, jobs, records, reservations = (
        (directory / f"{name}.txt").read_text()
        for name in ("nodes", "jobs", "records", "reservations")
    )
    return Moment(
        (int(major), int(minor)), nodes, jobs, records, reservations,
        judged("nodes"), judged("jobs"), judged("reservations"),
    )  # fmt: skip


def main(suites: list[str]) -> None:
    """Keeps every state that is met, once."""
    from tests.real.slurm_roots import programs_of

    for programs in [programs_of(suite) for suite in suites] or [None]:
        with states_lab(programs) as lab:
            name = f"{lab.version[0]}.{lab.version[1]:02}"
            shutil.rmtree(SAMPLES / name, ignore_errors=True)
            known: set[str] = set()

            def look(moment: Moment, name: str = name, known: set[str] = known) -> None:
                number = len(list((SAMPLES / name).glob("*"))) + 1
                keep(moment, SAMPLES / name / f"{number:02}", known)

            try:
                missing = play(lab, look)
            except SlurmError as error:
                sys.exit(str(error))
            print(f"{name}: {', '.join(sorted(known))}; not met: {named(missing)}")


if __name__ == "__main__":
    main(sys.argv[1:])
