"""The writing of the metrics of a run to a file, for a monitor. No run reads them. A failed write
is logged and stops nothing, and an alert notices the old file."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path

from dnm.host.trust import FileMode, read_regular, replace_file
from dnm.model.config import Config
from dnm.model.registry import Registry, RunRecord
from dnm.plan.cap_shares import resolve_recorded_shares
from dnm.plan.counting import count_missing_nodes
from dnm.record.metrics import Family, Gauges, RunTimes, format_families, make_families
from dnm.run.recorded import read_last_run
from dnm.sizing.caps import count_caps, lent_in

log = logging.getLogger("dnm")

# The metrics of a run that could not read its registry.
_OF_A_RUN = ("dnm_build_info", "dnm_last_run_timestamp_seconds", "dnm_last_run_exit_code",
             "dnm_last_success_timestamp_seconds")  # fmt: skip
_SUCCESS = re.compile(r"(?m)^dnm_last_success_timestamp_seconds(?:\{.*\})? (\d{1,11}(\.\d*)?)$")


def metrics_text(config: Config, registry: Registry, now: datetime, times: RunTimes) -> str:
    """Returns all of dnm's metrics at the time `now`, in Prometheus' text format."""
    return format_families(make_families(_facts(config, registry, now, times)))


def recorded_times(config: Config, registry: Registry) -> RunTimes:
    """Returns when the last run began, ended and succeeded, as files and registry record it."""
    last, run = read_last_run(config), registry.last_run
    succeeded = last.ended if run.has_succeeded else run.succeeded_at
    return RunTimes(began=last.began, ended=last.ended, succeeded=succeeded)


def publish_run(config: Config, registry: Registry, times: RunTimes) -> None:
    """Writes the metrics of a run that has ended."""
    if times.ended is not None:
        _write(config, make_families(_facts(config, registry, times.ended, times)))


def publish_failure(config: Config, exit_code: int, began: datetime) -> None:
    """Writes the metrics of a run that could not begin. Keeps the time of the last success."""
    if config.metrics_file is None:
        return
    match = _SUCCESS.search(read_textfile(config.metrics_file))
    succeeded = datetime.fromtimestamp(float(match[1]), UTC) if match else None
    registry = Registry(last_run=RunRecord(exit_code=exit_code))
    times = RunTimes(began=began, succeeded=succeeded)
    families = make_families(_facts(config, registry, began, times))
    _write(config, (family for family in families if family.name in _OF_A_RUN))


def _facts(config: Config, registry: Registry, now: datetime, times: RunTimes) -> Gauges:
    from importlib.metadata import version

    caps = count_caps(resolve_recorded_shares(config, registry), lent_in(registry))
    return Gauges(
        config=config,
        registry=registry,
        now=now,
        times=times,
        missing=count_missing_nodes(config, registry, now),
        caps={cap.cap: (cap.lent, cap.max) for cap in caps},
        version=version("dnm"),
    )


def _write(config: Config, families: Iterable[Family]) -> None:
    assert config.metrics_file is not None
    try:
        write_textfile(config.metrics_file, format_families(families))
    except OSError as error:
        log.error(
            "error=%r",
            f"the metrics file {config.metrics_file} can't be written "
            f"({error.strerror or error}): fix its directory, or unset metrics_file",
        )


def write_textfile(path: Path, text: str) -> None:
    """Replaces the file, which all users may read. Raises OSError; the old file is intact then. It
    is not synced, since the next run writes it again. Two processes may write at the same time."""
    mode, ending = FileMode(mode=0o644), str(os.getpid())
    replace_file(path, [text.encode()], "metrics", mode, is_durable=False, ending=ending)


def read_textfile(path: Path) -> str:
    """Returns the content of the file, or an empty text if it cannot be read."""
    try:
        return read_regular(path, 1 << 20).decode(errors="replace")
    except OSError:
        return ""
