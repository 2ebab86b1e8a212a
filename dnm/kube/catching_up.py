"""What is kept, brought to a later moment by what watches tell."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from dnm.kube.apply_changes import apply_to_nodes, apply_to_pods
from dnm.kube.nodes import read_node_page
from dnm.kube.pods import make_reducer
from dnm.kube.store import Store, StoreFile, StoreHead
from dnm.kube.watch_log import NotProved, WatchLog, Why
from dnm.kube.watching import Watches
from dnm.model.config import Config
from dnm.model.pod import Pod


def catch_up(
    config: Config,
    watchers: tuple[Watches, Watches],
    file: StoreFile,
    lasts: tuple[int | None, int | None] = (None, None),
) -> tuple[Store, tuple[WatchLog, WatchLog]]:
    """Returns the store after all changes, up to the versions `lasts` where they are given; of
    nodes and pods. It is decoded while the server works. Raises NotProved."""
    logs, found = _begin(watchers, file.head, lasts)
    store = file.decode()
    for watcher, log, version in zip(watchers, logs, found, strict=True):
        watcher.follow(log)
        log.check_witness(version)
    of_nodes, of_pods = logs
    of_nodes.check_ends((node.name for node in store.nodes), lambda change: change.name)
    of_pods.check_ends(store.pods.uids, lambda change: change.uid)
    nodes = apply_to_nodes(
        store.nodes, of_nodes.changes, lambda page: read_node_page(page, config.has_kubelets)
    )
    apply_to_pods(store.pods, of_pods.changes, lambda page: _reduce_pods(config, page))
    head = msgspec.structs.replace(
        store.head, nodes_version=of_nodes.version, last_node=of_nodes.last_witness,
        pods_version=of_pods.version, last_pod=of_pods.last_witness, unproved=0,
    )  # fmt: skip
    return Store(head, store.pods, nodes), logs


def _reduce_pods(config: Config, page: bytes) -> Sequence[Pod]:
    reducer = make_reducer(config)
    reducer.add(page)
    if reducer.unreadable:
        raise NotProved(Why.UNREADABLE, next(iter(reducer.unreadable.values())))
    return reducer.pods


def _begin(
    watchers: tuple[Watches, Watches], head: StoreHead, lasts: tuple[int | None, int | None]
) -> tuple[tuple[WatchLog, WatchLog], tuple[int, int]]:
    """Begins both watches; returns their logs, and the versions at which the witnesses are."""
    of_nodes, of_pods = watchers
    nodes_goal, node = of_nodes.read_barrier(head.last_node)
    pods_goal, pod = of_pods.read_barrier(head.last_pod)
    logs = (
        WatchLog("Node", head.nodes_version, nodes_goal, head.last_node, lasts[0],
                 head.nodes_listed),
        WatchLog("Pod", head.pods_version, pods_goal, head.last_pod, lasts[1], head.pods_listed),
    )  # fmt: skip
    for watcher, log in zip(watchers, logs, strict=True):
        if not log.is_proved:
            watcher.begin(log.reached)
    return logs, (node, pod)
