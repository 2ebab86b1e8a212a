"""Metrics as text, in Prometheus' format 0.0.4. Pure.

By hand, since loading a library for it takes longer than `dnm status` in all.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum

from dnm.model.history import BOUNDS, Durations
from dnm.model.printable import printable
from dnm.model.value import Value


class MetricType(Enum):
    GAUGE = "gauge"
    COUNTER = "counter"
    HISTOGRAM = "histogram"


class Sample(Value):
    """One value of a metric, by its labels; `suffix` of a histogram's parts."""

    value: float
    labels: Mapping[str, str] = {}
    suffix: str = ""


class Family(Value):
    """One metric: name, type, what it means, and its samples."""

    name: str
    type: MetricType
    help: str
    samples: tuple[Sample, ...] = ()


def format_families(families: Iterable[Family]) -> str:
    """Returns the text of all that have samples."""
    lines: list[str] = []
    for family in families:
        if family.samples:
            lines.append(f"# HELP {family.name} {_escaped(family.help)}")
            lines.append(f"# TYPE {family.name} {family.type.value}")
            lines += [_sample_line(family.name, sample) for sample in family.samples]
    return "".join(f"{line}\n" for line in lines)


def histogram_samples(durations: Durations, labels: Mapping[str, str]) -> list[Sample]:
    """Returns the buckets, the sum and the count of one histogram."""
    bounds = [str(bound) for bound in BOUNDS]
    buckets = [
        Sample(value=count, labels={**labels, "le": bound}, suffix="_bucket")
        for bound, count in zip(bounds, durations.counts, strict=True)
    ]
    every = Sample(value=durations.number, labels={**labels, "le": "+Inf"}, suffix="_bucket")
    total = Sample(value=durations.total, labels=labels, suffix="_sum")
    return [*buckets, every, total, Sample(value=durations.number, labels=labels, suffix="_count")]


def _sample_line(name: str, sample: Sample) -> str:
    labels = ",".join(f'{key}="{_quoted(text)}"' for key, text in sample.labels.items())
    return f"{name}{sample.suffix}{f'{{{labels}}}' if labels else ''} {_number(sample.value)}"


def _number(value: float) -> str:
    return str(int(value)) if float(value).is_integer() else repr(round(value, 6))


def _escaped(text: str) -> str:
    return "\\n".join(map(printable, text.replace("\\", "\\\\").split("\n")))


def _quoted(text: str) -> str:
    return _escaped(text).replace('"', '\\"')
