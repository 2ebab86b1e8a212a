"""The converter as a run uses it: list nodes, start conversions, wait for them."""

from __future__ import annotations

import os
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cached_property, partial
from pathlib import Path

import msgspec

from dnm.converter.contract import REQUEST, WAKE, Environment, converter_env
from dnm.converter.ending import end_started
from dnm.converter.node_list import list_batch_nodes
from dnm.converter.output import ConverterOutput
from dnm.converter.processes import Started, is_alive, started_at
from dnm.converter.reservations import run_reserving
from dnm.converter.start import ConverterCall, ConverterPatience, run_converters
from dnm.host.fault_points import fault_point
from dnm.model.batch import BatchList
from dnm.model.config import Config
from dnm.model.lent import Ended
from dnm.model.lent_state import ConverterProcess
from dnm.model.value import Unreadable


class NodeConvert:
    """The interface of a run to the converter. A key identifies each call, also in later runs."""

    def __init__(self, config: Config, environ: Mapping[str, str]) -> None:
        self.config = config
        self.environ = environ
        self.directory = config.converted_nodes_path.parent / "converter"
        self.calls: dict[str, ConverterCall] = {}

    @cached_property
    def env(self) -> Environment:
        """Returns the environment of every call. It is computed only if a call needs it."""
        return converter_env(self.config, self.environ)

    def list_nodes(self, node: str = "") -> BatchList | Unreadable:
        """Returns the batch nodes and the waiting jobs that the converter lists."""
        return list_batch_nodes(self.config, self.env, node)

    def reserve(self, command: Sequence[str]) -> tuple[str, ...]:
        """Runs `--reserve` or `--unreserve`; returns the printed nodes. Raises ConverterError."""
        return run_reserving(self.config, self.env, command)

    def still_running(self, processes: Iterable[ConverterProcess]) -> frozenset[ConverterProcess]:
        """Returns those of `processes` that run or are the ended parent of a running converter."""
        expected = frozenset(processes)
        if not expected:
            return expected
        alive = {start.keeper for start in self._started() if start.is_alive}
        return frozenset(
            converter_process
            for converter_process in expected
            if converter_process in alive or is_alive(converter_process)
        )

    def find(self, key: str) -> ConverterProcess | None:
        """Returns the keeper, the converter's parent, of the call with this key, or None."""
        return started_at(self.directory / key).keeper

    def start(
        self, key: str, command: Sequence[str], until: float | None = None
    ) -> ConverterProcess:
        """Starts a converter under this key. Raises ConverterError. The converter refuses to begin
        after `until`, in seconds since boot, because another host may then act for the instance."""
        variables = {**self.env.environment, REQUEST: key, WAKE: str(self.config.trigger_path)}
        env = msgspec.structs.replace(self.env, environment=variables)
        call = ConverterCall(key, command, env, self.directory, until)
        self.calls[key] = call
        return call.process

    def end(self, process: ConverterProcess) -> bool:
        """Sends TERM to a converter of an earlier run and its children, and KILL some seconds
        later. Returns whether it has ended."""
        matching = (start for start in self._started() if start.keeper == process)
        return end_started(next(matching, Started(keeper=process)))

    def listen(
        self, on_line: Callable[[str, str], None], should_leave: Callable[[], bool]
    ) -> dict[str, Ended]:
        """Waits for the started converters and returns by key how each ended. Stops after half a
        check interval, so that other queues need not wait; the next run finds slow converters."""
        waits = ConverterPatience(
            timeout=self.config.convert_timeout,
            patience=self.config.check_interval / 2,
            grace=self.config.shutdown_grace,
        )
        return run_converters(self.calls, waits, on_line, should_leave)

    def read_earlier_output(self, on_line: Callable[[str, str], None]) -> None:
        """Calls `on_line` with key and line for each new line of converters of earlier runs."""
        for key in self._keys():
            try:
                with fault_point("converter.read_output"):
                    output = ConverterOutput(self.directory / key, self.env.secrets, os.O_RDWR)
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
        """Returns the converter processes that have a `.process` file, of this and earlier runs."""
        return [started_at(self.directory / key) for key in self._keys()]

    def _keys(self) -> list[str]:
        try:
            with fault_point("converter.read_output"):
                return sorted(path.stem for path in self.directory.glob("*.process"))
        except OSError:
            return []

    def read_end(self, key: str) -> Ended:
        """Returns how a converter of an earlier run ended, from its output files."""
        try:
            with fault_point("converter.read_output"):
                output = ConverterOutput(self.directory / key, self.env.secrets)
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
        """Removes the output files of all calls, except those with a key in `kept`. A file that
        can't be removed does no harm."""
        with suppress(OSError):
            for path in self.directory.iterdir():
                if _key_of(path) not in kept:
                    with fault_point("converter.forget_output"):
                        path.unlink(missing_ok=True)


def _key_of(path: Path) -> str:
    """Returns the key of the call that owns a file, even of an incomplete file (`KEY.exit.new`)."""
    return Path(path.name.removesuffix(".new")).stem
