"""Two instances run on one queue document while people lose, keep and put back parts of it: each
leaves the other's section alone, and no node is added twice."""

from __future__ import annotations

import json
import re
import time
import urllib.request
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from dnm.lab.sandbox.cluster import Sandbox
from dnm.model.plan import Pass
from dnm.queues.source import LEDGER_ANNOTATION
from tests.site import Site

PLACE = ("configmaps", "yunikorn-configs", "yunikorn")
NAMESPACES = {"p": ("a", "b"), "q": ("x",)}  # each with a queue of its own name
HEAD = (
    "partitions: [{name: default, placementrules: [{name: provided}], queues: [\n"
    "  {name: root, submitacl: '*', queues: [\n"
)


def document(**limits: int) -> str:
    """Three queues, with limits in cores or without."""
    rows = (
        f"    {{name: {queue}, resources: {{max: {{vcore: {limits[queue]}}}}}}},\n"
        if queue in limits
        else f"    {{name: {queue}}},\n"
        for queue in ("a", "b", "x")
    )
    return f"{HEAD}{''.join(rows)}]}}]}}]\n"


class Two:
    """The instances p and q; a node has 128 cores, and each pod needs one of its own."""

    def __init__(self, sandbox: Sandbox, directory: Path, text: str) -> None:
        self.sandbox = sandbox
        sandbox.clock.set(time.time())
        sandbox.set_queues(text)
        sandbox.add_machines(6)
        self.sites: dict[str, Site] = {}
        for name, namespaces in NAMESPACES.items():
            site = Site(
                sandbox, directory / name, instance_id=name,
                monitored_namespaces=", ".join(namespaces), reversion_idle_seconds=1,
            )  # fmt: skip
            paths = {namespace: f"root.{namespace}" for namespace in namespaces}
            site.write(site.directory / "queues.json", json.dumps(paths))
            self.sites[name] = site

    @property
    def limits(self) -> dict[str, int]:
        found = re.findall(r"name: (\w+), resources: \{max: \{vcore: (\d+)", self.written[0])
        return {queue: int(cores) for queue, cores in found}

    @property
    def written(self) -> tuple[str, str]:
        """What dnm writes: the document and the ledger."""
        return self.sandbox.queues_text(), self.annotations.get(LEDGER_ANNOTATION, "")

    @property
    def annotations(self) -> dict[str, str]:
        return dict((self.sandbox.get(*PLACE) or {})["metadata"].get("annotations") or {})

    def put_annotations(self, annotations: dict[str, str]) -> None:
        name, namespace = PLACE[1:]
        self.sandbox.edit(
            "configmaps", name, lambda one: one["metadata"].update(annotations=annotations),
            namespace,
        )  # fmt: skip

    def run(self, *names: str) -> list[Pass]:
        return [self.sites[name].run() for name in names]

    def lend(self, namespace: str, count: int) -> None:
        """Until so many nodes serve the namespace."""
        self.stop_pods(namespace)
        queue = f"root.{namespace}"
        self.sandbox.add_pods(count, namespace, queue=queue, cpu="100", memory="1G")
        name = next(name for name in NAMESPACES if namespace in NAMESPACES[name])
        for _ in range(3):
            self.sandbox.tick(60)
            self.run(name)
        nodes = self.sites[name].registry.nodes.values()
        assert [node.namespace for node in nodes].count(namespace) == count

    def stop_pods(self, *namespaces: str) -> None:
        for namespace in namespaces:
            for pod in self.sandbox.objects("pods", namespace):
                self.sandbox.delete("pods", pod["metadata"]["name"], namespace)

    def minutes(self, *names: str, count: int = 5) -> list[int]:
        """The writes of each minute in which these run in this order."""
        writes = []
        for _ in range(count):
            seen = [self.written]
            for name in names:
                self.run(name)
                seen.append(self.written)
            writes.append(sum(one != other for one, other in pairwise(seen)))
            self.sandbox.tick(60)
        return writes

    def return_all(self, *names: str) -> None:
        self.stop_pods("a", "b", "x")
        self.sandbox.tick(60)
        self.minutes(*names, count=6)
        assert [site.lent() for site in self.sites.values()] == [[], []]

    def replace(self, text: str) -> None:
        """As `kubectl replace` of a file without annotations does."""
        self._send("PUT", "application/json", "kubectl-replace", {"data": {"queues.yaml": text}})

    def apply(self, text: str) -> None:
        """As `kubectl apply`, which leaves the annotations of others as they are."""
        manifest = {"metadata": {"annotations": {}}, "data": {"queues.yaml": text}}
        last = {"kubectl.kubernetes.io/last-applied-configuration": json.dumps(manifest)}
        body = {**manifest, "metadata": {"annotations": last}}
        patch = "application/merge-patch+json"
        self._send("PATCH", patch, "kubectl-client-side-apply", body)

    def _send(self, method: str, content: str, manager: str, body: dict[str, Any]) -> None:
        kind, name, namespace = PLACE
        metadata = {"name": name, "namespace": namespace, **body.pop("metadata", {})}
        object_ = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, **body}
        path = f"/api/v1/namespaces/{namespace}/{kind}/{name}?fieldManager={manager}"
        request = urllib.request.Request(
            self.sandbox.url + path, json.dumps(object_).encode(), {"Content-Type": content},
            method=method,
        )  # fmt: skip
        with urllib.request.urlopen(request, timeout=60) as answer:
            assert answer.status == 200


