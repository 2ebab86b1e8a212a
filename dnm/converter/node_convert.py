"""The site's converter as one run uses it: asked for its list, started, waited for."""

from __future__ import annotations

import os
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cached_property, partial
from pathlib import Path

import msgspec

from dnm.converter.bookings import run_booking
from dnm.converter.contract import REQUEST, WAKE, Environment, given_to_converter
from dnm.converter.ending import end_started
from dnm.converter.node_list import list_batch_nodes
from dnm.converter.output import ConverterOutput
from dnm.converter.processes import Started, is_alive, started_at
from dnm.converter.start import ConverterCall, Waits, run_converters
from dnm.host.fault_points import fault_point
from dnm.model.batch import BatchList
from dnm.model.config import Config
from dnm.model.lent import ConverterProcess, Ended
from dnm.model.value import Unreadable


class NodeConvert:
    """The converter edge of a run. Each call has a key, by which later runs find it."""

    def __init__(self, config: Config, environ: Mapping[str, str]) -> None:
        self.config = config
        self.environ = environ
        self.directory = config.converted_nodes_path.parent / "converter"
        self.calls: dict[str, ConverterCall] = {}

    @cached_property
    def given(self) -> Environment:
        """What every call is given; most runs call nobody."""
        return given_to_converter(self.config, self.environ)

    def list_nodes(self, node: str = "") -> BatchList | Unreadable:
        """The batch nodes that the converter tells of, and what jobs wait for if it says so."""
        return list_batch_nodes(self.config, self.given, node)

    def book(self, command: Sequence[str]) -> tuple[str, ...]:
        """Has nodes reserved, or given up; returns which. Raises ConverterError."""
        return run_booking(self.config, self.given, command)

    def still_running(self, processes: Iterable[ConverterProcess]) -> frozenset[ConverterProcess]:
        """Those whose keeper or whose converter has not ended."""
        wanted = frozenset(processes)
        if not wanted:
            return wanted
        alive = {one.keeper for one in self._started() if one.is_alive}
        return frozenset(one for one in wanted if one in alive or is_alive(one))

    def find(self, key: str) -> ConverterProcess | None:
        """The process that was started under a key, by whichever run."""
        return started_at(self.directory / key).keeper

    def start(
        self, key: str, command: Sequence[str], until: float | None = None
    ) -> ConverterProcess:
        """Starts it under a key of the caller's; raises ConverterError. After `until`, in seconds
        since the boot, it does not begin: another host may act by then."""
        told = {**self.given.environment, REQUEST: key, WAKE: str(self.config.wake_path)}
        given = msgspec.structs.replace(self.given, environment=told)
        call = ConverterCall(key, command, given, self.directory, until)
        self.calls[key] = call
        return call.process

    def end(self, process: ConverterProcess) -> bool:
        """TERM for one of an earlier run and its children, KILL some seconds later; whether it has
        ended."""
        known = (one for one in self._started() if one.keeper == process)
        return end_started(next(known, Started(keeper=process)))

    def listen(
        self, on_line: Callable[[str, str], None], should_leave: Callable[[], bool]
    ) -> dict[str, Ended]:
        """Waits for all that were started, by key, and leaves those at work that take longer than
        half an interval: other queues are waiting, and the next run finds them again."""
        waits = Waits(
            timeout=self.config.convert_timeout,
            patience=self.config.check_interval / 2,
            grace=self.config.shutdown_grace,
        )
        return run_converters(self.calls, waits, on_line, should_leave)

    def read_earlier_output(self, on_line: Callable[[str, str], None]) -> None:
        """Passes on what converters of earlier runs have printed since, by key."""
        for key in self._keys():
            try:
                with fault_point("converter.read_output"):
                    output = ConverterOutput(self.directory / key, self.given.secrets, os.O_RDWR)
            except OSError as error:
                on_line(key, f"its output can't be read: {error.strerror}")
                continue
            output.load_position()
            before = [tail.at for tail in output.tails]
            has_ended = not started_at(self.directory / key).is_alive
            output.read_new(partial(on_line, key), is_last=has_ended)
            if [tail.at for tail in output.tails] != before:
                output.save_position()

    def _started(self) -> list[Started]:
        """What was started under each key, as it is written down now."""
        return [started_at(self.directory / key) for key in self._keys()]

    def _keys(self) -> list[str]:
        try:
            with fault_point("converter.read_output"):
                return sorted(path.stem for path in self.directory.glob("*.process"))
        except OSError:
            return []

    def read_end(self, key: str) -> Ended:
        """How one of an earlier run has ended, as far as it was written down."""
        try:
            with fault_point("converter.read_output"):
                output = ConverterOutput(self.directory / key, self.given.secrets)
        except OSError:
            return Ended()
        output.read_new(lambda line: None, is_last=True)
        return Ended(
            exit_code=output.read_exit_code(),
            names=tuple(output.names),
            last_lines=tuple(output.last_lines),
            failures=output.failures,
        )

    def forget_output(self, kept: Container[str]) -> None:
        """Removes the output of converters that nobody waits for any more; what can't be removed
        now is in nobody's way."""
        with suppress(OSError):
            for path in self.directory.iterdir():
                if _key_of(path) not in kept:
                    with fault_point("converter.forget_output"):
                        path.unlink(missing_ok=True)


def _key_of(path: Path) -> str:
    """The key of a call's file, also of one that its keeper is just writing (`KEY.exit.new`)."""
    return Path(path.name.removesuffix(".new")).stem
