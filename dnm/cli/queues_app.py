"""`dnm queues`: its verbs and their options."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from dnm.cli import completion
from dnm.cli.options import (
    ConfigOption,
    NamesOutput,
    NamesOutputOption,
    Output,
    OutputOption,
    ReasonOption,
)
from dnm.cli.verbs import load_named_config, sub_app

queues_app = sub_app("Look at, check and mend the queue document.")


@queues_app.command("check")
def queues_check(
    files: Annotated[
        list[Path] | None,
        typer.Argument(help="A queues.yaml or a ConfigMap manifest; none: the cluster's document."),
    ] = None,
    config_path: ConfigOption = None,
    output: OutputOption = Output.text,
) -> None:
    """Say whether dnm can edit queue documents: 0 if so, 1 and every reason if not.

    YuniKorn's own validator is asked for the rest, at yunikorn_url; for files with --config alone.
    """
    from dnm.cli import queue_verbs
    from dnm.cli.admin import queue_edges
    from dnm.queues.yunikorn_rest import YunikornClient

    if files:
        url = load_named_config(config_path).yunikorn_url if config_path else ""
        yunikorn = YunikornClient(url) if url else None
        raise typer.Exit(queue_verbs.check_files(files, output, yunikorn))
    kube, place, yunikorn = queue_edges(load_named_config(config_path))
    raise typer.Exit(queue_verbs.check_cluster(kube, place, yunikorn, output))


@queues_app.command("show")
def queues_show(
    config_path: ConfigOption = None, output: NamesOutputOption = NamesOutput.text
) -> None:
    """Show the tree: limit, baseline, lent by node, used, headroom."""
    from dnm.cli.admin import queue_edges, used_by_queue
    from dnm.cli.queue_verbs import show_queues

    config = load_named_config(config_path)
    kube, place, _ = queue_edges(config)
    used = used_by_queue(config, os.environ)
    raise typer.Exit(show_queues(kube, place, used, output))


@queues_app.command("rebase")
def queues_rebase(
    reading: Annotated[
        str, typer.Option("--as", help="What the limits are: baseline, or total with what is lent.")
    ] = "",
    queue: Annotated[
        list[str] | None,
        typer.Option(help="Only these queues.", autocompletion=completion.queues),
    ] = None,
    forget_instance: Annotated[
        str, typer.Option("--forget", help="Drop the ledger of an instance that is no more.")
    ] = "",
    config_path: ConfigOption = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    reason: ReasonOption = "",
) -> None:
    """Answer dnm's question about limits that it can't explain; shows first what comes of it.

    Limits that stand as dnm last wrote them are left alone: it knows what they contain.
    """
    from dnm.cli import admin

    if reading not in ("", "baseline", "total"):
        raise typer.BadParameter("baseline or total", param_hint="--as")
    if not (reading or forget_instance):
        raise typer.BadParameter("say --as baseline, --as total, or --forget INSTANCE")
    config = load_named_config(config_path)
    raise typer.Exit(
        admin.rebase(
            config,
            reading,
            queue or [],
            forget_instance,
            lambda text: yes or typer.confirm(text, err=True),
            reason,
        )
    )
