"""The queue systems for the contract tests: a cluster with a limit, and what may change it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Protocol

import msgspec

from dnm.kube.client import KubeClient
from dnm.lab.sandbox.cluster import Sandbox
from dnm.lab.sandbox.yunikorn_config import CONFIGS_NAME
from dnm.model.config import Config, NamespacePolicy
from dnm.model.errors import QueueError
from dnm.model.queue_edit import QueueEdit, QueueOutcome, QueueWants
from dnm.model.value import Resources
from dnm.queues import system_of
from dnm.queues.system import Queues
from tests.builders import a_config
from tests.queue_kit import ONE_LIMIT
from tests.queues.kueue.case import KueueCase, ProviderCase, QuotaInQueueCase
from tests.queues.ledgers import ledger_of, store_ledger

SIZE: Resources = {"cpu": 128_000, "memory": 256 * 10**9, "pods": 110}
Nodes = Mapping[str, Resources]


class QueueCase(Protocol):
    """A queue system on the sandbox, with two queues.

    `queue` has a limit of 80 cores (`baseline`) and 320 GB, or of nothing. `unlimited` has no
    limit."""

    queue: str
    unlimited: str
    baseline: int  # millicores
    config: Config

    def __init__(self, sandbox: Sandbox) -> None: ...

    def stored(self) -> Any:
        """Returns the limits and the ledger in the cluster, for comparison."""

    def stored_cores(self) -> int | None:
        """Returns the limit of `queue` in millicores; None if this system stores none."""

    def change_elsewhere(self) -> None:
        """Changes a part of the object that dnm does not write."""

    def ledger(self) -> str: ...

    def replace_ledger(self, text: str) -> None:
        """Stores another ledger, or removes it if the text is empty."""


class YunikornCase:
    queue, unlimited, baseline = "root.dev", "root.free", 80_000
    text = ONE_LIMIT.replace("x\n", "dev   # of the workshops\n").replace(
        "80}}\n", "80, memory: 320G}}\n    - name: free\n"
    )

    def __init__(self, sandbox: Sandbox) -> None:
        self.sandbox = sandbox
        sandbox.set_queues(self.text)
        self.config = a_config(
            namespaces={
                "dev": NamespacePolicy(name="dev", queue=self.queue, node_types=("a",)),
                "free": NamespacePolicy(name="free", queue=self.unlimited, node_types=("a",)),
            },
            kubeconfig_path=sandbox.kubeconfig,
        )

    def _map(self) -> Any:
        return self.sandbox.get("configmaps", CONFIGS_NAME, "yunikorn")

    def stored(self) -> Any:
        current = self._map()
        return current["data"], self.ledger()

    def stored_cores(self) -> int | None:
        limits = (
            system_of(self.config)
            .read_queues(self.config, system_of(self.config).collect(self.config, self._client()))
            .limits
        )
        return limits[self.queue].max["cpu"]

    def _client(self) -> KubeClient:
        return KubeClient.connect(self.config)

    def change_elsewhere(self) -> None:
        text = self.sandbox.queues_text()
        self.sandbox.set_queues(text.replace("of the workshops", "of all courses"))

    def ledger(self) -> str:
        return ledger_of(self._map())

    def replace_ledger(self, text: str) -> None:
        store_ledger(self.sandbox, "configmaps", CONFIGS_NAME, text, "yunikorn")


class NoneCase:
    queue, unlimited, baseline = "dev", "free", 80_000

    def __init__(self, sandbox: Sandbox) -> None:
        self.sandbox = sandbox
        self.config = a_config(
            namespaces={
                name: NamespacePolicy(name=name, queue=name, node_types=("a",), queue_system="none")
                for name in ("dev", "free")
            },
            kubeconfig_path=sandbox.kubeconfig,
        )

    def stored(self) -> Any:
        return len(self.sandbox.requests.writes())

    def stored_cores(self) -> int | None:
        return None

    def change_elsewhere(self) -> None:
        """Does nothing, because without a queue system there is no object."""

    def ledger(self) -> str:
        return ""

    def replace_ledger(self, text: str) -> None:
        """Does nothing, because without a queue system there is no ledger."""


class QuotaCase:
    """A ResourceQuota, which also limits ConfigMaps, and a namespace without a ResourceQuota."""

    queue, unlimited, baseline = "dev", "free", 80_000
    HARD: ClassVar[dict[str, str]] = {
        "requests.cpu": "80", "limits.cpu": "160", "requests.memory": "320G", "configmaps": "9",
    }  # fmt: skip

    def __init__(self, sandbox: Sandbox) -> None:
        self.sandbox = sandbox
        self.config = a_config(
            namespaces={
                name: NamespacePolicy(
                    name=name, queue=name, node_types=("a",), queue_system="resource_quota"
                )
                for name in ("dev", "free")
            },
            kubeconfig_path=sandbox.kubeconfig,
        )
        for name in ("dev", "free"):
            sandbox.add_namespace(name)
        metadata = {"name": "q", "namespace": "dev", "annotations": {"owner": "lab"}}
        quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": metadata}
        sandbox.create({**quota, "spec": {"hard": dict(self.HARD)}})

    def _quota(self) -> Any:
        return self.sandbox.get("resourcequotas", "q", "dev")

    def stored(self) -> Any:
        quota = self._quota()
        notes = {key: text for key, text in quota["metadata"]["annotations"].items()
                 if not key.endswith("/fence")}  # fmt: skip
        return quota["spec"], notes

    def stored_cores(self) -> int | None:
        return int(1000 * float(self._quota()["spec"]["hard"]["requests.cpu"]))

    def change_elsewhere(self) -> None:
        def change(item: Any) -> None:
            item["spec"]["hard"]["configmaps"] = "12"
            item["metadata"]["annotations"]["owner"] = "course"

        self.sandbox.edit("resourcequotas", "q", change, "dev")

    def ledger(self) -> str:
        return ledger_of(self._quota())

    def replace_ledger(self, text: str) -> None:
        store_ledger(self.sandbox, "resourcequotas", "q", text, "dev")


CASES: Mapping[str, type[QueueCase]] = {
    "yunikorn": YunikornCase,
    "kueue": KueueCase,
    "kueue without Cohorts": QuotaInQueueCase,
    "kueue with CapacityProviders": ProviderCase,
    "none": NoneCase,
    "resource_quota": QuotaCase,
}


class KilledError(BaseException):
    """The exception that ends dnm as SIGKILL would: nothing in dnm catches it."""


class DyingClient:
    """A Kubernetes client that plays a kill of dnm before or after call number `at`. With an
    `error` it raises that error instead, also at all later calls if `is_lasting`."""

    def __init__(
        self,
        client: Any,
        at: int = 0,
        is_after: bool = False,
        error: BaseException | None = None,
        is_lasting: bool = False,
    ) -> None:
        self._client, self._at, self._is_after = client, at, is_after
        self._error, self._is_lasting = error or KilledError(), is_lasting
        self.calls = 0

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._client, name)
        if name in ("typed_objects", "kueue_objects"):
            return _DyingPart(self, method)
        return self.counted(method) if callable(method) else method

    def counted(self, method: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            self.calls += 1
            is_later = self._is_lasting and self.calls > self._at
            is_here = self.calls == self._at
            if is_later or (is_here and not self._is_after):
                raise self._error
            result = method(*arguments, **options)
            if is_here:
                raise self._error
            return result

        return call


class _DyingPart:
    """A part of a DyingClient, such as `typed_objects`. Its calls count too."""

    def __init__(self, client: DyingClient, part: Any) -> None:
        self._client, self._part = client, part

    def __getattr__(self, name: str) -> Any:
        return self._client.counted(getattr(self._part, name))


class Host:
    """An instance of dnm on a host: it writes limits and keeps the ledger, as a registry does."""

    def __init__(self, case: QueueCase, instance: str = "prod") -> None:
        self.case = case
        self.config = msgspec.structs.replace(case.config, instance_id=instance)
        self.system = system_of(self.config)
        self.remembered: str | None = ""

    def wants(
        self, nodes: Nodes, queue: str = "", floors: Mapping[str, Resources] = {}
    ) -> QueueWants:
        return QueueWants(
            instance_id=self.config.instance_id,
            nodes={queue or self.case.queue: nodes} if nodes else {},
            floors=floors,
            remembered=self.remembered,
        )

    def read(self) -> Queues:
        kube = KubeClient.connect(self.config)
        return self.system.read_queues(self.config, self.system.collect(self.config, kube))

    def plan(self, nodes: Nodes, **options: Any) -> QueueEdit:
        wants, queues = self.wants(nodes, **options), self.read()
        return queues.plan(wants, queues.project(wants))

    def write(
        self,
        nodes: Nodes,
        *,
        kube: Any = None,
        before_write: Callable[[], None] = lambda: None,
        planned: QueueEdit | None = None,
        **options: Any,
    ) -> QueueOutcome:
        kube = kube or KubeClient.connect(self.config)
        outcome = self.system.write(
            self.config, kube, self.wants(nodes, **options), planned, before_write
        )
        self.remembered = outcome.edit.record
        return outcome

    def write_all(self, nodes: Nodes) -> None:
        """Writes the limits for these nodes. Raises QueueError if one queue failed."""
        for failure in self.write(nodes).failed.values():
            raise QueueError(failure)


def lent(*names: str) -> dict[str, Resources]:
    return dict.fromkeys(names, SIZE)