def test_the_last_node_goes_back_where_no_limit_moves(sandbox: Sandbox, tmp_path: Path) -> None:
    """p remembers the section that q took away, and must not write it again."""
    two = Two(sandbox, tmp_path, document(a=80, b=40))
    two.lend("x", 1)
    two.run("p", "q", "p")
    two.stop_pods("x")
    sandbox.tick(60)
    assert sum(two.minutes("q", "p", count=6)) == 1
    assert two.sites["q"].lent() == [] and two.written == (document(a=80, b=40), "")


def test_an_older_annotation_beside_todays_text(sandbox: Sandbox, tmp_path: Path) -> None:
    two = Two(sandbox, tmp_path, document(a=80, b=40))
    two.lend("a", 1)
    older = two.annotations
    two.lend("b", 1)
    two.put_annotations(older)
    two.minutes("p", "q")
    assert two.limits == {"a": 208, "b": 168}
    two.return_all("p", "q")
    assert two.limits == {"a": 80, "b": 40}


def test_the_annotation_is_lost_once(sandbox: Sandbox, tmp_path: Path) -> None:
    """q's record has what p lent before its last node: it is no ledger of p's."""
    two = Two(sandbox, tmp_path, document(a=80, b=40, x=64))
    for namespace in "axb":
        two.lend(namespace, 1)
    two.put_annotations({})
    two.minutes("q", "p")
    assert two.limits == {"a": 208, "b": 168, "x": 192}
    two.return_all("q", "p")
    assert two.limits == {"a": 80, "b": 40, "x": 64}


@pytest.mark.parametrize("how", ["replace", "apply"])
def test_an_older_export_is_asked(sandbox: Sandbox, tmp_path: Path, how: str) -> None:
    """It has one of the two nodes of a, and none of b's."""
    two = Two(sandbox, tmp_path, document(a=80, b=40))
    two.lend("a", 1)
    export = sandbox.queues_text()
    two.lend("a", 2)
    two.lend("b", 1)
    write = two.replace if how == "replace" else two.apply
    write(export)
    (judged,) = two.run("p")
    two.minutes("q", "p")
    assert two.limits == {"a": 208, "b": 40}
    asked = "; ".join(f"{one}" for one in judged.plan.errors)
    assert "max vcore of root.a is 208, which dnm itself has written earlier" in asked
    assert "first write it as it is without any" in asked
    write(document(a=80, b=40))
    two.minutes("q", "p")
    assert two.limits == {"a": 336, "b": 168}


def test_a_write_is_known_as_dnms(sandbox: Sandbox, tmp_path: Path) -> None:
    """By the manager that an API server takes from the User-Agent: the ledger's questions go by
    who changed the text last."""
    two = Two(sandbox, tmp_path, document(a=80, b=40))
    assert owners_of_text(sandbox) == ["kubectl-client-side-apply"]
    two.lend("a", 1)
    assert owners_of_text(sandbox) == ["dnm"]
    two.replace(document(a=80, b=41))
    assert owners_of_text(sandbox) == ["kubectl-replace"]


def owners_of_text(sandbox: Sandbox) -> list[str]:
    found = (sandbox.get(*PLACE) or {})["metadata"]["managedFields"]
    return [one["manager"] for one in found if "f:queues.yaml" in one["fieldsV1"].get("f:data", {})]
