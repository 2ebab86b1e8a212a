"""The table of commands. A command's module is imported only for that command: `dnm status` loads
no Kubernetes client."""

from __future__ import annotations

from collections.abc import Mapping

from dnm.cli.terminal.commands import ACT, LOOK, MANUAL, SET_UP, Entry


def _of(
    panel: str, module: str, prefix: str = "", needs: str = "", /, **texts: str
) -> dict[str, Entry]:
    """Returns the commands of a module by name: the function `test_load` is `test-load`, `list_` is
    `list`. Each text is the first line of the function's docstring."""
    return {
        prefix + name.rstrip("_").replace("_", "-"): Entry(panel, text, f"{module}:{name}", needs)
        for name, text in texts.items()
    }


# In the order of the help.
TABLE: Mapping[str, Entry] = {
    **_of(LOOK, "cli.look.report", plan="Show what a run would do and why; write nothing."),
    **_of(LOOK, "cli.look.status", status="Show lent nodes, queues, brakes and the last run."),
    **_of(LOOK, "cli.look.nodes", nodes="Show which batch nodes could be lent now."),
    **_of(LOOK, "cli.look.history", history="Show what happened and why, newest last."),
    **_of(LOOK, "cli.look.lending_report",
          report="Show what was lent to which queues, how long pods waited, what blocked lending."),
    **_of(LOOK, "cli.look.explain",
          explain="Explain the decision about a node, queue or pod, and what would change it."),
    **_of(LOOK, "cli.look.simulation", "", "dnm.simulate",
          simulate="Simulate the history or a workload, with this configuration and another."),
    **_of(ACT, "cli.act.run", run="Run once: observe, decide, act, and record."),
    **_of(ACT, "cli.act.admin",
          pause="Stop lending, returning or both, for a time or until `dnm resume`.",
          resume="End the pause.",
          reset="Reset a circuit breaker, a back-off or failed nodes."),
    **_of(ACT, "cli.act.takeover",
          forget="Remove a node from the registry that was returned to Slurm manually.",
          takeover="Take over this instance from another host."),
    **_of(MANUAL, "cli.by_hand.nodes",
          lend="Lend N more nodes for a time (default 4h), idle or not.",
          extend="Extend the time for which lent nodes, or the nodes of an order, are kept."),
    **_of(MANUAL, "cli.by_hand.adopt",
          adopt="Start managing a node that was moved to Kubernetes manually."),
    **_of(MANUAL, "cli.by_hand.keeping",
          hold="Keep nodes as they are: lent nodes stay lent, other nodes are not lent.",
          unhold="Allow held nodes to be returned, or lent, again.",
          exclude="Exclude nodes from lending; lent nodes serve until they are idle.",
          unexclude="Allow excluded nodes to be lent again."),
    **_of(MANUAL, "cli.by_hand.giving_back",
          return_="Fence lent nodes; return each when its pods have ended or were evicted."),
    "event": Entry(MANUAL, "Add, remove and list planned events that need nodes."),
    **_of("", "cli.by_hand.events", "event ",
          add="Add an event to the registry; the next runs act on it.",
          remove="Remove an added event; its nodes are returned when they are idle.",
          list_="List the events of all sources, the next event first."),
    **_of(SET_UP, "cli.set_up.check", check="Check configuration, permissions and clusters."),
    **_of(SET_UP, "cli.set_up.test_load",
          test_load="Create sleeping pods that can run on lent nodes, and show their progress."),
    **_of(SET_UP, "cli.set_up.convert_test", "", "dnm.converters",
          convert_test="Move a node to Kubernetes and back, and report what is left on it."),
    **_of(SET_UP, "lab.verbs", "", "dnm.lab", demo="Play a workshop on an embedded cluster."),
    "queues": Entry(SET_UP, "Check, show and rebase the queue document."),
    **_of("", "cli.set_up.queue_verbs", "queues ",
          check="Check whether dnm can edit queue documents; print the reasons if not (code 1).",
          show="Show the queue tree: limit, baseline, lent by node, used, headroom."),
    **_of("", "cli.set_up.rebase", "queues ",
          rebase="Record what limits contain that dnm cannot explain."),
    "node-types": Entry(SET_UP, "Check node types, and print their kubelets' settings."),
    **_of("", "cli.set_up.node_types", "node-types ",
          check="Check kubelet settings without a cluster; print every problem (exit code 1).",
          render="Print the kubelet configuration file for a node of this type."),
    "state": Entry(SET_UP, "Move the registry to a file or to Kubernetes."),
    **_of("", "cli.set_up.state", "state ", move="Move the registry; not possible during a run."),
    "sandbox": Entry(SET_UP, "Start and stop an embedded cluster to try dnm on.", "", "dnm.lab"),
    **_of("", "lab.verbs", "sandbox ", "dnm.lab",
          up="Start an embedded cluster and print how to use it.",
          down="Stop the embedded cluster."),
}  # fmt: skip
