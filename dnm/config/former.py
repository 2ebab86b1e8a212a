"""Keys of an older dnm, and what became of each. A run that meets none of them needs none of it."""

from __future__ import annotations

import re
from collections.abc import Mapping

from dnm.config import kubelet_values, names, numbers, values
from dnm.config.files import Sections
from dnm.config.keys import YEAR, Keys
from dnm.config.problems import shown
from dnm.config.values import path_text
from dnm.model.printable import printable

HAS_GONE = "this key is gone"  # and has no effect

# Keys that nobody has to write any more, by the kind of their section: where one stands it does
# what it did, and what there is to know in its place is told.
FORMER: Mapping[str, Keys] = {
    "settings": {
        "converted_nodes_path": ("converted_nodes_path", path_text),
        "global_cooldown_seconds": ("global_cooldown", values.seconds(0, YEAR)),
        "max_reversions_per_run": ("max_reversions_per_run", numbers.whole_number(0, 100_000)),
        "allowed_queue_prefixes": ("", values.queue_prefixes),
        "history_days": ("history_keep", numbers.span("days", 0, 36_500)),
        "node_cpu_capacity": ("", values.quantity("vcore")),
        "node_memory_capacity": ("", values.quantity("memory")),
        "state_namespace": ("state_namespace", values.namespace),
        "events_dir": ("events_dir", path_text),
    },
    "namespace": {"reversion_idle_seconds": ("reversion_idle", values.seconds(0, YEAR))},
    "node_type": {
        "kube_reserved_cpu": ("kube_reserved_cpu", kubelet_values.cpu_amount),
        "kube_reserved_memory": ("kube_reserved_memory", kubelet_values.memory_amount),
        "system_reserved_cpu": ("system_reserved_cpu", kubelet_values.cpu_amount),
        "system_reserved_memory": ("system_reserved_memory", kubelet_values.memory_amount),
        "hugepages_2mi": ("hugepages_2mi", kubelet_values.huge_pages("2Mi")),
        "hugepages_1gi": ("hugepages_1gi", kubelet_values.huge_pages("1Gi")),
        "kubelet_version": ("kubelet_minor", kubelet_values.kubelet_minor),
    },
    "node_convert": {
        "state_dir": ("state_dir", path_text),
        "mark_reason": ("mark_reason", names.slurm_reason),
        "preempt_user": ("preempt_user", names.account_name),
        "preempt_account": ("preempt_account", names.account_name),
        "preempt_grace_seconds": ("preempt_grace_seconds", values.seconds(0, 86_400)),
        "drain_timeout_seconds": ("drain_timeout_seconds", values.seconds(1, 86_400)),
        "parallel": ("parallel", numbers.whole_number(1, 256)),
    },
}
INSTEAD: Mapping[str, str] = {
    "converted_nodes_path": "converted_nodes.json lies in state_dir",
    "global_cooldown_seconds": "max_conversions_per_run bounds a run",
    "max_reversions_per_run": "a run returns as many as max_conversions_per_run lends, and four at "
    "least",
    "allowed_queue_prefixes": "the queue map names the queues that may change",
    "history_days": "the history is kept for 400 days",
    "node_cpu_capacity": "cpu of [node_type:NAME] says it",
    "node_memory_capacity": "memory of [node_type:NAME] says it",
    "state_namespace": "it stands behind state = kubernetes",
    "events_dir": "calendar names directories, too",
    "reversion_idle_seconds": "pod_minute_worth says how long pays",
    "kube_reserved_cpu": "kube_reserved has cpu and memory",
    "kube_reserved_memory": "kube_reserved has cpu and memory",
    "system_reserved_cpu": "system_reserved has cpu and memory",
    "system_reserved_memory": "system_reserved has cpu and memory",
    "hugepages_2mi": "the resource hugepages-2Mi says it",
    "hugepages_1gi": "the resource hugepages-1Gi says it",
    "kubelet_version": "kubelets since 1.31 know every key",
    "state_dir": "the journal lies in state_dir of [settings]",
    "mark_reason": "what a drain says is the same for all",
    "preempt_user": "preempt_jobs_of = USER/ACCOUNT",
    "preempt_account": "preempt_jobs_of = USER/ACCOUNT",
    "preempt_grace_seconds": "a job has a minute to end",
    "drain_timeout_seconds": "a drain is a stage: stage_timeout_seconds, and ten minutes at least",
    "parallel": "a call works on as many nodes as max_conversions_per_run lets it, eight at once",
}


