"""Tests that any input bytes give a value or an error message: no other exception, no hang.

Inputs are raw bytes, and valid documents that were cut, doubled, or got swapped pieces. Other files
test the configuration, the registry, the API's answers and the converter's output."""

from __future__ import annotations

import base64
import gzip
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dnm.converters.slurm.text import parse_jobs, parse_nodes, parse_reservations
from dnm.model.cluster import ConfigMap
from dnm.model.errors import DnmError
from dnm.model.hostlist_parser import expand_hostlist
from dnm.model.queue_edit import QueueWants
from dnm.model.slurm_state import parse_state
from dnm.queues.yunikorn.ledger import decode_ledger
from dnm.queues.yunikorn.source import resolve_document
from dnm.queues.yunikorn.system import plan_source
from dnm.queues.yunikorn.task_groups import task_groups
from dnm.queues.yunikorn.tree import parse_tree
from tests.queue_kit import check_text
from tests.site import QUEUE, WORKSHOP_QUEUES

SIZE = {"cpu": 128_000, "memory": 256 * 10**9}
NODE_LINE = (
    "NodeName=a001 Arch=x86_64 CPUAlloc=0 CPUEfctv=8 CPUTot=8 CPULoad=0.05 RealMemory=16000 "
    "AllocMem=0 FreeMem=900 State=IDLE+DRAIN ThreadsPerCore=1 Partitions=main BootTime=1763600000 "
    "SlurmdStartTime=1763600001 LastBusyTime=1763600002 Reason=dnm:prod [root@1763600003] Comment=x"
)
GANG = '[{"name": "g", "minMember": 3, "minResource": {"cpu": "1", "memory": "2Gi"}}]'


def queue_map(text: str, ledger: str = "") -> ConfigMap:
    annotations = {"dynamic-node-manager/ledger": ledger} if ledger else {}
    return ConfigMap(
        namespace="yunikorn", name="yunikorn-configs", resource_version="1",
        data={"queues.yaml": text}, annotations=annotations,
    )  # fmt: skip


def edited(text: str, ledger: str = "") -> object:
    wants = QueueWants(instance_id="prod", nodes={QUEUE: {"a001": SIZE}})
    return plan_source(resolve_document(queue_map(text, ledger), None), wants)


LEDGER = edited(WORKSHOP_QUEUES).ledger  # type: ignore[attr-defined]


def unpacked(text: str) -> object:
    packed = ConfigMap(
        namespace="yunikorn", name="yunikorn-configs", resource_version="1",
        binary_data={"queues.yaml.gz": text},
    )  # fmt: skip
    return resolve_document(packed, None)


READERS: dict[str, tuple[Callable[[str], object], str]] = {
    "queue document": (parse_tree, WORKSHOP_QUEUES),
    "queue document, judged": (check_text, WORKSHOP_QUEUES),
    "queue document, edited": (edited, WORKSHOP_QUEUES),
    "queue document, packed": (unpacked, "H4sIAAAAAAAAAytILCrJTC3WteICAO7DtEANAAAA"),
    "ledger": (decode_ledger, LEDGER),
    "ledger, used": (lambda text: edited(WORKSHOP_QUEUES, text), LEDGER),
    "Slurm's nodes": (parse_nodes, NODE_LINE),
    "Slurm's jobs": (
        parse_jobs,
        "17|17|RUNNING|ann|acct|main|1|100|1763600000||a001|(null)|1763600000|None",
    ),
    "Slurm's reservations": (
        parse_reservations,
        "ReservationName=k8s-a001 StartTime=1763600000 EndTime=1795136000 Nodes=a001 State=ACTIVE",
    ),
    "Slurm's state": (parse_state, "IDLE*+DRAIN"),
    "host list": (expand_hostlist, "a[001-003,007],b12"),
    "task groups": (task_groups, GANG),
}


def damaged(text: str) -> st.SearchStrategy[str]:
    """Draws pieces of a valid text, cut, doubled or swapped, mixed with foreign ones."""
    cuts = st.integers(0, len(text))
    piece = st.tuples(cuts, cuts).map(lambda ends: text[min(ends) : max(ends)])
    foreign = st.sampled_from(
        ["\x00", "\x1b[31m", "\ufeff", "\r\n", "&a ", "*a", "<<: ", "!!python/object:os ", "---\n",
         "{", "}", "[", "]", ":", "9" * 400, "-1", "null", "\u2028", "\ud7ff", "[1-99999999]"]
    )  # fmt: skip
    return st.lists(piece | foreign | st.text(max_size=8), max_size=6).map("".join)


@pytest.mark.parametrize("name", READERS)
@given(data=st.data())
def test_damaged_text_gives_a_value_or_an_error_message(name: str, data: st.DataObject) -> None:
    read, valid = READERS[name]
    text = data.draw(damaged(valid) | st.text(max_size=60))
    try:
        read(text)
    except DnmError as error:
        assert str(error).strip()


@pytest.mark.parametrize("name", [name for name in READERS if name != "queue document, packed"])
def test_undamaged_text_is_read(name: str) -> None:
    read, valid = READERS[name]
    assert read(valid) is not None


@pytest.mark.parametrize(
    "text",
    ["[" * 50_000, "a: " * 20_000, "{" * 50_000, "&a [" * 5_000, "- " * 50_000,
     "a: &a [x,x]\nb: &b [*a,*a]\n" + "c: [*b,*b]\n" * 50],
    ids=["lists", "maps", "braces", "anchors", "dashes", "aliases"],
)  # fmt: skip
def test_deeply_nested_text_gives_an_error_message(text: str) -> None:
    assert check_text(text)


def test_document_that_expands_without_bound_is_refused() -> None:
    """Each YAML node takes a hundred times as much memory as its text, so dnm bounds both."""
    for text in (b" " * 100_000_000, b"partitions: []\nx: [" + b"a," * 4_500_000 + b"]"):
        with pytest.raises(DnmError, match="more than"):
            unpacked(base64.b64encode(gzip.compress(text)).decode())
