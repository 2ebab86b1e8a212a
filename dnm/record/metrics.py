"""The metrics of dnm: names, meanings and current values. Pure.

Each value is computed from registry and configuration, so that a run and `dnm status` agree. No
label is a node's name, so the number of series stays bounded. Amounts are in base units: cores,
bytes, seconds. The text is Prometheus' format 0.0.4. dnm formats it itself, since loading a library
takes longer than `dnm status`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime

from dnm.model.cluster import Reading
from dnm.model.config import Config
from dnm.model.history import BOUNDS, Durations, Memory
from dnm.model.lent import Phase
from dnm.model.printable import printable
from dnm.model.registry import QueueStatus, Registry
from dnm.model.value import Resources, Value
from dnm.record.totals import serves_since

GAUGE, COUNTER, HISTOGRAM = "gauge", "counter", "histogram"


class Sample(Value):
    """A value of a metric, with its labels. `suffix` is the part of a histogram, e.g. `_sum`."""

    value: float
    labels: Mapping[str, str] = {}
    suffix: str = ""


class Family(Value):
    """A metric: its name, type, meaning and samples."""

    name: str
    type: str
    help: str
    samples: tuple[Sample, ...] = ()


class RunTimes(Value):
    """The times when the last run began and ended, and when one last succeeded. Only the run itself
    adds the seconds of each of its parts."""

    began: datetime | None = None
    ended: datetime | None = None
    succeeded: datetime | None = None
    parts: Mapping[str, float] = {}
    reading: Reading | None = None


class Gauges(Value):
    """The facts from which the metrics are computed. `caps` maps a scope (`all`, `type a`,
    `namespace dev`) to the number of nodes that count under the cap, and to the cap."""

    config: Config
    registry: Registry
    now: datetime
    times: RunTimes
    caps: Mapping[str, tuple[int, int]] = {}
    missing: Mapping[tuple[str, str], int] = {}  # by queue and cause (floor, order)
    version: str = ""


Samples = Iterator[Sample]


def _of_queues(facts: Gauges, amounts: Callable[[QueueStatus], Resources]) -> Samples:
    """Yields a sample for each queue and resource, 0 for a limited resource without an amount."""
    for queue, status in sorted(facts.registry.last_run.queues.items()):
        for resource, amount in sorted(
            {**dict.fromkeys(status.limit, 0), **amounts(status)}.items()
        ):
            yield Sample(
                value=amount / 1000 if resource == "cpu" else amount,
                labels={"queue": queue, "resource": resource},
            )


def _single(value: float, **labels: str) -> Samples:
    yield Sample(value=int(value), labels=labels)


def _moment(moment: datetime | None) -> Samples:
    if moment is not None:
        yield Sample(value=moment.timestamp())


def _duration(facts: Gauges) -> Samples:
    began, ended = facts.times.began, facts.times.ended
    if began is not None and ended is not None and ended >= began:
        yield Sample(value=(ended - began).total_seconds())


def _parts(facts: Gauges) -> Samples:
    for part, seconds in facts.times.parts.items():
        yield Sample(value=seconds, labels={"part": part})


def _of_reading(facts: Gauges, number: Callable[[Reading], float]) -> Samples:
    if facts.times.reading is not None:
        yield Sample(value=number(facts.times.reading))


def _reading(facts: Gauges) -> Samples:
    reading = facts.times.reading
    if reading is not None:
        labels = {"way": reading.way, "reason": reading.reason, "compared": reading.compared}
        yield Sample(value=1, labels=labels)


def _nodes(facts: Gauges) -> Samples:
    """Yields how many nodes are in each phase, by node type and queue. Zeros are included, so that
    alerts always have a series."""
    counts: Counter[tuple[str, str, str]] = Counter()
    for entry in facts.registry.nodes.values():
        counts[entry.phase.value, entry.node_type, entry.queue] += 1
    for request in facts.registry.requests:
        if not request.is_abandoned:
            counts["requested", request.node_type, request.queue] += request.count
    for policy in facts.config.namespaces.values():
        for node_type in policy.node_types:
            for phase in ("requested", *(phase.value for phase in Phase)):
                counts.setdefault((phase, node_type, policy.queue), 0)
    for (phase, node_type, queue), count in sorted(counts.items()):
        labels = {"phase": phase, "type": node_type, "queue": queue}
        yield Sample(value=count, labels=labels)


def _claimed(facts: Gauges) -> Samples:
    """Yields, by node type, the number of nodes that are claimed in Slurm for dnm but not lent."""
    return _by_type(facts, Counter(claim.node_type for claim in facts.registry.claimed.values()))


def _oldest(facts: Gauges) -> Samples:
    oldest: dict[str, datetime] = {}
    for entry in facts.registry.nodes.values():
        phase = entry.phase.value
        oldest[phase] = min(entry.since, oldest.get(phase, entry.since))
    for request in facts.registry.requests:
        oldest["requested"] = min(request.since, oldest.get("requested", request.since))
    for phase, since in sorted(oldest.items()):
        age = max((facts.now - since).total_seconds(), 0.0)
        yield Sample(value=age, labels={"phase": phase})


def _deadlines(facts: Gauges) -> Samples:
    config = facts.config
    deadline = {
        "requested": config.convert_timeout + config.join_timeout,
        "joining": config.join_timeout,
        "releasing": config.join_timeout,
        "moving": 2 * config.join_timeout,
        "returning": config.convert_timeout + config.join_timeout,
    }
    for phase, span in deadline.items():
        yield Sample(value=span.total_seconds(), labels={"phase": phase})


def _verdicts(facts: Gauges) -> Samples:
    for queue, status in sorted(facts.registry.last_run.queues.items()):
        if status.verdict:
            labels = {"queue": queue, "verdict": status.verdict, "reason": status.code}
            yield Sample(value=1, labels=labels)


def _pending_pods(facts: Gauges) -> Samples:
    for queue, status in sorted(facts.registry.last_run.queues.items()):
        yield Sample(value=status.pending_pods, labels={"queue": queue})


def _oldest_pending(facts: Gauges) -> Samples:
    for queue, status in sorted(facts.registry.last_run.queues.items()):
        if status.waits_since:
            since = datetime.fromisoformat(status.waits_since)
            yield Sample(value=since.timestamp(), labels={"queue": queue})


def _missing(facts: Gauges) -> Samples:
    for queue in facts.config.queues:
        for by in ("floor", "order"):
            missing = facts.missing.get((queue, by), 0)
            yield Sample(value=missing, labels={"queue": queue, "by": by})


def _caps(facts: Gauges, number: Callable[[int, int], int]) -> Samples:
    for scope, (lent, most) in facts.caps.items():
        yield Sample(value=number(lent, most), labels={"scope": scope})


def _by_type(facts: Gauges, counts: Mapping[str, int]) -> Samples:
    """Yields the count of each configured node type, 0 if it has none."""
    for node_type in sorted({*facts.config.node_types, *counts}):
        yield Sample(value=counts.get(node_type, 0), labels={"type": node_type})


def _results(facts: Gauges, counts: Mapping[str, Mapping[str, int]], went_well: str) -> Samples:
    for result in (went_well, "failed"):
        by_type = {node_type: of.get(result, 0) for node_type, of in counts.items()}
        for sample in _by_type(facts, by_type):
            yield Sample(value=sample.value, labels={**sample.labels, "result": result})


def _lent_seconds(facts: Gauges) -> Samples:
    """Yields the seconds for which nodes were lent, by queue and type, with those lent now."""
    memory: Memory = facts.registry.memory
    seconds = {
        (queue, node_type): spent
        for queue, types in memory.totals.lent_seconds.items()
        for node_type, spent in types.items()
    }
    for name, entry in facts.registry.nodes.items():
        lent = memory.lent.get(name)
        key = (entry.queue, entry.node_type)
        since = serves_since(lent, entry) if lent else facts.now
        spent = max((facts.now - since).total_seconds(), 0.0)
        seconds[key] = seconds.get(key, 0.0) + spent
    for (queue, node_type), spent in sorted(seconds.items()):
        yield Sample(value=spent, labels={"queue": queue, "type": node_type})


def _durations(facts: Gauges) -> Samples:
    for node_type, durations in sorted(facts.registry.memory.totals.conversion_seconds.items()):
        yield from histogram_samples(durations, {"type": node_type})


def _steps(facts: Gauges) -> Samples:
    for node_type, steps in sorted(facts.registry.memory.totals.step_seconds.items()):
        for step, durations in sorted(steps.items()):
            yield from histogram_samples(durations, {"type": node_type, "step": step})


def _breakers(facts: Gauges) -> Samples:
    for queue in facts.config.queues:
        breaker = facts.registry.breakers.get(queue)
        is_open = breaker is not None and breaker.tripped_at is not None
        yield Sample(value=int(is_open), labels={"queue": queue})


def _backoffs(facts: Gauges) -> Samples:
    for name in sorted(facts.config.node_types):
        backoff = facts.registry.backoffs.get(name)
        left = (backoff.until - facts.now).total_seconds() if backoff else 0.0
        yield Sample(value=max(left, 0.0), labels={"type": name})


def _paused_since(facts: Gauges) -> Samples:
    pause = facts.registry.pause
    if pause is not None and facts.registry.paused(facts.now):
        yield from _moment(pause.since)


def _resets(facts: Gauges) -> Samples:
    resets = facts.registry.last_run.resets
    return _single(resets.count if resets and resets.is_repeated(facts.now) else 0)


_Make = Callable[[Gauges], Samples]

TABLE: tuple[tuple[str, str, str, _Make], ...] = (
    ("dnm_build_info", GAUGE, "The release of dnm, as a label.",
     lambda facts: _single(1, version=facts.version)),
    ("dnm_last_run_timestamp_seconds", GAUGE, "When the last run began.",
     lambda facts: _moment(facts.times.began)),
    ("dnm_last_success_timestamp_seconds", GAUGE, 
     "When the last successful run ended; failed nodes do not make a run unsuccessful.",
     lambda facts: _moment(facts.times.succeeded)),
    ("dnm_last_run_duration_seconds", GAUGE, "How long the last run took.", _duration),
    ("dnm_last_run_part_seconds", GAUGE,
     "How long each part of the last run took; in the file alone.", _parts),
    ("dnm_last_run_reading_info", GAUGE,
     "How the last run read pods and nodes, why so, and what a comparison showed; in the file "
     "alone.", _reading),
    ("dnm_last_run_changes", GAUGE,
     "Pods and nodes that a watch reported to the last run; in the file alone.",
     lambda facts: _of_reading(facts, lambda reading: reading.changes)),
    ("dnm_last_run_watch_wait_seconds", GAUGE,
     "How long the last run waited for the end of the server's changes; in the file alone.",
     lambda facts: _of_reading(facts, lambda reading: reading.waited)),
    ("dnm_last_run_exit_code", GAUGE, "Exit code of the last run.",
     lambda facts: _single(facts.registry.last_run.exit_code)),
    ("dnm_nodes", GAUGE, "Lent nodes by phase; requested: not joined yet.", _nodes),
    ("dnm_claimed_nodes", GAUGE, "Nodes that are claimed in Slurm for dnm and not lent.",
     _claimed),
    ("dnm_phase_oldest_seconds", GAUGE, "How long the oldest node of a phase is in it.",
     _oldest),
    ("dnm_phase_deadline_seconds", GAUGE, "How long a node may stay in a transient phase.",
     _deadlines),
    ("dnm_cap_nodes", GAUGE, "How many nodes a cap allows; a percentage of those last read.",
     lambda facts: _caps(facts, lambda lent, most: most)),
    ("dnm_cap_used_nodes", GAUGE, "How many nodes under a cap are lent or joining.",
     lambda facts: _caps(facts, lambda lent, most: lent)),
    ("dnm_queue_limit", GAUGE, "A queue's limit, in cores, bytes or pieces.",
     lambda facts: _of_queues(facts, lambda status: status.limit)),
    ("dnm_queue_baseline", GAUGE, "The limit without what dnm added.",
     lambda facts: _of_queues(facts, lambda status: status.baseline)),
    ("dnm_queue_lent", GAUGE, "Amount that dnm added to the limit.",
     lambda facts: _of_queues(facts, lambda status: status.lent)),
    ("dnm_queue_used", GAUGE, "Requests of the queue's bound pods.",
     lambda facts: _of_queues(facts, lambda status: status.used)),
    ("dnm_queue_pending", GAUGE, "Requests of its pending pods that count.",
     lambda facts: _of_queues(facts, lambda status: status.pending)),
    ("dnm_queue_pending_pods", GAUGE, "Its pending pods that count.", _pending_pods),
    ("dnm_queue_oldest_pending_timestamp_seconds", GAUGE,
     "When its oldest pending pod was created.", _oldest_pending),
    ("dnm_missing_nodes", GAUGE,
     "Nodes of orders, or of min_nodes and events (floor), that are neither present nor joining.",
     _missing),
    ("dnm_queue_verdict_info", GAUGE, "Decision for a queue, and its reason.", _verdicts),
    ("dnm_conversions_total", COUNTER, "Requested nodes, by result.",
     lambda facts: _results(facts, facts.registry.memory.totals.conversions, "joined")),
    ("dnm_reversions_total", COUNTER, "Returns of nodes, by result.",
     lambda facts: _results(facts, facts.registry.memory.totals.reversions, "returned")),
    ("dnm_moves_total", COUNTER, "Nodes that changed their queue without a reboot.",
     lambda facts: _by_type(facts, facts.registry.memory.totals.moves)),
    ("dnm_conversion_duration_seconds", HISTOGRAM, "From the request for a node until it serves.",
     _durations),
    ("dnm_opening_duration_seconds", HISTOGRAM,
     "Time of each readiness step of a node type (readiness_checks).", _steps),
    ("dnm_node_seconds_lent_total", COUNTER, "Time for which nodes were lent.", _lent_seconds),
    ("dnm_breaker_open", GAUGE, "1 while the breaker of a queue is open.", _breakers),
    ("dnm_backoff_seconds", GAUGE, "Remaining back-off of a node type.", _backoffs),
    ("dnm_paused", GAUGE, "1 while dnm is paused.",
     lambda facts: _single(facts.registry.paused(facts.now) is not None)),
    ("dnm_paused_since_timestamp_seconds", GAUGE, "When the current pause began.", _paused_since),
    ("dnm_registry_lost", GAUGE,
     "1 while the registry is a new one after a loss that no administrator has confirmed.",
     lambda facts: _single(bool(facts.registry.pause and facts.registry.pause.is_after_loss))),
    ("dnm_queue_document_resets", GAUGE,
     "Repeated resets of the limits by another client.", _resets),
    ("dnm_history_unwritten_lines", GAUGE, "Lines that are not written to the history yet.",
     lambda facts: _single(len(facts.registry.memory.unwritten))),
)  # fmt: skip


def make_families(facts: Gauges) -> Iterator[Family]:
    """Yields every metric of dnm with its current values."""
    for name, type_, meaning, make in TABLE:
        samples = tuple(
            Sample(value=sample.value, suffix=sample.suffix,
                   labels={"instance_id": facts.config.instance_id, **sample.labels})
            for sample in make(facts)
        )  # fmt: skip
        yield Family(name=name, type=type_, help=meaning, samples=samples)


# --- the text ---------------------------------------------------------------------------------


def format_families(families: Iterable[Family]) -> str:
    """Returns the metrics that have samples as text in Prometheus' format."""
    lines: list[str] = []
    for family in families:
        if family.samples:
            lines.append(f"# HELP {family.name} {_escaped(family.help)}")
            lines.append(f"# TYPE {family.name} {family.type}")
            lines += [_sample_line(family.name, sample) for sample in family.samples]
    return "".join(f"{line}\n" for line in lines)


def histogram_samples(durations: Durations, labels: Mapping[str, str]) -> list[Sample]:
    """Returns the samples of one Prometheus histogram: its buckets, its sum and its count."""
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
