"""Tests that dnm distinguishes a process from a later one with the same process id."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
import pytest

from dnm.converter.output import ConverterOutput
from dnm.converter.processes import Started, is_alive, process_of, started_at
from dnm.model.blackout import Secrets
from dnm.model.lent_state import ConverterProcess


def test_later_process_with_the_same_number_differs() -> None:
    own = process_of(os.getpid())
    assert own is not None and is_alive(own)
    assert not is_alive(ConverterProcess(pid=own.pid, start_ticks=own.start_ticks - 1))


def test_process_of_an_earlier_boot_differs() -> None:
    """Ids and start times may repeat after a boot, so dnm compares the boot id too."""
    own = process_of(os.getpid())
    assert own is not None and own.boot
    before = msgspec.structs.replace(own, boot="00000000-0000-0000-0000-000000000000")
    assert not is_alive(before) and not is_alive(before)
    unknown = msgspec.structs.replace(own, boot="")  # written by a dnm that did not know boots
    assert is_alive(unknown)


@pytest.mark.parametrize("content", [b"", b"{", b"[" * 4000, bytes(100), b'{"host":"\xff"}'])
def test_damaged_process_file_is_ignored(content: bytes, tmp_path: Path) -> None:
    for end in ("process", "converter", "heard", "out", "err"):
        (tmp_path / f"key.{end}").write_bytes(content)
    assert started_at(tmp_path / "key") == Started()
    output = ConverterOutput(tmp_path / "key", Secrets([]))
    output.load_position()
    assert [tail.at for tail in output.tails] == [0, 0]
