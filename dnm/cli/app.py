"""Verbs, options, logging and exit codes; a few lines a verb. The only place that catches DnmError.

Every verb imports what it needs itself: `dnm status` must not load a Kubernetes client.
"""

from __future__ import annotations

import os
import signal
import sys
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dnm.model.errors import DnmError, ExitCode

if TYPE_CHECKING:
    from dnm.model.config import Config
    from dnm.model.plan import Plan

app = typer.Typer(
    name="dnm",
    help="Lends idle Slurm nodes to Kubernetes when a YuniKorn queue runs out of room.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
queues_app = typer.Typer(
    help="Look at, check and mend the queue document.", no_args_is_help=True, rich_markup_mode=None
)
load_app = typer.Typer(
    help="The validation load: sleeping pods.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
sandbox_app = typer.Typer(
    help="An embedded cluster to try dnm on.", no_args_is_help=True, rich_markup_mode=None
)
app.add_typer(queues_app, name="queues")
app.add_typer(load_app, name="test-load")
app.add_typer(sandbox_app, name="sandbox")

IDENT = "dynamic-node-manager"
_SYSLOG = "/dev/log"
_YEAR_IN_MINUTES = 366 * 24 * 60


class Output(StrEnum):
    """How a verb prints."""

    text = "text"
    json = "json"


ConfigOption = Annotated[
    Path | None,
    typer.Option("--config", "-c", help="The ini file; else $DNM_CONFIG, else the one in /etc."),
]
OutputOption = Annotated[Output, typer.Option("--output", "-o", help="text or json.")]
ConsoleOption = Annotated[bool, typer.Option("--log-console", help="Log to stderr too.")]


def _config(path: Path | None) -> Config:
    from dnm.config.load import load_config

    return load_config(path, os.environ)


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        print(f"dnm {version('dnm')}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Lends idle Slurm nodes to Kubernetes when a YuniKorn queue runs out of room."""


def set_up_logging(to_console: bool) -> None:
    """syslog (facility daemon) where the host has it, and stderr if asked; `key=value` lines."""
    import logging
    from logging.handlers import SysLogHandler

    logger = logging.getLogger("dnm")
    logger.setLevel(logging.INFO)
    logging.raiseExceptions = False  # where nobody listens to the socket: no traceback per line
    if os.path.exists(_SYSLOG):
        syslog = SysLogHandler(_SYSLOG, facility=SysLogHandler.LOG_DAEMON)
        syslog.ident = f"{IDENT}: "
        logger.addHandler(syslog)
    if to_console:
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
        logger.addHandler(handler)
    if not logger.handlers:
        logger.addHandler(logging.NullHandler())


def _log_findings(plan: Plan) -> None:
    """What was found, beside what was done: the mail of cron is not where a log is searched."""
    import logging

    for note in plan.notes:
        logging.getLogger("dnm").info("note=%r", note)
    for error in plan.errors:
        logging.getLogger("dnm").error("error=%r", error)


class _Signals:
    """The first TERM or INT lets the step under way end within its grace; a second INT leaves."""

    def __init__(self) -> None:
        self.heard = False
        signal.signal(signal.SIGTERM, self._hear)
        signal.signal(signal.SIGINT, self._hear)

    def _hear(self, number: int, frame: object) -> None:
        if self.heard and number == signal.SIGINT:
            raise KeyboardInterrupt
        if not self.heard and sys.stderr.isatty():
            print("finishing the step under way; Ctrl-C again leaves it", file=sys.stderr)
        self.heard = True


@app.command()
def run(
    config_path: ConfigOption = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", "-n", help="Show the plan; write nothing anywhere.")
    ] = False,
    log_console: ConsoleOption = False,
    output: OutputOption = Output.text,
) -> None:
    """Make one pass: look, decide, do a little, record."""
    if dry_run:
        plan(config_path, output)
    config = _config(config_path)
    set_up_logging(log_console or config.log_console or bool(os.environ.get("DNM_LOG_CONSOLE")))
    signals = _Signals()
    from dnm.cli.report import print_json, print_run, run_document
    from dnm.run.runner import run_pass

    result = run_pass(config, os.environ, lambda: signals.heard)
    _log_findings(result.plan)
    if output is Output.json:
        print_json(run_document(result))
    else:
        print_run(result)
    raise typer.Exit(result.exit_code)


@app.command()
def plan(config_path: ConfigOption = None, output: OutputOption = Output.text) -> None:
    """Show what a run would do and why; writes nothing."""
    config = _config(config_path)
    from dnm.cli.report import plan_document, print_json, print_plan
    from dnm.run.runner import plan_pass

    result = plan_pass(config, os.environ)
    if output is Output.json:
        print_json(plan_document(result.plan))
    else:
        print_plan(result.plan)
    raise typer.Exit(result.exit_code)


@app.command()
def status(
    config_path: ConfigOption = None,
    output: OutputOption = Output.text,
    live: Annotated[bool, typer.Option("--live", help="Ask the cluster too.")] = False,
) -> None:
    """Show lent nodes, queues, brakes and the last run."""
    config = _config(config_path)
    from dnm.cli.report import print_json, print_status, status_document
    from dnm.run.registry import load_registry

    now = datetime.now(UTC)
    if live:
        from dnm.run.runner import live_registry

        registry, exit_code, errors = live_registry(config, os.environ)
    else:
        registry, exit_code, errors = load_registry(config, now), int(ExitCode.OK), ()
    document = status_document(config, registry, now, errors)
    if output is Output.json:
        print_json(document)
    else:
        print_status(document, now)
    raise typer.Exit(exit_code)


@app.command()
def check(config_path: ConfigOption = None, output: OutputOption = Output.text) -> None:
    """Try now what could go wrong at 3 a.m."""
    from dnm.cli.check import run_checks

    raise typer.Exit(run_checks(config_path, os.environ, output.value))


@app.command()
def nodes(
    config_path: ConfigOption = None,
    output: OutputOption = Output.text,
    node_type: Annotated[str, typer.Option(help="Only nodes of this type.")] = "",
) -> None:
    """Show which batch nodes could be lent now."""
    config = _config(config_path)
    from dnm.cli.report import print_batch_nodes

    raise typer.Exit(print_batch_nodes(config, os.environ, node_type, output.value == "json"))


@app.command()
def pause(
    config_path: ConfigOption = None,
    minutes: Annotated[
        float | None, typer.Option("--for", help="Minutes; else until resumed.")
    ] = None,
    reason: Annotated[str, typer.Option(help="Shown by status.")] = "",
) -> None:
    """Stop conversions and reversions for a while."""
    from dnm.cli import admin

    if minutes is not None and not 0 < minutes <= _YEAR_IN_MINUTES:
        raise typer.BadParameter("more than 0, a year at most", param_hint="--for")
    length = None if minutes is None else timedelta(minutes=minutes)
    print(admin.pause(_config(config_path), length, reason))


@app.command()
def resume(config_path: ConfigOption = None) -> None:
    """End the pause."""
    from dnm.cli import admin

    print(admin.resume(_config(config_path)))


@app.command()
def hold(node: str, config_path: ConfigOption = None) -> None:
    """Keep a lent node, however idle it is."""
    from dnm.cli import admin

    print(admin.hold(_config(config_path), node))


@app.command()
def unhold(node: str, config_path: ConfigOption = None) -> None:
    """Let a held node go back again."""
    from dnm.cli import admin

    print(admin.unhold(_config(config_path), node))


@app.command()
def reset(name: str, config_path: ConfigOption = None) -> None:
    """Reset a breaker, a back-off or a failed node.

    NAME is a queue (closes its breaker), a node type (ends its back-off), or a failed node (tries
    to give it back again).
    """
    from dnm.cli import admin

    print(admin.reset(_config(config_path), name))


@app.command()
def forget(
    node: str,
    config_path: ConfigOption = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
) -> None:
    """Drop a node that a person has returned to Slurm."""
    from dnm.cli import admin

    print(admin.forget(_config(config_path), node, lambda text: yes or typer.confirm(text)))


# --- queues ----------------------------------------------------------------------------------


@queues_app.command("check")
def queues_check(
    files: Annotated[
        list[Path] | None,
        typer.Argument(help="A queues.yaml or a ConfigMap manifest; none: the cluster's document."),
    ] = None,
    config_path: ConfigOption = None,
    output: OutputOption = Output.text,
) -> None:
    """Judge queue documents as YuniKorn would: 0 if it takes them, 1 and every violation if not.

    1 also for a document without the partition `default`: YuniKorn takes it and ends everything.
    """
    from dnm.cli import queue_verbs

    as_json = output is Output.json
    if files:
        raise typer.Exit(queue_verbs.check_files(files, as_json))
    from dnm.cli.admin import queue_edges

    kube, place, yunikorn = queue_edges(_config(config_path))
    raise typer.Exit(queue_verbs.check_cluster(kube, place, yunikorn, as_json))


@queues_app.command("show")
def queues_show(config_path: ConfigOption = None, output: OutputOption = Output.text) -> None:
    """Show the tree: limit, baseline, lent by node, used, headroom."""
    from dnm.cli.admin import queue_edges, used_by_queue
    from dnm.cli.queue_verbs import show_queues

    config = _config(config_path)
    kube, place, _ = queue_edges(config)
    used = used_by_queue(config, os.environ)
    raise typer.Exit(show_queues(kube, place, used, output is Output.json))


@queues_app.command("rebase")
def queues_rebase(
    reading: Annotated[
        str, typer.Option("--as", help="What the limits are: baseline, or total with what is lent.")
    ] = "",
    queue: Annotated[list[str] | None, typer.Option(help="Only these queues.")] = None,
    forget_instance: Annotated[
        str, typer.Option("--forget", help="Drop the ledger of an instance that is no more.")
    ] = "",
    config_path: ConfigOption = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
) -> None:
    """Answer dnm's question about limits that it can't explain; shows first what comes of it.

    Limits that stand as dnm last wrote them are left alone: it knows what they contain.
    """
    from dnm.cli import admin

    if reading not in ("", "baseline", "total"):
        raise typer.BadParameter("baseline or total", param_hint="--as")
    if not (reading or forget_instance):
        raise typer.BadParameter("say --as baseline, --as total, or --forget INSTANCE")
    config = _config(config_path)
    raise typer.Exit(
        admin.rebase(
            config, reading, queue or [], forget_instance, lambda text: yes or typer.confirm(text)
        )
    )


# --- test-load -------------------------------------------------------------------------------

NamespaceOption = Annotated[str, typer.Option("--namespace", "-n", help="One namespace only.")]


@load_app.command("create")
def create(
    namespace: Annotated[str, typer.Option("--namespace", "-n", help="Where the pods are.")],
    config_path: ConfigOption = None,
    queue: Annotated[str, typer.Option(help="Else the queue of the namespace.")] = "",
    name: Annotated[str, typer.Option(help="Else a new one.")] = "",
    replicas: Annotated[int, typer.Option(help="Pods.")] = 50,
    cpu: Annotated[str, typer.Option(help="Of each pod.")] = "1000m",
    memory: Annotated[str, typer.Option(help="Of each pod.")] = "2Gi",
    image: Annotated[str, typer.Option(help="It must have `sleep`.")] = "busybox",
    only_lent_nodes: Annotated[
        bool, typer.Option("--only-lent-nodes", help="Select the namespace's lent nodes.")
    ] = False,
    output: OutputOption = Output.text,
) -> None:
    """Create a Deployment of sleeping pods; prints its name."""
    from dnm.cli.test_load import Load, create_load

    load = Load(
        namespace=namespace,
        queue=queue,
        name=name,
        replicas=replicas,
        cpu=cpu,
        memory=memory,
        image=image,
        only_lent_nodes=only_lent_nodes,
    )
    raise typer.Exit(create_load(_config(config_path), load, output.value))


@load_app.command("scale")
def scale(
    name: str,
    replicas: int,
    namespace: NamespaceOption = "",
    config_path: ConfigOption = None,
) -> None:
    """Change how many pods a load has."""
    from dnm.cli.test_load import scale_load

    raise typer.Exit(scale_load(_config(config_path), name, replicas, namespace))


@load_app.command("delete")
def delete(
    name: Annotated[str, typer.Argument(help="Without it: every load.")] = "",
    namespace: NamespaceOption = "",
    config_path: ConfigOption = None,
) -> None:
    """Delete one load, or all of them."""
    from dnm.cli.test_load import delete_loads

    raise typer.Exit(delete_loads(_config(config_path), name, namespace))


@load_app.command("list")
def list_(
    namespace: NamespaceOption = "",
    config_path: ConfigOption = None,
    output: OutputOption = Output.text,
) -> None:
    """List the loads that are there."""
    from dnm.cli.test_load import list_loads

    raise typer.Exit(list_loads(_config(config_path), namespace, output.value))


# --- sandbox and demo ------------------------------------------------------------------------

DirectoryOption = Annotated[
    Path | None, typer.Option("--dir", help="Its directory; else one below ~/.local/state.")
]


@sandbox_app.command("up")
def up(
    directory: DirectoryOption = None,
    nodes_: Annotated[int, typer.Option("--nodes", help="Batch nodes.")] = 12,
    workshop: Annotated[bool, typer.Option("--workshop", help="With 75 pending pods.")] = False,
    port: Annotated[int, typer.Option(help="0: a free one.")] = 0,
    speed: Annotated[float, typer.Option(help="How much faster its time passes.")] = 1.0,
) -> None:
    """Start an embedded cluster and say how to use it."""
    from dnm.sandbox import commands

    raise typer.Exit(
        commands.up(directory, nodes=nodes_, workshop=workshop, port=port, speed=speed)
    )


@sandbox_app.command("down")
def down(
    directory: DirectoryOption = None,
    keep: Annotated[bool, typer.Option("--keep", help="The next `up` goes on from here.")] = False,
) -> None:
    """Stop the embedded cluster."""
    from dnm.sandbox import commands

    raise typer.Exit(commands.down(directory, keep=keep))


@app.command("demo")
def demo_(
    speed: Annotated[float, typer.Option(help="How much faster its time passes.")] = 1.0,
    slurm: Annotated[
        bool, typer.Option("--slurm", help="With a real Slurm, which must be installed.")
    ] = False,
) -> None:
    """Play a workshop on an embedded cluster."""
    if slurm:
        from dnm.demo.slurm_workshop import demo_slurm

        raise typer.Exit(demo_slurm())
    from dnm.demo.workshop import demo

    raise typer.Exit(demo(speed=speed))


def main() -> None:
    """The `dnm` command: every foreseen failure is a sentence and an exit code."""
    try:
        app()
    except DnmError as error:
        if error.exit_code is not ExitCode.LOCKED or sys.stderr.isatty():
            # cron mails what is printed, and a long conversion locks out many runs.
            print(f"dnm: {error}", file=sys.stderr)
        if "logging" in sys.modules:
            logger = sys.modules["logging"].getLogger("dnm")
            if logger.handlers:  # set up by `run` alone; without any, stderr would have it twice
                logger.error("error=%r", str(error))
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        print("dnm: interrupted; the next run finds out what was under way", file=sys.stderr)
        sys.exit(130)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)


if __name__ == "__main__":
    main()
