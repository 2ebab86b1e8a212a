"""Tests of deploy/ on the real API server: the pod of its CronJob runs as a process."""

from __future__ import annotations

import json
import re
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from packages.build import project
from tests.real.account import restore_account
from tests.real.cluster import REST
from tests.real.http_api import ApiError, Json
from tests.real.namespaces import REPOSITORY
from tests.real.package_roots import Root, machine
from tests.real.pod_process import install_image, run_pod
from tests.real.rig import Rig
from tests.real.site import QUEUE_MAP, edit_file, pod

OVERLAYS = ("one", "plan", "two")


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Root]:
    (package,) = (REPOSITORY / "dist").glob(f"dnm_{project()['version']}_*.deb")
    with machine("trixie", tmp_path_factory.mktemp("image"), own_network=False) as root:
        install_image(root, package)
        yield root


@pytest.fixture
def applied(rig: Rig, tmp_path: Path) -> Iterator[Path]:
    """Yields a copy of deploy/ for changes; afterwards deletes what was applied from it."""
    shutil.copytree(REPOSITORY / "deploy", tmp_path / "deploy")
    shutil.copytree(REPOSITORY / "etc", tmp_path / "etc")
    try:
        yield tmp_path / "deploy"
    finally:
        for name in OVERLAYS:
            rig.shell(f"kubectl delete --ignore-not-found --kustomize {tmp_path}/deploy/{name}")
        restore_account(rig)  # the manifests share the namespace dnm and its role for the Lease


@pytest.mark.parametrize("name", OVERLAYS)
def test_api_server_accepts_the_manifests(rig: Rig, applied: Path, name: str) -> None:
    rig.shell("kubectl create namespace dnm --dry-run=client -o yaml | kubectl apply -f -")
    strict = f"--validate=strict --kustomize {applied}/{name}"
    tried = rig.shell(f"kubectl apply --dry-run=server {strict} 2>&1")
    wanted = list(yaml.safe_load_all(rig.shell(f"kubectl kustomize {applied}/{name}")))
    assert len(re.findall(r"\(server dry run\)$", tried, re.MULTILINE)) == len(wanted)
    output = rig.shell(f"kubectl apply {strict} 2>&1")
    assert "violate PodSecurity" not in output, output
    for item in wanted:
        if item["kind"] == "CronJob":
            stored = rig.api.get(
                f"/apis/batch/v1/namespaces/dnm/cronjobs/{item['metadata']['name']}"
            )
            assert stored["spec"]["concurrencyPolicy"] == "Forbid"


def test_api_server_rejects_an_unknown_key_in_a_manifest(rig: Rig, applied: Path) -> None:
    """Shows that the API server validates the manifests down to each key."""
    rig.shell("kubectl create namespace dnm --dry-run=client -o yaml | kubectl apply -f -")
    edit_file(applied / "instance" / "cronjob.yaml", "backoffLimit:", "backOffLimit:")
    output = rig.shell(
        f"kubectl apply --dry-run=server --validate=strict --kustomize {applied}/one 2>&1 || true"
    )
    assert 'unknown field "spec.jobTemplate.spec.backOffLimit"' in output, output


def pod_of(rig: Rig, cron_job: str) -> Json:
    """Returns the pod that the real controllers create when the command of docs/kubernetes.md
    starts a CronJob."""
    page = (REPOSITORY / "docs" / "kubernetes.md").read_text()
    (command,) = re.findall(r"^kubectl create job .*\n.*$", page, re.MULTILINE)
    name = f"check-{secrets.token_hex(3)}"
    command = command.replace("cronjob/dnm check ", f"cronjob/{cron_job} {name} ")
    rig.shell(command)
    path = f"/api/v1/namespaces/dnm/pods?labelSelector=job-name%3D{name}"
    rig.wait_for(lambda: rig.api.get(path)["items"], "the Job has its pod")
    return dict(rig.api.get(path)["items"][0])


