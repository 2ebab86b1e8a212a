"""`batch_pressure_command`: what jobs wait for, of a site whose converter does not say it.

It prints one JSON object, `{"waiting_jobs": [{"partition": "main", "node_type": "a", "jobs": 3,
"nodes": 12, "since": "2026-03-02T12:00:00Z"}]}`, as the shipped converter's list has it.
"""

from __future__ import annotations

import msgspec

from dnm.converter.contract import Given
from dnm.converter.node_list import ListedJobs, waiting_jobs
from dnm.model.bounded import TimeoutExpired, run_bounded
from dnm.model.cluster import WaitingJobs
from dnm.model.config import Config
from dnm.model.errors import ConverterError
from dnm.model.fault_points import fault_point
from dnm.model.printable import printable
from dnm.model.trust import check_trust
from dnm.model.value import Unreadable

_TIMEOUT = 60.0  # seconds
_LIMIT = 1024 * 1024  # bytes


class _Pressure(msgspec.Struct):
    waiting_jobs: list[ListedJobs]


def ask_for_pressure(config: Config, given: Given) -> tuple[WaitingJobs, ...] | Unreadable | None:
    """Returns what the site's command prints; None: there is no such command."""
    program = config.batch_pressure_command
    if program is None:
        return None
    what = f"batch_pressure_command {program}"
    try:
        check_trust(program, ConverterError)
        with fault_point("converter.pressure"):
            answer = run_bounded([str(program)], given.environment, _TIMEOUT, _LIMIT)
        listed = msgspec.json.decode(answer.stdout, type=_Pressure)
    except TimeoutExpired:
        return Unreadable(what=what, error=f"{what}: no answer in {_TIMEOUT:.0f} s")
    except ConverterError as error:
        return Unreadable(what=what, error=str(error))
    except OSError as error:
        return Unreadable(what=what, error=f"{what} can't be run: {error.strerror}")
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        why = given.secrets.hide(printable(str(error)))
        text = f"{what}: exit {answer.returncode}, and its output is no list of waiting jobs: {why}"
        return Unreadable(what=what, error=text)
    if answer.returncode:
        return Unreadable(what=what, error=f"{what}: exit {answer.returncode}")
    return waiting_jobs(listed.waiting_jobs)
