"""The list of all checks of `dnm check`, and the checks of this host. Checks only read.

A check yields findings; a check that fails does not stop the others. A run would report the same
problems as errors or reasons, so both use the same functions."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import closing
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from shlex import quote

from dnm.checks.batch import check_batch_nodes
from dnm.checks.findings import (
    Finding,
    all_wrong,
    doubtful,
    fine,
    looks_at,
    skipped,
    wrong,
)
from dnm.config.files import read_ini
from dnm.config.load import find_config_path, is_console_log_asked, load_config
from dnm.host.trust import find_distrust
from dnm.model.blackout import LEAST, is_too_short
from dnm.model.config import PASSED_BY_DEFAULT, Config
from dnm.model.errors import DnmError, ExitCode
from dnm.model.lent import Phase
from dnm.model.printable import count_of
from dnm.model.registry import Registry
from dnm.model.value import Unreadable
from dnm.plan.breaker import active_backoffs
from dnm.plan.rules.event_windows import list_problems, usable_events
from dnm.run.calendars import read_calendars
from dnm.run.health import at_work, warn_of_last_run
from dnm.run.lock import find_open_lock
from dnm.run.lock_holder import find_lock_holder
from dnm.run.recorded import read_last_run
from dnm.run.registry import load_registry, opened_state

_FULL = 1024 * 1024  # bytes; a small registry and its temporary file do not fit
_LEAST_FREE = 64 * 1024 * 1024  # bytes; the registry, its predecessor and a temporary one
_SYSLOG = Path("/dev/log")


def find_everything(
    path: Path | None, environ: Mapping[str, str], is_deep: bool = False
) -> Iterator[Finding]:
    """Yields the findings of all checks, in the order in which an administrator should fix them."""
    try:
        config = load_config(path, environ)
    except DnmError as error:
        yield from all_wrong(error, "configuration")
        file = find_config_path(path, environ)
        yield skipped(f"they need a valid configuration: {file}", "all others")
        return
    now = datetime.now(UTC)
    yield from check_configuration(config)
    yield from check_kubelets(config)
    yield from check_state_directory(config)
    yield from check_lock(config)
    registry = Registry()
    try:
        with opened_state(config) as state:
            registry, where = load_registry(config, now, state), state.where
    except DnmError as error:
        yield from all_wrong(error, "registry")
    else:
        yield from check_registry(config, registry, where)
        yield from check_manual_lends(config, registry)
        yield from check_restrictions(registry, now)
        yield from check_last_run(config, registry, now)
    yield from check_events(config, read_calendars(config, registry), now)
    yield from check_syslog(environ)
    yield from check_converter(config, environ)
    yield from check_batch_nodes(config, registry, environ)
    from dnm.checks.cluster import (
        check_cluster,
    )  # its imports are most of the time it takes

    yield from check_cluster(config, registry, environ)
    if is_deep:
        yield from check_kept(config, now)


@looks_at("configuration")
def check_configuration(config: Config) -> Iterator[Finding]:
    """Reports which file, instance, namespaces and node types dnm uses."""
    yield fine(
        f"{config.path}: instance {config.instance_id}, "
        f"namespaces {', '.join(config.namespaces)}, types {', '.join(config.node_types)}"
    )


def check_kubelets(config: Config) -> Iterator[Finding]:
    """Checks whether kubelets would start with the configured settings of each node type."""
    if config.has_kubelets:
        from dnm.checks.kubelets import judge

        types = [
            node_type for node_type in config.node_types.values() if node_type.kubelet is not None
        ]
        yield from (finding for node_type in types for finding in judge(node_type))


# --- this host -------------------------------------------------------------------------------


@looks_at("state directory")
def check_state_directory(config: Config) -> Iterator[Finding]:
    """Checks the directories of the registry and of the lock: owner, mode and free space."""
    for path in dict.fromkeys((config.converted_nodes_path.parent, config.state_dir)):
        try:
            info = os.stat(path)
        except FileNotFoundError:
            yield wrong(f"{path} is missing", f"mkdir -p -m 755 {quote(str(path))}")
            continue
        if not path.is_dir():
            yield wrong(f"{path} is not a directory", "move the file away, or set state_dir")
        elif distrust := find_distrust(path, info):
            yield wrong(distrust.problem, distrust.remedy)
        elif not os.access(path, os.W_OK | os.X_OK):
            yield wrong(
                f"{path} can't be written by user id {os.geteuid()}",
                "run dnm as its owner, or mount it writable",
            )
        else:
            yield judge_space(path, os.statvfs(path), is_root=os.geteuid() == 0)


def judge_space(path: Path, disk: os.statvfs_result, is_root: bool) -> Finding:
    """Returns whether the disk has space to write the registry. Blocks that are reserved for root
    count only if dnm runs as root. Free files count only if the file system limits their number."""
    free = (disk.f_bfree if is_root else disk.f_bavail) * disk.f_frsize
    files = disk.f_ffree if is_root else disk.f_favail
    remedy = "free space or delete files there: a run that can't record a step does not take it"
    if free < _FULL or (disk.f_files and not files):
        full = "the disk" if free < _FULL else "the list of files of the disk"
        return wrong(f"{path}: {full} is full, so that no run can act", remedy)
    if free < _LEAST_FREE:
        return doubtful(f"{path} has only {free // 1024**2} MiB left", remedy)
    return fine(f"{path} is writable, by its owner alone")


@looks_at("lock")
def check_lock(config: Config) -> Iterator[Finding]:
    """Reports the process that holds the lock, and a lock file that other users could open."""
    if trouble := find_open_lock(config.lock_path):
        yield doubtful(trouble.problem, trouble.remedy)
    holder = find_lock_holder(config.lock_path)
    if holder is None:
        return
    text = f"{config.lock_path} is held by {holder.text}"
    if holder.is_foreign:
        yield wrong(
            f"{text}, which is not a run of dnm: dnm does nothing until it ends",
            f"check the process, then 'kill {holder.pid}'",
        )
    else:
        yield fine(f"{text}: a run or another command is active")


@looks_at("registry")
def check_registry(config: Config, registry: Registry, where: str) -> Iterator[Finding]:
    """Reports the contents of the registry, and nodes that need an administrator."""
    yield fine(
        f"{where}: {count_of(len(registry.nodes), 'lent node')}, "
        f"{sum(request.count for request in registry.requests)} requested"
    )
    for name, entry in sorted(registry.nodes.items()):
        if entry.phase is Phase.FAILED:
            yield doubtful(
                f"{name} has failed: {entry.error}",
                f"fix it, then 'dnm reset {name}'; 'dnm forget {name}' if you returned it to Slurm "
                "manually",
            )
        if entry.owner != config.instance_id:
            yield doubtful(
                f"{name} was lent by the instance {entry.owner}, this one is {config.instance_id} "
                "and leaves it alone",
                "if instance_id was changed, change it back until the node is back in Slurm",
            )
        elif entry.namespace not in config.namespaces:
            yield doubtful(
                f"{name} serves {entry.namespace}, which is not monitored",
                "it is returned when it is idle; monitor the namespace to keep it",
            )


@looks_at("events")
def check_events(config: Config, registry: Registry, now: datetime) -> Iterator[Finding]:
    """Reports unreadable events and files of events. dnm then uses the last readable version."""
    troubles = list(list_problems(config, registry, now))
    yield from (wrong(text) for text in troubles)
    if not troubles and (count := len(usable_events(config, registry))):
        yield fine(f"{count_of(count, 'event')} can be read")


@looks_at("manual nodes")
def check_manual_lends(config: Config, registry: Registry) -> Iterator[Finding]:
    """Reports nodes that were moved to Kubernetes manually, as recorded by the last run that read
    Slurm's nodes."""
    for name in registry.manual:
        yield doubtful(
            f"{name} was moved to Kubernetes manually and is not recorded: it counts for no queue",
            f"'dnm adopt {name} --namespace NAMESPACE' starts managing it, "
            f"'{config.node_convert_path} --set batch --node-name {name}' returns it",
        )


