"""The cost of a command to an API server, by the server's metrics and the kernel's counts."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path

from tests.real.rig import Rig

_SAMPLE = re.compile(r"^(\w+)\{([^}]*)\} (\S+)$", re.MULTILINE)
_SCHEMA = 'flow_schema="service-accounts"'
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class ServerCost:
    """The cost of a command: requests of dnm's account and the sum of their seats (priority and
    fairness); CPU seconds of the server process, and the highest growth of its resident memory."""

    requests: float = 0
    seats: float = 0
    cpu: float = 0
    memory: float = 0

    def since(self, before: ServerCost) -> ServerCost:
        return ServerCost(*(getattr(self, field.name) - getattr(before, field.name)
                            for field in fields(self)))  # fmt: skip


class Meter:
    """A measurement of one API server. No other client may use dnm's account meanwhile."""

    def __init__(self, rig: Rig) -> None:
        process = rig.servers["kube-apiserver"].process
        assert process is not None
        self._rig, self._proc = rig, Path(f"/proc/{process.pid}")

    def begin(self) -> ServerCost:
        """Returns the counters at this moment, and resets the highest memory."""
        (self._proc / "clear_refs").write_text("5")
        return self.read()

    def read(self) -> ServerCost:
        samples = _read_samples(self._rig.api.ask("GET", "/metrics").decode())
        estimated = "apiserver_flowcontrol_work_estimated_seats"
        numbers = (self._proc / "stat").read_text().rpartition(")")[2].split()
        return ServerCost(
            requests=_total(samples, f"{estimated}_count", _SCHEMA),
            seats=_total(samples, f"{estimated}_sum", _SCHEMA),
            cpu=(int(numbers[11]) + int(numbers[12])) / _TICKS,
            memory=_highest(self._proc),
        )


Samples = Mapping[str, list[tuple[str, float]]]


def _read_samples(text: str) -> Samples:
    results: dict[str, list[tuple[str, float]]] = {}
    for name, labels, value in _SAMPLE.findall(text):
        if "flowcontrol" in name:
            results.setdefault(name, []).append((labels, float(value)))
    return results


def _total(samples: Samples, name: str, *labels: str) -> float:
    """Returns the sum of a metric over all samples with these labels; the metric must exist."""
    assert name in samples, f"this API server has no metric {name}"
    return sum(
        value for settings, value in samples[name] if all(label in settings for label in labels)
    )


def _highest(process: Path) -> float:
    status = (process / "status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) * 1024
