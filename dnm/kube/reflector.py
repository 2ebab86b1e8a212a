"""The lists of pods and nodes, kept current by a watch, and their store for the next run.

If the watch cannot prove that it is complete, the same run reads full lists. The store alone never
decides that a node is returned: `run/actuator.py` lists the node's pods again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta

import msgspec

from dnm.host.fault_points import fault_point
from dnm.kube.access import Access
from dnm.kube.apply_changes import catch_up, find_differences
from dnm.kube.errors import ApiRefused, clean, describe
from dnm.kube.objects import read_uid
from dnm.kube.pod_columns import PodColumns, make_columns
from dnm.kube.pods import UNFINISHED, PodReducer
from dnm.kube.requests import ApiRequests
from dnm.kube.store import (
    Store,
    StoreFile,
    StoreHead,
    encode_rest,
    encode_store,
    note_distrust,
    read_distrust,
    read_store,
    remove_store,
    write_store,
)
from dnm.kube.watching import NotProved, OpenWatchers, Why, Witness, read_version, watch_over_http
from dnm.model.cluster import Reading
from dnm.model.config import Config
from dnm.model.errors import KubeError
from dnm.model.node import Node
from dnm.model.pod import PodList
from dnm.model.quantity import QuantityError
from dnm.queues import pod_reading_of

_RETRY_SHARE = 1 / 6  # of the time between full lists, until the next watch
_MOST_UNPROVED = 3  # consecutive watches without proof, then none until the next list
_BROKEN = (OSError, msgspec.MsgspecError, QuantityError, ValueError, RecursionError)


class Reflector:
    """A keeper of current lists of pods and nodes, like client-go's Reflector. A file keeps them
    from run to run. `pods` and `nodes` are valid after `look` has returned True."""

    def __init__(
        self,
        config: Config,
        now: datetime,
        open_watchers: OpenWatchers | None = None,
        is_due: bool = False,
    ) -> None:
        """`open_watchers` opens the watches of nodes and pods, by default over HTTP. With `is_due`,
        the run reads the full lists even if the last ones are recent."""
        self._is_due = is_due
        self._open_watchers = open_watchers or watch_over_http
        self._config = config
        self._now = now
        self._path = config.store_path
        self._file: StoreFile | None = None
        self._looked = False
        self._store: Store | None = None
        self._nodes: tuple[tuple[Node, ...], str] | None = None
        self._pods: PodReducer | None = None
        self._pods_version = ""
        self.reading = Reading()
        self.nodes: tuple[Node, ...] = ()
        self.pods = PodList(pods=())

    # --- before the lists ---------------------------------------------------------------------

    def look(self, requests: ApiRequests) -> bool:
        """Returns whether a watch has sent all changes since the store was written. If that is not
        proved, `reading` has the reason."""
        if not self._looked:
            self._looked = True
            try:
                with _not_proved():
                    self._file = self._open(requests.access)
                    self._store = self._read_changes(requests, self._file)
            except NotProved as lack:
                self.reading = Reading(reason=lack.why, sentence=str(lack))
        return self._store is not None

    def _open(self, access: Access) -> StoreFile:
        if distrust := read_distrust(self._path):
            raise NotProved(Why.DISTRUSTED, distrust)
        file = StoreFile(read_store(self._path))
        if file.head.lens != self._lens(access):
            raise NotProved(Why.FOREIGN, "it was kept by another dnm, or for other settings")
        self._file = file  # valid for a comparison
        age, interval = self._now - file.head.listed_at, self._config.relist_interval
        if file.head.rests == Why.TOO_MUCH:
            interval *= _RETRY_SHARE
        if self._is_due or not timedelta(0) <= age < interval:
            raise NotProved(Why.DUE, "the last full list is too old")
        if file.head.rests:
            raise _rest(file)
        return file

    def _lens(self, access: Access) -> tuple[str, ...]:
        from importlib.metadata import version

        config = self._config
        reading = pod_reading_of(config)
        read = f"{config.has_aligned_pods} {config.has_kubelets} {reading.scheduler}"
        keys = ",".join((*reading.labels, *reading.annotations))
        namespaces = ",".join(sorted(reading.namespaces))
        return version("dnm"), access.server, UNFINISHED, read, keys, namespaces

    def _read_changes(self, requests: ApiRequests, file: StoreFile) -> Store:
        head = file.head
        if _read_cluster(requests) != head.cluster:
            raise NotProved(Why.FOREIGN, "it was kept for another cluster")
        with self._open_watchers(requests.access, self._config) as watchers:
            store, logs = catch_up(self._config, watchers, file)
            waited = sum(watcher.waited for watcher in watchers)
        self.nodes = store.nodes
        self.pods = PodList(pods=store.pods.to_pods())
        changes = sum(len(log.changes) for log in logs)
        self.reading = Reading(way="changes", changes=changes, waited=waited)
        return store

    # --- after the lists ----------------------------------------------------------------------

    def learn_nodes(self, nodes: tuple[Node, ...], version: str) -> None:
        """Records the full list of nodes that the run has read."""
        self._nodes = nodes, version

    def learn_pods(self, reducer: PodReducer, version: str) -> None:
        """Records the full list of the cluster's pods that the run has read."""
        self._pods, self._pods_version = reducer, version

    def keep(self, requests: ApiRequests) -> Reading:
        """Writes the store for the next run if it has changed. Returns how this run has read, and
        why a write failed. After a failed write, the next run reads the full lists."""
        try:
            if self._store is not None:
                if self.reading.changes:
                    write_store(self._path, encode_store(self._store))
            elif self.reading.reason != Why.DISTRUSTED:
                self._keep_lists(requests)
        except OSError as error:
            sentence = f"{self._path} can't be written ({error.strerror or error})"
            self._change(sentence=sentence)
        except NotProved as lack:
            self._change(reason=str(lack.why), sentence=str(lack))
        return self.reading

    def compare(self, requests: ApiRequests) -> Reading:
        """Compares the full lists of this run with the store and writes nothing. If there is
        nothing to compare, `reading` has the reason."""
        try:
            lists = self._lists()
            if lists is not None and self.reading.reason == Why.DUE and self._file is not None:
                self._compare(requests, self._file, *lists)
        except NotProved as lack:
            self._change(reason=str(lack.why), sentence=str(lack))
        return self.reading

    def _change(self, **changes: str) -> None:
        self.reading = msgspec.structs.replace(self.reading, **changes)

    def _keep_lists(self, requests: ApiRequests) -> None:
        before = self._file.head if self._file is not None else None
        if before is not None and before.rests and self.reading.reason != Why.DUE:
            return  # the file has the reason already
        if before is not None and self.reading.reason == Why.TOO_MUCH:
            # Making columns of the list would take another tenth of the time of the list.
            rest = msgspec.structs.replace(before, rests=Why.TOO_MUCH, listed_at=self._now)
            write_store(self._path, encode_rest(rest))
            return
        lists = self._lists()
        if lists is None:
            return
        nodes, pods = lists
        if not (nodes and pods.names):
            raise self._without_store(Why.SMALL, "there is no object that could change")
        if len(pods.names) < self._config.watch_from_pods:
            raise self._without_store(Why.SMALL, "it is a small cluster")
        if self.reading.reason == Why.DUE and self._file and not self._file.head.rests:
            self._compare(requests, self._file, nodes, pods)
            if self.reading.trouble:
                note_distrust(self._path, self.reading.trouble)
                remove_store(self._path)
                return
        self._write(requests, nodes, pods)

    def _without_store(self, why: Why, sentence: str) -> NotProved:
        remove_store(self._path)
        return NotProved(why, sentence)

    def _lists(self) -> tuple[tuple[Node, ...], PodColumns] | None:
        """Returns the full lists of nodes and pods, or None if the run has not read them. Raises
        NotProved if they cannot be stored."""
        if self._nodes is None:
            return None
        if self._pods is None:
            raise NotProved(Why.PARTIAL, "the pods of the whole cluster were not listed")
        if self._pods.unreadable:
            raise NotProved(Why.UNREADABLE, next(iter(self._pods.unreadable.values())))
        versions = self._pods.versions
        if min(versions, default=0) < 0:
            raise NotProved(Why.UNREADABLE, "a pod has no resourceVersion that can be compared")
        return self._nodes[0], make_columns(self._pods.pods, versions)

    def _write(self, requests: ApiRequests, nodes: tuple[Node, ...], pods: PodColumns) -> None:
        before = self._file.head if self._file is not None else None
        assert self._nodes is not None
        unproved = before.unproved + 1 if before and self.reading.reason == Why.UNPROVED else 0
        rests = Why.UNPROVED if unproved >= _MOST_UNPROVED else ""
        cluster = ""
        try:
            with _not_proved():
                cluster = _read_cluster(requests)
        except NotProved as lack:
            if lack.why is not Why.FORBIDDEN:
                raise
            self._change(reason=str(lack.why), sentence=str(lack))
        if self.reading.reason == Why.FORBIDDEN:
            rests = Why.FORBIDDEN
        with _not_proved():
            listed = [read_version(text) for text in (self._nodes[1], self._pods_version)]
            last_node, last_pod = _newest_node(nodes), _newest_pod(pods)
        head = StoreHead(
            lens=self._lens(requests.access), cluster=cluster, listed_at=self._now,
            nodes_version=last_node.version, nodes_listed=listed[0], last_node=last_node,
            pods_version=last_pod.version, pods_listed=listed[1], last_pod=last_pod,
            pods=len(pods.names), unproved=unproved, rests=rests,
        )  # fmt: skip
        content = encode_rest(head) if rests else encode_store(Store(head, pods, nodes))
        write_store(self._path, content)

    def _compare(
        self, requests: ApiRequests, file: StoreFile, nodes: tuple[Node, ...], pods: PodColumns
    ) -> None:
        """Follows the changes from the store up to the full lists, and compares the result with the
        lists."""
        if file.head.rests:
            raise _rest(file)
        assert self._nodes is not None
        try:
            with _not_proved(), self._open_watchers(requests.access, self._config) as watchers:
                lasts = read_version(self._nodes[1]), read_version(self._pods_version)
                store, _ = catch_up(self._config, watchers, file, lasts)
        except NotProved as lack:
            self._change(compared="unproved", sentence=f"{lack.why}: {lack}")
            return
        differences = find_differences((store.nodes, store.pods), (nodes, pods))
        self._change(compared="different" if differences else "equal", trouble=differences)


