"""One process told from a later one of the same number."""

from __future__ import annotations

import os

from dnm.converter.processes import process_of, still_running
from dnm.model.registry import ConverterProcess


def test_a_later_process_of_the_same_number_is_not_ours() -> None:
    own = process_of(os.getpid())
    assert own is not None and still_running([own]) == {own}
    assert not still_running([ConverterProcess(pid=own.pid, start_ticks=own.start_ticks - 1)])
