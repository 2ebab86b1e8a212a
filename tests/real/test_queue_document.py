"""Tests of the queue document with the real API's optimistic locking and other writers."""

from __future__ import annotations

import json
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from msgspec.structs import replace

from dnm.kube.client import KubeClient
from dnm.queues.yunikorn.source import LEDGER_ANNOTATION
from tests.builders import a_config
from tests.real.account import KUBECONFIG
from tests.real.cluster import QUEUES
from tests.real.conftest import MakeSite
from tests.real.http_api import ApiError, Json
from tests.real.proxy import Quiet, Seen, proxied, serving
from tests.real.rig import Rig
from tests.real.site import DEV, PODS, Site, request_one_node, with_nodes

BASE, ONE_MORE = with_nodes(0), with_nodes(1)


def is_served(rig: Rig) -> bool:
    return rig.running("dev") == 12


def end(rig: Rig, site: Site) -> None:
    """Deletes all pods. Checks that all nodes are returned and the document is as before."""
    rig.api.ask("DELETE", PODS)
    site.run_until(site.has_returned_nodes, "the node is returned")
    assert rig.queues_text() == QUEUES
    assert rig.queue(DEV)["maxResource"] == BASE


def test_second_writer_between_read_and_write_loses_nothing(
    rig: Rig, make_site: MakeSite, tmp_path: Path
) -> None:
    request_one_node(rig)
    with proxied(rig, KUBECONFIG, tmp_path) as proxy:
        site = make_site(kubeconfig_path=proxy.kubeconfig)
        puts: list[Seen] = []

        def write_first(seen: Seen) -> None:
            if seen.method == "PUT" and "configmaps" in seen.path:
                puts.append(seen)
                if len(puts) == 1:
                    change = {"metadata": {"annotations": {"example.org/by": "another"}}}
                    rig.api.patch(rig.config_map, change)

        proxy.before = write_first
        site.run_until(lambda: is_served(rig), "the pods run")
        assert puts[0].code == 409 and puts[1].code == 200
        assert rig.queue(DEV)["maxResource"] == ONE_MORE
        annotations = rig.api.get(rig.config_map)["metadata"]["annotations"]
        assert annotations["example.org/by"] == "another"
        end(rig, site)


@contextmanager
def refusing_webhook(rig: Rig, message: str) -> Iterator[None]:
    """Runs an admission webhook that refuses every change of a ConfigMap."""

    class Handler(Quiet):
        def do_POST(self) -> None:
            review = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            answer = {
                "apiVersion": "admission.k8s.io/v1",
                "kind": "AdmissionReview",
                "response": {
                    "uid": review["request"]["uid"],
                    "allowed": False,
                    "status": {"message": message},
                },
            }
            content = json.dumps(answer).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

    path = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
    bundle = rig.shell(f"base64 -w0 {rig.keys}/ca.crt")
    hook: Json = {
        "name": "frozen.example.org",
        "clientConfig": {"caBundle": bundle},
        "rules": [
            {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"],
             "operations": ["UPDATE"]}
        ],
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "yunikorn"}},
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
    }  # fmt: skip
    with serving(rig, Handler) as url:
        hook["clientConfig"]["url"] = f"{url}/"
        rig.api.post(path, {"metadata": {"name": "frozen"}, "webhooks": [hook]})
        try:
            yield
        finally:
            rig.api.delete(f"{path}/frozen")


def refused(site: Site) -> str:
    """Plays runs until one fails, since the document is not writable. Returns its messages."""
    for _ in range(8):
        answer = site.dnm("run", code=None)
        if answer.returncode:
            return answer.stderr
        time.sleep(0.5)
    raise AssertionError("no run printed anything")


def test_refusing_webhook_is_quoted_and_the_next_run_continues(
    rig: Rig, make_site: MakeSite
) -> None:
    request_one_node(rig)
    site = make_site()
    with refusing_webhook(rig, "queues are frozen until Monday"):
        deadline = time.monotonic() + 20
        while "queues are frozen until Monday" not in refused(site):
            assert time.monotonic() < deadline
        checks = site.json("check", code=None)["checks"]
        assert any("queues are frozen until Monday" in check["text"] for check in checks), checks
        assert rig.queue(DEV)["maxResource"] == BASE and rig.queues_text() == QUEUES
    site.run_until(lambda: is_served(rig), "the pods run")
    assert rig.queue(DEV)["maxResource"] == ONE_MORE
    end(rig, site)