def _rest(file: StoreFile) -> NotProved:
    sentence = "a watch is tried again after the next full list"
    return NotProved(Why(file.head.rests), sentence)


def _newest_node(nodes: Sequence[Node]) -> Witness:
    newest = max(nodes, key=lambda node: read_version(node.resource_version), default=None)
    if newest is None:
        return Witness()
    return Witness("", newest.name, read_version(newest.resource_version))


def _newest_pod(pods: PodColumns) -> Witness:
    if not pods.names:
        return Witness()
    row = max(range(len(pods.names)), key=pods.versions.__getitem__)
    return Witness(pods.namespace_of(row), pods.names[row], pods.versions[row])


def _read_cluster(requests: ApiRequests) -> str:
    """Returns the identity of this cluster: the uid of the namespace kube-system."""
    asking = requests.asking("identify this cluster", "get namespaces")
    with asking, fault_point("kube.read_cluster"):
        return read_uid(requests.session.read("/api/v1/namespaces/kube-system").body)


@contextmanager
def _not_proved() -> Iterator[None]:
    """Turns every failure into NotProved, with the reason for which the run reads the full list."""
    try:
        yield
    except ApiRefused as error:
        why = {403: Why.FORBIDDEN, 410: Why.EXPIRED}.get(error.status, Why.FAILED)
        raise NotProved(why, str(error)) from error
    except KubeError as error:
        raise NotProved(Why.FAILED, str(error)) from error
    except _BROKEN as error:
        raise NotProved(Why.FAILED, clean(describe(error))) from error