def for_the_rig(folder: Path) -> None:
    """Edits dnm's two files in the folder as a site does."""
    ini = folder / "dynamic_node_config.ini"
    text = re.sub(r"^yunikorn_url = .*$", f"yunikorn_url = {REST}", ini.read_text(), flags=re.M)
    ini.write_text(f"{text}[node_type:a]\nmemory = 256Gi\n[lab]\npending_grace_seconds = 0\n")
    (namespace,) = re.findall(r"^monitored_namespaces = (\w+)$", text, re.M)
    queue_map = {namespace: QUEUE_MAP[namespace]}
    (folder / "namespace_queue_paths.json").write_text(json.dumps(queue_map))


@pytest.mark.parametrize(
    ("overlay", "folder", "cron_job"),
    [("one", "instance", "dnm"), ("two", "two/cpu", "dnm-cpu"), ("two", "two/gpu", "dnm-gpu")],
)
def test_pod_of_the_cron_job_checks_and_plans(
    rig: Rig, applied: Path, image: Root, tmp_path: Path, overlay: str, folder: str, cron_job: str
) -> None:
    for_the_rig(applied / folder)
    rig.shell(f"kubectl apply --kustomize {applied}/{overlay}")
    (namespace,) = json.loads((applied / folder / "namespace_queue_paths.json").read_text())
    rig.api.post(
        f"/api/v1/namespaces/{namespace}/pods", pod("big", QUEUE_MAP[namespace], "120", "16Gi")
    )
    made = pod_of(rig, cron_job)
    volumes = tmp_path / "volumes"

    assert made["spec"]["containers"][0]["args"] == ["check"]
    checked = run_pod(rig, image, made, volumes / "check", "check", "-o", "json")
    rows = [check for check in json.loads(checked.stdout)["checks"] if check["result"] == "failed"]
    # The converter is reached by ssh, with a key that is not installed yet.
    assert {item["check"] for item in rows} == {"batch nodes"}, (rows, checked.stderr)

    planned = run_pod(rig, image, made, volumes / "plan", "plan", "-o", "json")
    assert planned.returncode in (0, 1), planned
    queues = {queue["queue"]: queue for queue in json.loads(planned.stdout)["queues"]}
    assert QUEUE_MAP[namespace] in queues, planned.stdout


def test_pod_has_no_permission_beyond_its_account(
    rig: Rig, applied: Path, image: Root, tmp_path: Path
) -> None:
    """The pod has only the user, the root and the permissions of its template."""
    for_the_rig(applied / "instance")
    rig.shell(f"kubectl apply --kustomize {applied}/one")
    made = pod_of(rig, "dnm")
    made["spec"]["containers"][0]["command"] = ["sh", "-c"]
    done = run_pod(
        rig, image, made, tmp_path / "volumes",
        "id -u; grep -E '^(CapEff|NoNewPrivs)' /proc/self/status; touch /opt/dnm/x /tmp/x; env",
    )  # fmt: skip
    lines = done.stdout.splitlines()
    assert lines[0] == "65532"
    assert [line.split()[1] for line in lines[1:3]] == ["0000000000000000", "1"]
    assert done.stderr.count("Read-only file system") == 2
    assert {line.partition("=")[0] for line in lines[3:]} - {"PWD", "_", "SHLVL", "OLDPWD"} == {
        "PATH", "HOSTNAME", "HOME", "KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT",
        "DNM_LOG_CONSOLE",
    }  # fmt: skip
    account = "system:serviceaccount:dnm:dynamic-node-manager-in-cluster"
    for verb, answer in (("list pods", "yes"), ("delete pods", "no"), ("list secrets", "no")):
        script = f"kubectl auth can-i {verb} --as {account} --all-namespaces || true"
        assert rig.shell(script).strip() == answer, verb
    with pytest.raises(ApiError, match="PodSecurity"):
        rig.api.post("/api/v1/namespaces/dnm/pods", pod("root", "root.other", "1", "1Gi"))
