"""The verbs that come in groups (`dnm event`, `queues`, `node-types`, `state`) and `test-load`:
their options, and which function answers."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Literal

import typer

from dnm.cli import by_hand_app as change
from dnm.cli import look_app as look
from dnm.cli.by_hand_app import asks
from dnm.cli.terminal import completion
from dnm.cli.terminal.options import (
    ConfigOption,
    NamesOption,
    NamespaceOption,
    OutputOption,
    PathOption,
    ReasonOption,
    YesOption,
)
from dnm.cli.terminal.verbs import ACT, BY_HAND, LOOK, SET_UP, Verb, load_named_config, sub_app

event_app = sub_app("Events that are known beforehand, and when they begin to matter.")
queues_app = sub_app("Look at, check and mend the queue document.")
node_types_app = sub_app("Look at node types and at what their kubelets shall be.")
state_app = sub_app("Where the registry is: in a file, or in Kubernetes.")


# --- event -----------------------------------------------------------------------------------

NameArgument = Annotated[str, typer.Argument(autocompletion=completion.events)]


@event_app.command("add", cls=Verb)
def event_add(
    config: ConfigOption,
    name: Annotated[str, typer.Argument(help="a-z, 0-9 and -, e.g. stars-workshop.")],
    namespace: NamespaceOption,
    begins: Annotated[str, typer.Option("--from", help="E.g. '2026-12-01 09:00'.")],
    until: Annotated[str, typer.Option(help="The same, or a time alone: the next one.")],
    zone: Annotated[str, typer.Option(help="Of these times; else events_zone.")] = "",
    pods: Annotated[str, typer.Option(help="So many at the most.")] = "",
    cpu: Annotated[str, typer.Option(help="What one pod asks for.")] = "",
    memory: Annotated[str, typer.Option(help="What one pod asks for.")] = "",
    resource: Annotated[
        list[str] | None, typer.Option(help="The same, e.g. nvidia.com/gpu=1; may be repeated.")
    ] = None,
    nodes: Annotated[str, typer.Option(help="So many nodes, in place of pods.")] = "",
    weekly: Annotated[str, typer.Option(help="On these days, e.g. Mon,Wed.")] = "",
    last: Annotated[str, typer.Option(help="The last day of a series.")] = "",
    without: Annotated[str, typer.Option("--except", help="Days of a series without it.")] = "",
    charge_account: Annotated[
        str, typer.Option(help="Whom its lends are charged to; else the namespace's.")
    ] = "",
    output: NamesOption = "text",
    reason: ReasonOption = "",
) -> str:
    """Add an event to the record; the next runs act on it."""
    from dnm.cli.by_hand import events

    given = {
        "namespace": namespace, "from": begins, "until": until, "zone": zone, "pods": pods,
        "cpu": cpu, "memory": memory, "nodes": nodes, "weekly": weekly, "last": last,
        "except": without, "charge_account": charge_account,
    }  # fmt: skip
    entries = {key: text for key, text in given.items() if text}
    for text in resource or ():
        key, equals, amount = text.partition("=")
        if not equals:
            raise typer.BadParameter("write e.g. nvidia.com/gpu=1", param_hint="--resource")
        entries[key.strip()] = amount.strip()
    return events.add(config, name, entries, reason)


@event_app.command("remove", cls=Verb)
def event_remove(
    config: ConfigOption,
    name: NameArgument,
    output: NamesOption = "text",
    reason: ReasonOption = "",
) -> str:
    """Remove an event that was added; nodes that it brought go back when they are idle."""
    from dnm.cli.by_hand import events

    return events.remove(config, name, reason)


@event_app.command("list", cls=Verb)
def event_list(config: ConfigOption, output: NamesOption = "text") -> None:
    """List all events, from wherever they are, the next one first."""
    from dnm.cli.by_hand import events

    events.print_events(config, output)


@event_app.command("show", cls=Verb)
def event_show(config: ConfigOption, name: NameArgument, output: OutputOption = "text") -> None:
    """Show one event: its next windows, and when its nodes are lent."""
    from dnm.cli.by_hand import events

    events.show_event(config, name, output)


# --- test-load -------------------------------------------------------------------------------


def test_load(
    config: ConfigOption,
    namespace: Annotated[
        str, typer.Argument(help="Namespace of the pods.", autocompletion=completion.namespaces)
    ],
    queue: Annotated[
        str,
        typer.Option(help="Default: the queue of the namespace.", autocompletion=completion.queues),
    ] = "",
    name: Annotated[str, typer.Option(help="Name of the Deployment; default: dnm-test-load.")] = "",
    replicas: Annotated[int, typer.Option(help="Number of pods.")] = 50,
    cpu: Annotated[str, typer.Option(help="Request of each pod.")] = "1000m",
    memory: Annotated[str, typer.Option(help="Request of each pod.")] = "2Gi",
    image: Annotated[str, typer.Option(help="Image; it must have `sleep`.")] = "busybox",
    only_lent_nodes: Annotated[
        bool, typer.Option("--only-lent-nodes", help="Use only nodes lent to the namespace.")
    ] = False,
    wait: Annotated[str, typer.Option(help="Follow the progress for at most this time.")] = "5m",
    delete: Annotated[
        bool, typer.Option("--delete", help="Delete this instance's loads there, or --name.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only print the manifest.")] = False,
    output: OutputOption = "text",
) -> int:
    """Create a Deployment of sleeping pods that may land on lent nodes, and show its progress.

    Run it again to change the load. With -o yaml or json it only prints the manifest.
    """
    from dnm.cli.set_up.test_load import DEFAULT_NAME, Load, delete_loads, print_load, run_load

    if delete and (dry_run or output != "text"):
        raise typer.BadParameter("it prints no manifest", param_hint="--delete")
    if delete:
        return delete_loads(config, namespace, name)
    load = Load(
        namespace=namespace, queue=queue, name=name or DEFAULT_NAME, replicas=replicas, cpu=cpu,
        memory=memory, image=image, only_lent_nodes=only_lent_nodes,
    )  # fmt: skip
    if dry_run or output != "text":
        return print_load(config, load, "yaml" if output == "text" else output)
    return run_load(config, load, change.parse_wait(wait))


# --- queues ----------------------------------------------------------------------------------


@queues_app.command("check", cls=Verb)
def queues_check(
    files: Annotated[
        list[Path] | None,
        typer.Argument(help="A queues.yaml or a ConfigMap manifest; none: the cluster's document."),
    ] = None,
    config_path: PathOption = None,
    output: OutputOption = "text",
) -> int:
    """Say whether dnm can edit queue documents: 0 if so, 1 and every reason if not.

    YuniKorn's own validator is asked for the rest, at yunikorn_url; for files with --config alone.
    """
    from dnm.cli.act.admin import queue_edges
    from dnm.cli.set_up import queue_verbs
    from dnm.queues.yunikorn_rest import YunikornClient

    if files:
        url = load_named_config(config_path).yunikorn_url if config_path else ""
        yunikorn = YunikornClient(url) if url else None
        return queue_verbs.check_files(files, output, yunikorn)
    kube, place, yunikorn = queue_edges(load_named_config(config_path))
    return queue_verbs.check_cluster(kube, place, yunikorn, output)


@queues_app.command("show", cls=Verb)
def queues_show(config: ConfigOption, output: NamesOption = "text") -> int:
    """Show the tree: limit, baseline, lent by node, used, headroom."""
    from dnm.cli.act.admin import queue_edges, used_by_queue
    from dnm.cli.set_up.queue_verbs import show_queues

    kube, place, _ = queue_edges(config)
    used = used_by_queue(config, os.environ)
    return show_queues(kube, place, used, output)


@queues_app.command("rebase", cls=Verb)
def queues_rebase(
    config: ConfigOption,
    reading: Annotated[
        Literal["baseline", "total"],
        typer.Option("--as", help="What the limits are: baseline, or total with what is lent."),
    ],
    queue: Annotated[
        list[str] | None,
        typer.Option(help="Only these queues.", autocompletion=completion.queues),
    ] = None,
    yes: YesOption = False,
    reason: ReasonOption = "",
) -> int:
    """Answer dnm's question about limits that it can't explain; shows first what comes of it.

    Limits that stand as dnm last wrote them are left alone: it knows what they contain.
    """
    from dnm.cli.act import admin

    return admin.rebase(config, reading, queue or [], asks(yes), reason)


# --- node-types ------------------------------------------------------------------------------


@node_types_app.command("list", cls=Verb)
def types_list(config_path: PathOption = None, output: NamesOption = "text") -> int:
    """Show each type: its size, what of it pods get, its kubelet settings."""
    from dnm.cli.set_up.node_types import list_node_types

    return list_node_types(config_path, os.environ, output)


@node_types_app.command("check", cls=Verb)
def types_check(
    types: Annotated[list[str] | None, typer.Argument(help="Node types; none: all.")] = None,
    config_path: PathOption = None,
    output: OutputOption = "text",
) -> int:
    """Judge kubelet settings without a cluster: 1 and every problem if a kubelet would not start.

    Reads the ini alone, so that it can run in CI before a change is rolled out.
    """
    from dnm.cli.set_up.node_types import check_node_types

    return check_node_types(config_path, os.environ, types or [], output)


@node_types_app.command("render", cls=Verb)
def types_render(
    node_type: Annotated[str, typer.Argument(help="The node type.")],
    form: Annotated[
        Literal["kubelet", "dropin", "kubeadm-patch"],
        typer.Option("--format", help="What the file is for."),
    ] = "dropin",
    config_path: PathOption = None,
) -> int:
    """Print the kubelet's file for a node of this type; nothing where no key is named."""
    from dnm.cli.set_up.node_types import render_node_type
    from dnm.kubelet.render import Format

    return render_node_type(config_path, os.environ, node_type, Format(form))


