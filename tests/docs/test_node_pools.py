"""Tests of docs/node-pools.md: its machines, its computed numbers and its commands."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from dnm.cli.set_up.node_types import load_node_types
from dnm.kubelet.check import check_node_type
from dnm.kubelet.reservation import computed_allocatable, eviction_amount, holds_int64, memory_sides
from dnm.model.node_type import NodeType
from tests.docs.pages import rows, section

PAGE = "docs/node-pools.md"
MACHINES = {"Two sockets with GPUs": "p", "A small one": "s"}
MI = 2**20


def ini_of(title: str) -> str:
    (text,) = re.findall(r"^```ini\n(.*?)^```", section(PAGE, title), flags=re.S | re.M)
    return str(text)


def written(directory: Path, *replacements: tuple[str, str]) -> Path:
    text = "[settings]\n" + "\n".join(map(ini_of, MACHINES))
    for old, new in replacements:
        assert old in text
        text = text.replace(old, new)
    path = directory / "dnm.ini"
    path.write_text(text)
    path.chmod(0o644)
    return path


def machine(directory: Path, name: str) -> NodeType:
    _, types, problems = load_node_types(written(directory), {})
    assert problems == []
    return types[name]


def run_node_types(path: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "dnm.cli", "node-types", *arguments, "-c", str(path)],
        capture_output=True, text=True, check=False, env={"PYTHONIOENCODING": "utf-8"},
    )  # fmt: skip


@pytest.mark.parametrize(("title", "name"), MACHINES.items())
def test_documented_machine_is_valid_and_its_numbers_are_computed(
    tmp_path: Path, title: str, name: str
) -> None:
    node_type = machine(tmp_path, name)
    assert not [problem for problem in check_node_type(node_type) if problem.is_error]
    kubelet = node_type.kubelet
    assert kubelet is not None
    document = {row[0]: row[1] for row in rows(section(PAGE, title)) if len(row) == 2 and row[0]}
    sides = memory_sides(kubelet)
    assert sum_of(document["kept back"]) == sides.allocatable
    assert difference_of(document["pods get"]) == computed_allocatable(kubelet)
    if kubelet.is_static:
        assert sum_of(document["by NUMA node"]) == sides.reserved == sides.allocatable
        assert check_node_type(node_type) == ()
        each = kubelet.huge_pages // len(kubelet.numa_memory)
        free = [
            size - each - sum(
                int(reservation.amount.removesuffix("Mi")) * MI
                for reservation in kubelet.reserved_memory if reservation.numa_node == node
            )
            for node, size in kubelet.numa_memory.items()
        ]  # fmt: skip
        assert difference_of(document["one pod gets at most"]) == max(free)


def sum_of(text: str) -> int:
    return result_of(text, "+")


def difference_of(text: str) -> int:
    return result_of(text, "−")


def result_of(text: str, sign: str) -> int:
    """Checks a sum such as `1Mi + 2Mi = 3Mi` on the page, and returns it in bytes."""
    left, right = text.split(" = ")
    numbers = [int(word.removesuffix("Mi")) for word in left.split(f" {sign} ")]
    total = sum(numbers) if sign == "+" else numbers[0] - sum(numbers[1:])
    match = re.match(r"(\d+)Mi", right)
    assert match and int(match[1]) == total, text
    return total * MI


def test_check_output_is_as_the_page_shows_it(tmp_path: Path) -> None:
    text = section(PAGE, "Check, list, render")
    (shown,) = re.findall(r"^```\n(✗.*?)^```", text, flags=re.S | re.M)
    path = written(tmp_path, ("1: 4300Mi", "1: 4400Mi"))
    done = run_node_types(path, "check", "p")
    assert (done.stdout, done.returncode) == (shown, 1)
    assert run_node_types(written(tmp_path), "check").returncode == 0


def test_render_output_is_as_the_page_shows_it(tmp_path: Path) -> None:
    text = section(PAGE, "Check, list, render")
    (shown,) = re.findall(r"^```yaml\n(.*?)^```", text, flags=re.S | re.M)
    assert run_node_types(written(tmp_path), "render", "s").stdout == shown
    forms = [row[0].strip("`") for row in rows(text)]
    for form in forms:
        done = run_node_types(written(tmp_path), "render", "p", "--format", form)
        assert done.returncode == 0
        is_warned = "has no threshold for nodefs and imagefs any more" in done.stderr
        assert is_warned == (form != "dropin")


def test_documented_kubelet_surprises_are_real() -> None:
    text = section(PAGE, "The sum that stops the boot")
    for spelling in ("1.5Gi", "100Ti", "102400Gi", "104857600Mi"):
        assert spelling in text and not holds_int64(spelling)
    for spelling in ("1536Mi", "109951162777600"):
        assert spelling in text and holds_int64(spelling)
    five = eviction_amount("5%", 64 * 2**30)
    assert five == 3435973888 and str(five) in text
    assert five - int(64 * 2**30 * 5 / 100) == 52
