"""Tests of the parsers of Slurm's text, on recorded output of four versions and on arbitrary
text."""

from __future__ import annotations

import tracemalloc
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dnm.converters.slurm.text import (
    JOB_FORMAT,
    Reservation,
    SlurmNode,
    parse_job_record,
    parse_jobs,
    parse_nodes,
    parse_reservations,
    parse_time,
    without_marks,
)
from dnm.model.errors import SlurmError
from dnm.model.hostlist import fold_hostlist
from dnm.model.hostlist_parser import expand_hostlist

DATA = Path(__file__).parents[1] / "data" / "slurm"
SAMPLES = sorted(path.parent for path in DATA.glob("*/*/nodes.txt"))
IDS = [f"{path.parent.name}-{path.name}" for path in SAMPLES]
AN_HOUR_AGO = datetime(2026, 11, 20, 12, 13, 46, tzinfo=UTC)


def read(sample: Path) -> dict[str, SlurmNode]:
    return {node.name: node for node in parse_nodes((sample / "nodes.txt").read_text())}


@pytest.mark.parametrize("sample", SAMPLES, ids=IDS)
def test_every_sample_is_parsed_completely(sample: Path) -> None:
    nodes = read(sample)
    assert sorted(nodes) == ["a001", "a002", "a003", "a004", "b001", "b002", "g001"]
    for node in nodes.values():
        assert node.state.is_understood, node
        assert node.partitions in (("main", "urgent"), ("big", "urgent"))
        assert node.has_last_busy == (sample.parent.name != "20.11")
    parse_reservations((sample / "resv.txt").read_text())


NODE = (
    "NodeName=a001 Arch=x86_64 CPUAlloc=0 CPUTot=8 OS=Linux State=DOWN AllocMem=99 #1 "
    "RealMemory=1 AllocMem=7 State=IDLE+DRAIN ThreadsPerCore=1 Partitions=main BootTime=None "
    "SlurmdStartTime=1795100000 LastBusyTime=Unknown CfgTRES=cpu=8 "
)


@pytest.mark.parametrize(
    ("tail", "reason", "comment", "extra"),
    [
        ("", "", "", None),
        ("Reason=dnm:x op=1 [root@1795100000]", "dnm:x op=1", "", None),
        ("Reason=a : Not responding [slurm@Unknown]", "a : Not responding", "", None),
        ("Reason=x State=IDLE [root@1] Comment=c Extra={} ", "x State=IDLE", "c", "{}"),
        ("Comment=Reason=y Extra=z ReservationName=r", "", "Reason=y", "z"),
        ("Comment=(null)", "", "", None),
        ("Reason=one [root@1]        NodeName=a002 State=IDLE", "one", "", None),
        ("Reason=a [b] c [root@1]", "a [b] c", "", None),
        ("Reason=ask [me@site] [root@1] Comment=c", "ask [me@site]", "c", None),
        ("Reason=a [john doe@1] Comment=c", "a", "c", None),
        ("Reason=a [root@2026-11-20T12:13:46] Comment=c", "a", "c", None),
    ],
)
def test_free_text_is_separated_by_position(
    tail: str, reason: str, comment: str, extra: str | None
) -> None:
    line = NODE.replace("OS=Linux State=DOWN AllocMem=99", "OS=Linux") + tail
    (node,) = parse_nodes(line.rstrip() + "\n")
    assert (node.reason, node.comment, node.extra) == (reason, comment, extra)
    assert node.state.text == "IDLE+DRAIN"
    assert (node.memory_allocated, node.last_busy) == (7, None)
    assert node.slurmd_started == datetime.fromtimestamp(1795100000, UTC)


@pytest.mark.parametrize(
    ("tail", "by", "at"),
    [
        ("", "", None),
        ("Reason=fan [root@1795176826]", "root", AN_HOUR_AGO),
        ("Reason=fan [ops@2026-11-20T12:13:46] Comment=c", "ops", AN_HOUR_AGO),
        ("Reason=fan [slurm@Unknown]", "slurm", None),
        ("Reason=fan [CORP\\john doe@1795176826]", "CORP\\john doe", AN_HOUR_AGO),
        ("Reason=fan [x@2026-99-99T12:13:46]", "x", None),
        ("Reason=fan", "", None),
    ],
)
def test_parses_user_and_time_of_a_reason(tail: str, by: str, at: datetime | None) -> None:
    (node,) = parse_nodes(NODE.replace("OS=Linux State=DOWN AllocMem=99", "OS=Linux") + tail)
    assert (node.reason_by, node.reason_at) == (by, at)


def test_os_text_cannot_imitate_allocated_memory() -> None:
    (node,) = parse_nodes(NODE.replace("State=DOWN ", ""))
    assert node.memory_allocated == 7


