"""`dnm node-types`: its verbs and their options."""

from __future__ import annotations

import os
from enum import StrEnum
from typing import Annotated

import typer

from dnm.cli.options import ConfigOption, NamesOutput, NamesOutputOption, Output, OutputOption
from dnm.cli.verbs import sub_app

node_types_app = sub_app("Look at node types and at what their kubelets shall be.")


class Form(StrEnum):
    """The forms of the file, as `kubelet.render` has them: the help needs them before it."""

    kubelet = "kubelet"
    dropin = "dropin"
    kubeadm_patch = "kubeadm-patch"


@node_types_app.command("list")
def list_(config_path: ConfigOption = None, output: NamesOutputOption = NamesOutput.text) -> None:
    """Show each type: its size, what of it pods get, its kubelet settings."""
    from dnm.cli.node_types import list_node_types

    raise typer.Exit(list_node_types(config_path, os.environ, output))


@node_types_app.command("check")
def check(
    types: Annotated[list[str] | None, typer.Argument(help="Node types; none: all.")] = None,
    config_path: ConfigOption = None,
    output: OutputOption = Output.text,
) -> None:
    """Judge kubelet settings without a cluster: 1 and every problem if a kubelet would not start.

    Reads the ini alone, so that it can run in CI before a change is rolled out.
    """
    from dnm.cli.node_types import check_node_types

    raise typer.Exit(check_node_types(config_path, os.environ, types or [], output))


@node_types_app.command("compare")
def compare(
    node_type: Annotated[str, typer.Argument(help="The node type.")],
    config_path: ConfigOption = None,
) -> None:
    """Hold a running kubelet's own word against the type: what /configz answers, on stdin.

    0 if every value that is named is in force, 1 and each that is not. Ask the kubelet with the
    right to get nodes/configz, never nodes/proxy, which lets its holder run commands in every pod.
    """
    from dnm.cli.node_types import compare_node_type

    raise typer.Exit(compare_node_type(config_path, os.environ, node_type))


@node_types_app.command("render")
def render(
    node_type: Annotated[str, typer.Argument(help="The node type.")],
    form: Annotated[Form, typer.Option("--format", help="What the file is for.")] = Form.dropin,
    config_path: ConfigOption = None,
) -> None:
    """Print the kubelet's file for a node of this type; nothing where no key is named."""
    from dnm.cli.node_types import render_node_type
    from dnm.kubelet.render import Format

    raise typer.Exit(render_node_type(config_path, os.environ, node_type, Format(form.value)))