def test_immutable_config_map_is_reported_with_a_remedy(rig: Rig, make_site: MakeSite) -> None:
    request_one_node(rig)
    rig.api.patch(rig.config_map, {"immutable": True})
    site = make_site()
    assert "immutable" in refused(site)
    assert rig.queues_text() == QUEUES
    checks = site.json("check", code=None)["checks"]
    assert any("replace it by one that is not" in check["text"] for check in checks), checks


def fill_config_map(rig: Rig, room: int) -> None:
    """Fills YuniKorn's ConfigMap to `room` bytes below 1 MiB; keys and annotations don't count."""
    padding = "x" * (2**20 - len(QUEUES) - len("1s") - room)
    rig.api.patch(rig.config_map, {"data": {"padding": padding}})


def test_config_map_may_be_filled_to_its_last_byte(rig: Rig, make_site: MakeSite) -> None:
    """Three limits get one more digit, and exactly three bytes are free. The ledger is an
    annotation, which has its own limit of size."""
    request_one_node(rig)
    fill_config_map(rig, room=3)
    site = make_site()
    site.run_until(lambda: is_served(rig), "the pods run")
    with pytest.raises(ApiError, match=r"Too long|must have at most"):
        rig.api.patch(rig.config_map, {"data": {"more": "x"}})
    rig.api.patch(rig.config_map, {"data": {"padding": None}})
    end(rig, site)


def test_full_config_map_is_reported_with_a_remedy(rig: Rig, make_site: MakeSite) -> None:
    request_one_node(rig)
    fill_config_map(rig, room=2)
    site = make_site()
    message = refused(site)
    assert "1048577 bytes" in message and "binaryData as queues.yaml.gz" in message, message
    assert rig.queues_text() == QUEUES
    rig.api.patch(rig.config_map, {"data": {"padding": None}})
    site.run_until(lambda: is_served(rig), "the pods run")


def test_server_side_apply_of_a_manifest_gets_the_lent_nodes_again(
    rig: Rig, make_site: MakeSite, tmp_path: Path
) -> None:
    manifest = rig.api.get(rig.config_map)
    manifest = {
        "apiVersion": "v1", "kind": "ConfigMap", "data": manifest["data"],
        "metadata": {"name": "yunikorn-configs", "namespace": "yunikorn"},
    }  # fmt: skip
    path = tmp_path / "manifest.json"
    path.write_text(json.dumps(manifest))
    apply = f"kubectl apply --server-side --field-manager gitops -f {path}"
    rig.shell(f"{apply} --force-conflicts")
    request_one_node(rig)
    site = make_site()
    site.run_until(lambda: is_served(rig), "the pods run")
    refused = subprocess.run(
        apply.split(), env=rig.environment, capture_output=True, text=True
    )  # fmt: skip
    assert refused.returncode and "conflict" in refused.stderr, refused
    assert rig.queue(DEV)["maxResource"] == ONE_MORE
    rig.shell(f"{apply} --force-conflicts")
    rig.wait_for(lambda: rig.queue(DEV)["maxResource"] == BASE, "the manifest is active")
    site.run_until(lambda: rig.queue(DEV)["maxResource"] == ONE_MORE, "the node counts again")
    assert rig.has_ledger()
    end(rig, site)


