"""The table of commands. Only the module of the chosen command is imported, so that `dnm status`
loads no Kubernetes client."""

from __future__ import annotations

from collections.abc import Mapping

from dnm.cli.terminal.commands import ACT, LOOK, MANUAL, SET_UP, Entry


def _of(
    panel: str, module: str, prefix: str = "", needs: str = "", /, **texts: str
) -> dict[str, Entry]:
    """Returns the commands of a module by name: the function `test_load` is the command
    `test-load`, `list_` is `list`. `texts` maps each function to its text in the help."""
    return {
        prefix + name.rstrip("_").replace("_", "-"): Entry(panel, text, f"{module}:{name}", needs)
        for name, text in texts.items()
    }


# In the order of the help.
TABLE: Mapping[str, Entry] = {
    **_of(LOOK, "cli.look.report", plan="Show what a run would do and why; change nothing."),
    **_of(LOOK, "cli.look.status", status="Show lent nodes, queues, restrictions and last run."),
    **_of(LOOK, "cli.look.nodes", nodes="Show for each Slurm node whether it could be lent now."),
    **_of(LOOK, "cli.look.history", history="Show what happened and why, newest last."),
    **_of(LOOK, "cli.look.lending_report",
          report="Report what was lent, how long pods waited, and what blocked lending."),
    **_of(LOOK, "cli.look.explain",
          explain="Explain the decision about a node, queue or pod, and what would change it."),
    **_of(LOOK, "cli.look.simulation", "", "dnm.simulate",
          simulate="Simulate the history or a workload, and compare configurations."),
    **_of(ACT, "cli.act.run", run="Read both clusters once, lend and return nodes, and exit."),
    **_of(ACT, "cli.act.admin",
          pause="Stop lending, returning or both, for a time or until `dnm resume`.",
          resume="End a pause.",
          reset="Reset a circuit breaker, a back-off or failed nodes."),
    **_of(ACT, "cli.act.takeover",
          forget="Forget a node that you have returned to Slurm manually.",
          takeover="Take over this instance from another host."),
    **_of(MANUAL, "cli.manual.lending",
          lend="Lend N more nodes and keep them for a time (default 4h), even if idle.",
          extend="Keep lent nodes, or the nodes of an order, for a longer time."),
    **_of(MANUAL, "cli.manual.adopt",
          adopt="Start managing a node that was moved to Kubernetes manually."),
    **_of(MANUAL, "cli.manual.holds",
          hold="Keep nodes as they are: do not return lent nodes, do not lend others.",
          unhold="End a hold, so that dnm can return or lend the nodes again.",
          exclude="Exclude nodes from lending; those that are lent serve until they are idle.",
          unexclude="End an exclusion, so that dnm can lend the nodes again."),
    **_of(MANUAL, "cli.manual.returning",
          return_="Cordon lent nodes, and return each when its pods have ended or are evicted."),
    "event": Entry(MANUAL, "Add, remove and list planned events that need nodes."),
    **_of("", "cli.manual.events", "event ",
          add="Add an event to the registry; the next runs act on it.",
          remove="Remove an added event; its nodes are returned when they are idle.",
          list_="List the events of all sources, the next event first."),
    **_of(SET_UP, "cli.set_up.check", check="Check configuration, permissions and both clusters."),
    **_of(SET_UP, "cli.set_up.test_load",
          test_load="Create sleeping pods that can run on lent nodes, and show their progress."),
    **_of(SET_UP, "cli.set_up.convert_test", "", "dnm.converters",
          convert_test="Move a drained node to Kubernetes and back; report what this changed."),
    **_of(SET_UP, "lab.verbs", "", "dnm.lab",
          demo="Show a workshop of 75 people on an embedded cluster."),
    "queues": Entry(SET_UP, "Check and show the queue document, and explain its limits to dnm."),
    **_of("", "queues.yunikorn.admin.queue_verbs", "queues ",
          check="Check whether dnm can edit queue documents; if not, print why (exit code 1).",
          show="Show the queue tree: limit, baseline, what lent nodes add, used, headroom."),
    **_of("", "queues.yunikorn.admin.rebase_verb", "queues ",
          rebase="Record whether limits that dnm cannot explain include lent nodes."),
    "node-types": Entry(SET_UP, "Check node types, and print kubelet settings for them."),
    **_of("", "cli.set_up.node_types", "node-types ",
          check="Check kubelet settings without a cluster; print all problems (exit code 1).",
          render="Print the kubelet configuration file for a node of this type."),
    "registry": Entry(SET_UP, "Move the registry to a file or to Kubernetes."),
    **_of("", "cli.set_up.registry", "registry ", move="Move the registry while no run is active."),
    "sandbox": Entry(SET_UP, "Start or stop an embedded cluster to try dnm on.", "", "dnm.lab"),
    **_of("", "lab.verbs", "sandbox ", "dnm.lab",
          up="Start an embedded cluster and print how to use it.",
          down="Stop the embedded cluster."),
}  # fmt: skip
