"""The table of commands. A command's module is imported if the command is named: `dnm status` loads
no Kubernetes client."""

from __future__ import annotations

from collections.abc import Mapping

from dnm.cli.terminal.commands import ACT, BY_HAND, LOOK, SET_UP, Entry


def _of(
    panel: str, module: str, prefix: str = "", needs: str = "", /, **texts: str
) -> dict[str, Entry]:
    """Returns the commands of a module, which are functions of their names: `test_load` is
    `test-load`, `list_` is `list`. A text is the first line of the function's docstring."""
    return {
        prefix + name.rstrip("_").replace("_", "-"): Entry(panel, text, f"{module}:{name}", needs)
        for name, text in texts.items()
    }


# In the order of the help.
TABLE: Mapping[str, Entry] = {
    **_of(LOOK, "cli.look.report", plan="Show what a run would do and why; writes nothing."),
    **_of(LOOK, "cli.look.status", status="Show lent nodes, queues, brakes and the last run."),
    **_of(LOOK, "cli.look.nodes", nodes="Show which batch nodes could be lent now."),
    **_of(LOOK, "cli.look.history", history="Show what happened, and why; newest last."),
    **_of(LOOK, "cli.look.lending_report",
          report="Show what was lent, for whom, how long pods waited, what held nodes back."),
    **_of(LOOK, "cli.look.explain",
          explain="Say what is decided of a node, a queue or a pod, why, what would change it."),
    **_of(LOOK, "cli.look.simulation", "", "dnm.simulate",
          simulate="Play the record, or a workload, under this configuration and another one."),
    **_of(ACT, "cli.act.run", run="Make one pass: look, decide, do a little, record."),
    **_of(ACT, "cli.act.admin",
          pause="Stop lending and returning until resumed or for a while, or one of them.",
          resume="End the pause.",
          reset="Reset a breaker, a back-off or failed nodes."),
    **_of(ACT, "cli.act.takeover",
          forget="Drop a node that a person has returned to Slurm.",
          takeover="Act for the instance from here, in another host's place."),
    **_of(BY_HAND, "cli.by_hand.nodes",
          lend="Lend N more nodes, which stay until their time is over (4h), idle or not.",
          extend="Keep lent nodes, or an order and what came of it, until then, idle or not."),
    **_of(BY_HAND, "cli.by_hand.adopt",
          adopt="Take in a node that came to Kubernetes by hand."),
    **_of(BY_HAND, "cli.by_hand.keeping",
          hold="Keep nodes as they are: lent ones stay, others are not taken.",
          unhold="Let held nodes go back, or be lent, again.",
          exclude="Keep nodes out of lending; lent ones serve on, and are not lent again.",
          unexclude="Let excluded nodes be lent again."),
    **_of(BY_HAND, "cli.by_hand.giving_back",
          return_="Fence lent nodes; each goes back once its pods have ended, or were evicted."),
    "event": Entry(BY_HAND, "Events that are known beforehand, and when they begin to matter."),
    **_of("", "cli.by_hand.events", "event ",
          add="Add an event to the record; the next runs act on it.",
          remove="Remove an added event; nodes that it brought go back when they are idle.",
          list_="List all events, from wherever they are, the next one first."),
    **_of(SET_UP, "cli.set_up.check", check="Try now what could go wrong at 3 a.m."),
    **_of(SET_UP, "cli.set_up.test_load",
          test_load="Create sleeping pods that may land on lent nodes, and show their progress."),
    **_of(SET_UP, "cli.set_up.convert_test", "", "dnm.converters",
          convert_test="Move a node to Kubernetes and back, and name what is left over."),
    **_of(SET_UP, "lab.verbs", "", "dnm.lab", demo="Play a workshop on an embedded cluster."),
    "queues": Entry(SET_UP, "Look at, check and mend the queue document."),
    **_of("", "cli.set_up.queue_verbs", "queues ",
          check="Say whether dnm can edit queue documents: 0 if so, 1 and every reason if not.",
          show="Show the tree: limit, baseline, lent by node, used, headroom."),
    **_of("", "cli.set_up.rebase", "queues ",
          rebase="Answer dnm's question about limits that it can't explain."),
    "node-types": Entry(SET_UP, "Look at node types and at what their kubelets shall be."),
    **_of("", "cli.set_up.node_types", "node-types ",
          check="Judge kubelet settings without a cluster: 1 and every problem, or 0.",
          render="Print the kubelet's file for a node of this type."),
    "state": Entry(SET_UP, "Where the registry is: in a file, or in Kubernetes."),
    **_of("", "cli.set_up.state", "state ", move="Move the registry; refused during a run."),
    "sandbox": Entry(SET_UP, "An embedded cluster to try dnm on.", "", "dnm.lab"),
    **_of("", "lab.verbs", "sandbox ", "dnm.lab",
          up="Start an embedded cluster and say how to use it.",
          down="Stop the embedded cluster."),
}  # fmt: skip