def test_times_are_parsed() -> None:
    assert parse_time("1795176826") == AN_HOUR_AGO
    assert parse_time("2026-11-20T12:13:46") == AN_HOUR_AGO
    assert parse_time("N/A") is parse_time("Unknown") is None
    for wrong in ("tomorrow", "2026-11-20", "99999999999999999999", "²"):
        with pytest.raises(SlurmError):
            parse_time(wrong)


def test_jobs_of_squeue_are_parsed() -> None:
    text = (
        "7|7|RUNNING|nobody|fill|main|1|10|1795100000|(null)|a001||1795000000|None\n"
        "8|8_[1-5]|PENDING|root|(null)|main,urgent|4|0|N/A|class||a[002-003],b001|"
        "N/A|Nodes are|so\n"
    )
    running, pending = parse_jobs(text)
    assert (running.nodes, running.account, running.planned_nodes) == (("a001",), "fill", ())
    assert pending.partitions == ("main", "urgent")
    assert (pending.account, pending.reservation, pending.start) == ("", "class", None)
    assert pending.planned_nodes == ("a002", "a003", "b001")
    assert running.submitted == parse_time("1795000000") and pending.submitted is None
    assert (running.pending_reason, pending.pending_reason) == ("None", "Nodes_are|so")
    for wrong in ("7|7|RUNNING", text.replace("|10|", "|ten|"), text.replace("a001", "a[1-")):
        with pytest.raises(SlurmError):
            parse_jobs(wrong)


def test_array_task_of_squeue_is_named_by_array_and_task() -> None:
    """The last task of an array has the array's own job id. With it, `scontrol requeue` would
    requeue all tasks (22.05)."""
    line = "{0}|{1}|RUNNING|fill|spare|main|1|100|1795318591|(null)|a001||1795318590|None\n"
    shown = (("1", "1_4"), ("3", "1_2"), ("4", "4"), ("5", "5+0"), ("6", "6_[2-3]"))
    slurm_jobs = parse_jobs("".join(line.format(*pair) for pair in shown))
    assert [job.id for job in slurm_jobs] == ["1_4", "1_2", "4", "5", "6"]


def test_account_is_untrusted_text() -> None:
    """Without slurmdbd, users may set any text as account, and `squeue` prints it unchanged
    (22.05). A `|` in it would shift fields, and a line end would forge a job."""
    forged = "x|main|1|1|N/A|||||\n9|9|RUNNING|ann|y"
    text = f"3|3|RUNNING|eve|#{forged}#|main|1|7|N/A|(null)|a001||1795000000|None\n"
    (job,) = parse_jobs(without_marks(text, "#"))
    assert (job.user, job.nodes, job.priority) == ("eve", ("a001",), 7)
    assert job.account == "x?main?1?1?N/A??????9?9?RUNNING?ann?y"


def test_slurmd_text_forges_no_other_node() -> None:
    """slurmd reports any text as its OS; with a line end, 22.05 prints what looks like a node."""
    own, other = (
        f"NodeName={name} Arch=x86_64 CPUAlloc=0 OS={{}} AllocMem=0 State=IDLE Partitions=main\n"
        for name in ("a002", "a001")
    )
    forged = own.format("Linux AllocMem=0 State=IDLE\nNodeName=a001 CPUAlloc=0")
    assert [node.name for node in parse_nodes(forged)] == ["a002", "a001"]
    with pytest.raises(SlurmError, match="NodeName=a001 twice"):
        parse_nodes(other.format("Linux") + forged)


@pytest.mark.parametrize("version", ["20.11", "22.05", "24.11", "26.05"])
def test_job_records_are_parsed(version: str) -> None:
    lines = (DATA / version / "states1" / "jobs.txt").read_text().strip().split("\n")
    records = [parse_job_record(line) for line in lines]
    assert {record.state for record in records} >= {"RUNNING", "PENDING"}
    assert all(record.is_requeueable for record in records)
    with pytest.raises(SlurmError):
        parse_job_record("slurm_load_jobs error: Invalid job id specified")


@pytest.mark.parametrize("parse", [parse_nodes, parse_reservations, parse_jobs])
def test_unexpected_output_is_refused(parse: object) -> None:
    assert callable(parse)
    for text in ("Node nosuch not found\n", "slurm_load: Unable to contact\n", "NodeName=a001\n"):
        with pytest.raises(SlurmError):
            parse(text)


CHARGED = (
    "ReservationName=k8s-a001 StartTime=2026-11-23T15:59:51 EndTime=2027-11-23T15:59:51 "
    "Duration=365-00:00:00 Nodes=a001 NodeCnt=1 CoreCnt=1 Features=(null) PartitionName=(null) "
    "Flags={} TRES=cpu=1 Users={} Groups=(null) Accounts={} Licenses=(null) State=ACTIVE\n"
)  # of 22.05


