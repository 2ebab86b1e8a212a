"""`dnm test-load`: its verbs and their options."""

from __future__ import annotations

from typing import Annotated

import typer

from dnm.cli import completion
from dnm.cli.options import ConfigOption, NamesOutput, NamesOutputOption
from dnm.cli.verbs import load_named_config, sub_app

load_app = sub_app("The validation load: sleeping pods.")
NamespaceOption = Annotated[
    str,
    typer.Option(
        "--namespace", "-n", help="One namespace only.", autocompletion=completion.namespaces
    ),
]


@load_app.command("create")
def create(
    namespace: Annotated[
        str,
        typer.Option(
            "--namespace", "-n", help="Where the pods are.", autocompletion=completion.namespaces
        ),
    ],
    config_path: ConfigOption = None,
    queue: Annotated[
        str,
        typer.Option(help="Else the queue of the namespace.", autocompletion=completion.queues),
    ] = "",
    name: Annotated[str, typer.Option(help="Else a new one.")] = "",
    replicas: Annotated[int, typer.Option(help="Pods.")] = 50,
    cpu: Annotated[str, typer.Option(help="Of each pod.")] = "1000m",
    memory: Annotated[str, typer.Option(help="Of each pod.")] = "2Gi",
    image: Annotated[str, typer.Option(help="It must have `sleep`.")] = "busybox",
    only_lent_nodes: Annotated[
        bool, typer.Option("--only-lent-nodes", help="Select the namespace's lent nodes.")
    ] = False,
    output: NamesOutputOption = NamesOutput.text,
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
    raise typer.Exit(create_load(load_named_config(config_path), load, output.value))


@load_app.command("scale")
def scale(
    name: Annotated[str, typer.Argument(autocompletion=completion.loads)],
    replicas: int,
    namespace: NamespaceOption = "",
    config_path: ConfigOption = None,
    output: NamesOutputOption = NamesOutput.text,
) -> None:
    """Change how many pods a load has."""
    from dnm.cli.test_load import scale_load

    raise typer.Exit(
        scale_load(load_named_config(config_path), name, replicas, namespace, output.value)
    )


@load_app.command("delete")
def delete(
    name: Annotated[
        str, typer.Argument(help="Without it: every load.", autocompletion=completion.loads)
    ] = "",
    namespace: NamespaceOption = "",
    config_path: ConfigOption = None,
    output: NamesOutputOption = NamesOutput.text,
) -> None:
    """Delete one load, or all of them."""
    from dnm.cli.test_load import delete_loads

    raise typer.Exit(delete_loads(load_named_config(config_path), name, namespace, output.value))


@load_app.command("list")
def list_(
    namespace: NamespaceOption = "",
    config_path: ConfigOption = None,
    output: NamesOutputOption = NamesOutput.text,
) -> None:
    """List the loads that are there."""
    from dnm.cli.test_load import list_loads

    raise typer.Exit(list_loads(load_named_config(config_path), namespace, output.value))