# Keys that an older dnm knew, by the kind of their section, with what took their place: read, told,
# and without effect.
_NO_FORECAST = dict.fromkeys(
    ("forecast", "forecast_share", "forecast_except"),
    "there are no forecasts any more; min_nodes or an event keeps nodes ready",
)
_FLOOR = {"batch_idle_floor": "batch_floor keeps nodes in service, max_nodes caps what is lent"}
RETIRED: Mapping[str, Mapping[str, str]] = {
    "settings": {
        **_NO_FORECAST,
        "reversion_idle_at_most_seconds": "a node is idle for as long as pays: pod_minute_worth",
        "headroom_idle_seconds": "a headroom below 1 is a share that is always warm",
        "when_batch_waits": "max_nodes and batch_floor bound what is lent, while jobs wait too",
        "batch_reclaim_minutes": "max_lend_hours ends what is lent, while jobs wait too",
        **_FLOOR,
        "batch_pressure_command": "the converter's list says it, as `waiting_jobs`",
        "status_page": "`dnm report --html` writes a page, `dnm status -o json` has all of now",
        "log_console": "start dnm with --log-console, or with DNM_LOG_CONSOLE=1 in its environment",
        "yunikorn_cm_name": "YuniKorn itself reads no ConfigMap but yunikorn-configs",
        "lead_minutes": "before it is known what lending takes, an event's nodes get half an hour",
        "size_tolerance": "a node may offer a tenth more than its type declares",
        "yunikorn_queue_annotation": "YuniKorn's own, yunikorn.apache.org/queue, is read",
        "default_cpu_request_m": "a pod that names no CPU counts as a core; a LimitRange names it",
        "default_mem_request": "a pod that names no memory counts as 2Gi; a LimitRange names it",
        "pending_grace_seconds": "pods count when they have been pending for 20 seconds",
        "shutdown_grace_seconds": "a run that is told to stop waits for its step, ten minutes long",
        "request_timeout_seconds": "a request to the Kubernetes API may take 30 seconds",
        "watch_from_pods": "changes are followed from 5,000 pods on",
        "breaker_strikes": "a queue gets no more after three conversions that it did not use",
        "events": "Kubernetes is told of each transition, where the role of dnm allows it",
        "read_node_topology": "an exporter is asked where the role of dnm allows it",
    },
    "namespace": _NO_FORECAST,
    "node_type": _FLOOR,
    "partition": _FLOOR,
    "node_convert": {
        "command_timeout_seconds": "a command of Slurm may take 30 seconds",
        "reach_timeout_seconds": "a machine may take 30 seconds to answer",
        "slurm_access": "with slurmrestd_url it is slurmrestd that is asked, else Slurm's commands",
        "roll_back": "a conversion that fails is undone as far as is safe",
        "slurm_patience_seconds": "a controller of Slurm that is away is waited for two minutes",
        "preempt_drain_timeout": "a preempted node has five minutes to become free",
        "poll_seconds": "what is waited for is looked at every two seconds",
        "verify_seconds": "a claim is looked at again after six seconds",
        **{
            f"{stage}_timeout_seconds": "stage_timeout_seconds is of all stages but drain and boot"
            for stage in ("prepare", "join", "ready", "reset", "health", "return")
        },
    },
}