@pytest.mark.parametrize(
    ("flags", "users", "accounts", "charged_to"),
    [
        ("SPEC_NODES", "root", "(null)", ""),
        ("MAINT,SPEC_NODES", "(null)", "proj", "proj"),
        ("MAINT,SPEC_NODES", "(null)", "root", "-"),
        ("MAINT,SPEC_NODES", "root", "(null)", ""),
        ("SPEC_NODES", "(null)", "proj", ""),
    ],
)
def test_account_of_a_reservation_is_parsed(
    flags: str, users: str, accounts: str, charged_to: str
) -> None:
    (reservation,) = parse_reservations(CHARGED.format(flags, users, accounts))
    assert reservation.charged_to == charged_to and reservation.is_charged == flags.startswith(
        "MAINT"
    )


def test_empty_output_is_accepted() -> None:
    assert parse_reservations("No reservations in the system\n") == ()
    assert parse_nodes("No nodes in the system\n") == parse_nodes("") == ()
    assert parse_jobs("") == ()


@given(st.text(max_size=400))
@example("NodeName= State= CPUAlloc=")
@example("ReservationName=x StartTime=1 EndTime=1 Nodes=a[1-99999999]")
def test_arbitrary_slurm_text_gives_values_or_a_single_error(text: str) -> None:
    for line in (text, f"NodeName=a {text}", f"ReservationName=a {text}", text.replace(",", "|")):
        for parse in (parse_nodes, parse_jobs, parse_reservations, parse_job_record):
            try:
                parse(line)
            except SlurmError as error:
                assert "\n" not in str(error).replace(repr(line), "")


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("a001", ("a001",)),
        ("a[003,001-002],b001", ("a003", "a001", "a002", "b001")),
        ("rack[1-2]n[01-02]", ("rack1n01", "rack1n02", "rack2n01", "rack2n02")),
        ("n[09-11]-ib", ("n09-ib", "n10-ib", "n11-ib")),
        ("(null)", ()),
        ("", ()),
    ],
)
def test_host_lists_are_expanded(text: str, names: tuple[str, ...]) -> None:
    assert expand_hostlist(text) == names


@pytest.mark.parametrize(
    "text",
    ["a[001", "a]1[", "a[3-1]", "a[x]", "a[]", "a,,b", "a[1-2", "a b", "a[1[2]]", "a[0-999999]",
     "a[0-9999]b[0-9999]", "a[1-2]]"],
)  # fmt: skip
def test_malformed_host_lists_are_refused(text: str) -> None:
    with pytest.raises(SlurmError):
        expand_hostlist(text)


@pytest.mark.parametrize("text", ["a[" + ",".join(["1-99999"] * 20) + "]", "a" + "[1-99999]" * 20])
def test_huge_host_lists_are_refused_before_they_fill_the_memory(text: str) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(SlurmError, match="more than 200000 nodes"):
            expand_hostlist(text)
        assert tracemalloc.get_traced_memory()[1] < 40 * 1024 * 1024
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("names", "text"),
    [
        pytest.param(["a001"], "a001", id="one"),
        pytest.param(["a003", "a001", "a002", "a007", "b1"], "a[001-003,007],b1", id="runs"),
        pytest.param(["a9", "a10", "login"], "a9,a10,login", id="of-several-widths"),
        pytest.param([], "", id="none"),
    ],
)
def test_host_names_are_folded(names: list[str], text: str) -> None:
    assert fold_hostlist(names) == text


@given(st.sets(st.from_regex(r"[a-z]{0,2}[0-9]{0,12}(-ib)?", fullmatch=True).filter(bool)))
def test_folded_host_list_expands_to_the_same_names(names: set[str]) -> None:
    assert sorted(expand_hostlist(fold_hostlist(names))) == sorted(names)


def test_squeue_format_has_no_free_text() -> None:
    """Users write %j (name) and %k (comment), plug-ins %r (reason): dnm reads none of them."""
    assert not {"%j", "%k", "%r", "%o"} & set(JOB_FORMAT.split("|")[:-1])


@pytest.mark.parametrize(
    ("begins", "ends", "holds"),
    [(0, 3, True), (0, None, True), (1, 3, True), (2, 3, False), (0, 1, False), (None, 3, False)],
)
def test_reservation_applies_between_its_begin_and_end(
    begins: int | None, ends: int | None, holds: bool
) -> None:
    start, end, now = (
        None if hour is None else datetime(2026, 11, 20, hour, tzinfo=UTC)
        for hour in (begins, ends, 1)
    )
    assert now is not None
    assert Reservation(name="r", start=start, end=end, nodes=()).holds_at(now) is holds