# --- state -----------------------------------------------------------------------------------


@state_app.command("move", cls=Verb)
def state_move(
    config: ConfigOption,
    to: Annotated[Literal["file", "kubernetes"], typer.Option("--to", help="Where to.")],
    output: NamesOption = "text",
    reason: ReasonOption = "",
) -> str:
    """Move the registry; refused while a run is at work."""
    from dnm.cli.act import admin

    return admin.move_state(config, to, reason)


# --- all that there are -----------------------------------------------------------------------

# In the order in which the help shows them.
_GROUPS = (
    ("queues", queues_app, SET_UP),
    ("node-types", node_types_app, SET_UP),
    ("state", state_app, SET_UP),
    ("event", event_app, BY_HAND),
)
_VERBS: Mapping[str, Sequence[Callable[..., object]]] = {
    LOOK: (look.plan, look.status, look.nodes, look.history, look.report, look.explain),
    SET_UP: (look.check,),
    ACT: (change.pause, change.resume, change.reset, change.forget, change.takeover),
    BY_HAND: (change.lend, change.extend, change.adopt, change.hold, change.unhold,
              change.exclude, change.unexclude),
}  # fmt: skip


def add_verbs(app: typer.Typer) -> None:
    """Adds all verbs to the app."""
    for name, group, part in _GROUPS:
        app.add_typer(group, name=name, rich_help_panel=part)
    for part, verbs in _VERBS.items():
        for verb in verbs:
            app.command(rich_help_panel=part, cls=Verb)(verb)
    app.command("test-load", rich_help_panel=SET_UP, cls=Verb)(test_load)
    app.command("return", rich_help_panel=BY_HAND, cls=Verb)(change.give_back)
    _add_wings(app)


def _add_wings(app: typer.Typer) -> None:
    """Adds the verbs of the wings that are here; a production host has no lab."""
    if find_spec("dnm.simulate"):
        app.command(rich_help_panel=LOOK, cls=Verb)(look.simulate)
    if find_spec("dnm.converters"):
        app.command(rich_help_panel=SET_UP, cls=Verb)(change.convert_test)
    if find_spec("dnm.lab"):
        from dnm.lab import verbs

        sandbox = sub_app(verbs.SANDBOX_HELP)
        verbs.add_to_sandbox(sandbox)
        app.add_typer(sandbox, name="sandbox", rich_help_panel=SET_UP)
        app.command("demo", rich_help_panel=SET_UP)(verbs.demo)