# What stands in the list of another key today, a name each.
_LISTED = {f"exclude_{kind}s": kind for kind in ("partition", "feature", "reservation")}
# Keys whose text is read as another's of [settings].
MOVED: Mapping[str, Mapping[str, str]] = {
    "settings": {"book_days": "event_reservations", **dict.fromkeys(_LISTED, "exclude_nodes")},
    "node_type": {"batch_floor": "batch_floor"},
    "partition": {"batch_floor": "batch_floor"},
    "node_convert": {
        "res_name": "slurm_reservation_name",
        "preempt_enabled": "allow_preempt",
        "pass_environment": "pass_environment",
    },
}


def with_former(section: str, keys: Keys) -> Keys:
    """Returns the keys of a section with those that are still followed there."""
    return {**keys, **FORMER.get(section.partition(":")[0], {})}


def take_over(sections: Sections) -> Sections:
    """Returns the sections with the text of each key that has moved in its new place too, without
    those that are followed and say nothing."""
    sections = {
        section: {
            key: text
            for key, text in entries.items()
            if text or key.lower() not in FORMER.get(section.partition(":")[0], {})
        }
        for section, entries in sections.items()
    }
    settings = dict(sections.get("settings", {}))
    for section, entries in sections.items():
        kind, _, name = section.partition(":")
        for written, text in entries.items():
            if text and (key := MOVED.get(kind, {}).get(written.lower())):
                there = next((one for one in settings if one.lower() == key), key)
                meant = _meant(kind, name.strip(), written.lower(), text)
                settings[there] = _both(key, settings.get(there, ""), meant)
    return {**sections, "settings": settings} if settings else sections


def _meant(kind: str, name: str, key: str, text: str) -> str:
    """The text as it stands in its new place."""
    if key == "batch_floor":
        return f"{'partition ' if kind == 'partition' else ''}{name}: {text}"
    words = re.split(r"[,\n]", text) if key in _LISTED else ()
    return ", ".join(f"{_LISTED[key]} {one.strip()}" for one in words if one.strip()) or text


def _both(key: str, there: str, moved: str) -> str:
    """What stood there, else before; bookings were a switch and days, lists add up."""
    if key == "event_reservations":
        return moved if there.lower() in values.TRUE else there or "false"
    if key in ("exclude_nodes", "batch_floor"):
        return _added(there, moved)
    if key == "pass_environment":
        return ", ".join(dict.fromkeys(re.findall(r"[^\s,]+", f"{there} {moved}")))
    return there or moved


def _added(there: str, moved: str) -> str:
    """A list, with what another says of those of whom it says nothing."""
    known = {_about(one) for one in re.split(r"[,\n]", there)}
    new = (one.strip() for one in moved.split(",") if _about(one) not in known)
    return ", ".join(filter(None, (there, *new)))


def _about(entry: str) -> str:
    return " ".join((entry.rpartition(":")[0] or entry).split())


def old_keys(sections: Sections, today: Sections) -> tuple[str, ...]:
    """Returns a sentence for each key of an older dnm: what became of it, or what to write where it
    is read `today`."""
    return tuple(
        f"[{shown(section)}] {key}: {said}"
        for section, entries in sections.items()
        for key in map(str.lower, entries)
        if (said := _word_of(section, key, today))
    )


def _word_of(section: str, key: str, today: Sections) -> str:
    kind = section.partition(":")[0]
    if key in FORMER.get(kind, {}):
        return f"this key is followed, and not needed any more: {INSTEAD[key]}"
    if new := MOVED.get(kind, {}).get(key):
        settings = today.get("settings", {})
        meant = next((text for name, text in settings.items() if name.lower() == new), "")
        line = printable(" ".join(f"{new} = {meant}".split()), 500)
        return f"this key has moved: write '{line}' in [settings]" if meant else HAS_GONE
    gone = RETIRED.get(kind, {}).get(key)
    return f"{HAS_GONE}: {gone}" if gone else ""


def is_gone(section: str, key: str) -> bool:
    """Tells whether a key has no effect there any more, or has it elsewhere."""
    kind = section.partition(":")[0]
    return key in RETIRED.get(kind, {}) or key in MOVED.get(kind, {})