@looks_at("back-off")
def check_restrictions(registry: Registry, now: datetime) -> Iterator[Finding]:
    """Reports the node types in back-off, with their last error."""
    for name, backoff in active_backoffs(registry, now).items():
        failed = count_of(backoff.failures, "failed attempt")
        error = f": {backoff.last_error}" if backoff.last_error else ""
        yield doubtful(
            f"the type {name} gets no conversion until {backoff.until:%Y-%m-%d %H:%M:%S} UTC, "
            f"after {failed}{error}",
            f"fix it, then 'dnm reset {name}'",
        )


@looks_at("last run")
def check_last_run(config: Config, registry: Registry, now: datetime) -> Iterator[Finding]:
    """Checks whether runs start on schedule, and how the last one ended."""
    times, run = read_last_run(config), registry.last_run
    holder = at_work(config, times)
    warnings = warn_of_last_run(config, times, now, holder)
    for warning in warnings:
        yield doubtful(warning)
    if run.resets and run.resets.is_repeated(now):
        yield doubtful(run.resets.sentence)
    if times.took is not None and run.exit_code != ExitCode.OK:
        errors = "; ".join(run.errors) or "no error is recorded"
        yield doubtful(f"it ended with code {run.exit_code}: {errors}")
    elif times.began is not None and not warnings:
        end = "and ended well" if holder is None else f"and is active: {holder.text}"
        yield fine(f"began {times.began:%Y-%m-%d %H:%M:%S} UTC {end}")