def test_manifest_reapplied_every_few_seconds_changes_no_lend(
    rig: Rig, make_site: MakeSite
) -> None:
    """Plays Argo CD's self-heal for two minutes: dnm lends and returns no node for that reason, and
    adds no amount twice."""
    request_one_node(rig)
    site = make_site()
    site.run_until(lambda: is_served(rig), "the pods run")
    stop, applied = threading.Event(), 0

    def re_apply() -> None:
        nonlocal applied
        while not stop.wait(3):
            rig.api.patch(rig.config_map, {"data": {"queues.yaml": QUEUES}})
            applied += 1

    thread = threading.Thread(target=re_apply)
    thread.start()
    try:
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline:
            site.dnm("run", code=None)
            result = rig.queue(DEV)["maxResource"]
            assert result in (BASE, ONE_MORE), result
            assert len(site.lent) == 1
            time.sleep(1)
    finally:
        stop.set()
        thread.join()
    assert applied > 20
    site.run_until(lambda: rig.queue(DEV)["maxResource"] == ONE_MORE, "the node counts again")
    assert sum("--set k8s" in call for call in site.calls) == 1
    end(rig, site)


LEDGER, KEY = LEDGER_ANNOTATION, "queues.yaml"
MANIFEST = json.dumps({
    "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "owners"}, "data": {KEY: "m"},
})  # fmt: skip
WRITERS = [  # a change of dnm's own write, and then the owner of text and ledger
    pytest.param("EDITOR='sed -i s/dnm-text/edited/' kubectl edit configmap owners",
                 {"kubectl-edit"}, {"dnm"}, id="edit"),
    pytest.param("EDITOR='sed -i s/dnm-ledger/edited/' kubectl edit configmap owners",
                 {"dnm"}, {"kubectl-edit"}, id="edit of the ledger"),
    pytest.param("kubectl patch configmap owners -p '{\"data\": {\"queues.yaml\": \"p\"}}'",
                 {"kubectl-patch"}, {"dnm"}, id="patch"),
    pytest.param(f"kubectl annotate --overwrite configmap owners {LEDGER}=other",
                 {"dnm"}, {"kubectl-annotate"}, id="annotate"),
    pytest.param(f"kubectl annotate configmap owners {LEDGER}-", {"dnm"}, set(), id="take off"),
    pytest.param("kubectl apply -f - <<< $MANIFEST", {"kubectl-client-side-apply"}, {"dnm"},
                 id="apply"),
    pytest.param("kubectl replace -f - <<< $MANIFEST", {"kubectl-replace"}, set(), id="replace"),
    pytest.param("kubectl apply --server-side --force-conflicts -f - <<< $MANIFEST",
                 {"kubectl"}, {"dnm"}, id="server-side apply"),
    pytest.param("kubectl get cm owners -o json | sed s/dnm-text/old/ | kubectl replace -f -",
                 {"kubectl-replace"}, {"dnm"}, id="an export with its ledger, changed"),
    pytest.param("kubectl get configmap owners -o json | kubectl replace -f -",
                 {"dnm"}, {"dnm"}, id="an export as it is"),
]  # fmt: skip


@pytest.mark.parametrize(("script", "of_text", "of_ledger"), WRITERS)
def test_managed_fields_name_the_writers_of_text_and_ledger(
    rig: Rig, script: str, of_text: set[str], of_ledger: set[str]
) -> None:
    """dnm decides by managedFields who wrote the limits (`dnm/queues/yunikorn/authors.py`)."""
    rig.shell("kubectl create configmap owners --from-literal=queues.yaml=a")
    config = a_config(kubeconfig_path=Path(rig.kubeconfig()))
    try:
        with closing(KubeClient.connect(config)) as kube:
            for _ in range(2):  # dnm owns both again after any other client's write
                config_map = kube.read_config_map("default", "owners")
                assert config_map is not None
                text = {**config_map.data, KEY: "dnm-text"}
                ledger = {**config_map.annotations, LEDGER: "dnm-ledger"}
                kube.write_config_map(replace(config_map, data=text, annotations=ledger))
                assert writers(kube) == ({"dnm"}, {"dnm"})
                rig.shell(script, MANIFEST=MANIFEST)
                assert writers(kube) == (of_text, of_ledger)
    finally:
        rig.shell("kubectl delete configmap owners")


def writers(kube: KubeClient) -> tuple[set[str], set[str]]:
    config_map = kube.read_config_map("default", "owners")
    assert config_map is not None
    return (
        {owner.manager for owner in config_map.owners if KEY in owner.keys},
        {owner.manager for owner in config_map.owners if LEDGER in owner.annotations},
    )
