"""Calls of `--reserve` and `--unreserve`. A run waits for them, since they only call Slurm."""

from __future__ import annotations

from collections.abc import Sequence

from dnm.converter.contract import NODE_NAME, Environment
from dnm.host.fault_points import fault_point
from dnm.host.programs import TimeoutExpired, run_bounded
from dnm.host.trust import check_trust
from dnm.model.config import Config
from dnm.model.errors import ConverterError
from dnm.model.printable import printable

_TIMEOUT = 120.0  # seconds: a refusal takes milliseconds, and there may be a thousand
_LIMIT = 1024 * 1024  # bytes
_SUCCESS_CODES = (0, 1)


def run_reserving(config: Config, env: Environment, command: Sequence[str]) -> tuple[str, ...]:
    """Runs `--reserve` or `--unreserve` and returns the nodes that it has reserved or released.
    Raises ConverterError; only the next `--list` then shows what is reserved."""
    shown = f"{config.node_convert_path} {command[1]}"
    try:
        check_trust(config.node_convert_path, ConverterError)
        with fault_point("converter.reserve"):
            answer = run_bounded(command, env.environment, _TIMEOUT, _LIMIT)
    except TimeoutExpired as error:
        raise ConverterError(f"{shown}: no answer in {_TIMEOUT:.0f} s") from error
    except OSError as error:
        raise ConverterError(f"{shown} can't be run: {error.strerror}") from error
    errors = printable(env.secrets.hide(answer.stderr.decode("utf-8", "replace").strip()), 300)
    if answer.returncode not in _SUCCESS_CODES or errors:
        raise ConverterError(f"{shown}: exit {answer.returncode} {errors}".rstrip())
    names = answer.stdout.decode("utf-8", "replace").split()
    return tuple(name for name in names if NODE_NAME.fullmatch(name))