@looks_at("syslog")
def check_syslog(environ: Mapping[str, str]) -> Iterator[Finding]:
    if _SYSLOG.exists():
        yield fine(f"{_SYSLOG} exists")
    elif is_console_log_asked(environ):
        yield fine(f"there is no {_SYSLOG}, but DNM_LOG_CONSOLE is set: dnm logs to stderr")
    else:
        yield doubtful(
            f"there is no {_SYSLOG}: dnm's log is lost",
            "start syslog or journald, or set DNM_LOG_CONSOLE=1 for dnm",
        )


@looks_at("converter")
def check_converter(config: Config, environ: Mapping[str, str]) -> Iterator[Finding]:
    """Checks that the converter is executable and that only its owner can change it, because it
    power-cycles machines. Checks the section of dnm's own converter too."""
    path = config.node_convert_path
    if not path.exists():
        yield wrong(f"{path} is missing", "install it, or set node_convert_path")
    elif not (path.is_file() and os.access(path, os.X_OK)):
        remedy = f"chmod +x {quote(str(path))}"
        if path.is_file() and os.stat(path).st_mode & 0o111:  # for other users
            remedy = "run dnm as its owner"
        yield wrong(f"{path} is not executable by user id {os.getuid()}", remedy)
    elif distrust := find_distrust(path, os.stat(path)):
        yield wrong(distrust.problem, distrust.remedy)
    else:
        yield fine(f"{path} is executable")
    yield from _check_passed(config, environ)
    if "node_convert" in read_ini(config.path, []) and find_spec("dnm.converters"):
        from dnm.converters.settings import load_settings

        load_settings({}, environ, config.path)
        yield fine(f"its section [node_convert] in {config.path} is valid")


def _check_passed(config: Config, environ: Mapping[str, str]) -> Iterator[Finding]:
    """Checks that the variables in `pass_environment` are set, and long enough to be redacted in
    logs."""
    for name in config.pass_environment:
        value = environ.get(name, "")
        if not value and name not in PASSED_BY_DEFAULT:
            yield doubtful(
                f"pass_environment names {name}, which is not set here",
                "set it where dnm is started (EnvironmentFile= of dnm.service), or leave it out",
            )
        elif value and is_too_short(value):
            yield doubtful(
                f"{name} has fewer than {LEAST} characters: dnm does not hide it in its log",
                "give it a longer value, or leave it out of pass_environment",
            )


@looks_at("stored cluster state")
def check_kept(config: Config, now: datetime) -> Iterator[Finding]:
    """Compares the pods and nodes that dnm has stored between runs with full lists, as a run does
    every hour. Before that, a watch brings the stored ones to the moment of the lists."""
    from dnm.kube.client import KubeClient
    from dnm.kube.reflector import Reflector

    reflector = Reflector(config, now, is_due=True)
    with closing(KubeClient.connect(config, reflector)) as kube:
        nodes, pods = kube.read_nodes(), kube.read_pods(())
        for unreadable in (nodes, pods):
            if isinstance(unreadable, Unreadable):
                yield wrong(unreadable.error)
                return
        reading = reflector.compare(kube.requests)
    path = quote(str(config.store_path))
    if reading.trouble:
        yield wrong(
            reading.trouble,
            f"remove {path}, so that the next run reads the full lists, and report the difference "
            "to the administrators of the API server",
        )
    elif reading.compared == "unproved":
        yield doubtful(f"it could not be compared: {reading.sentence}", "try it again")
    elif reading.compared:
        yield fine(f"{path} equals the full lists")
    else:
        yield skipped(f"there is nothing to compare ({reading.reason}): {reading.sentence}")
