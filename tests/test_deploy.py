"""What stands in deploy/ and packages/, and what docs/kubernetes.md shows: whole, and in agreement
with the rest. `make test-packages` and tests/real/test_in_kubernetes.py play it."""

from __future__ import annotations

import configparser
import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from dnm.config.load import load_config
from dnm.model.config import Config
from dnm.queues.source import LEDGER_ANNOTATION
from tests.docs.pages import PAGES, ROOT

DEPLOY = ROOT / "deploy"
KUSTOMIZATIONS = sorted([*DEPLOY.rglob("kustomization.yaml"), ROOT / "etc" / "kustomization.yaml"])
CRON_JOB = yaml.safe_load((DEPLOY / "instance" / "cronjob.yaml").read_text())
POD = CRON_JOB["spec"]["jobTemplate"]["spec"]["template"]["spec"]
CONTAINER = POD["containers"][0]
PAGE = PAGES["docs/kubernetes.md"]
BLOCKS = [yaml.safe_load(one) for one in re.findall(r"^```yaml\n(.*?)^```", PAGE, re.M | re.S)]
SCRIPTS = [*sorted((ROOT / "packages" / "scripts").iterdir()), DEPLOY / "instance" / "node-convert"]
DEFAULTS = Config(path=Path(), namespaces={}, node_types={})


def block(kind: str) -> Any:
    (found,) = [one for one in BLOCKS if one.get("kind") == kind]
    return found


@pytest.mark.parametrize("path", KUSTOMIZATIONS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_file_that_a_kustomization_names_is_there(path: Path) -> None:
    told = yaml.safe_load(path.read_text())
    files = [name for one in told.get("configMapGenerator", ()) for name in one["files"]]
    for name in (*told["resources"], *files):
        found = path.parent / name
        assert (found / "kustomization.yaml").exists() if found.is_dir() else found.exists(), name


@pytest.mark.parametrize("folder", ["instance", "two/cpu", "two/gpu"])
def test_every_configuration_is_valid(tmp_path: Path, folder: str) -> None:
    for name in ("dynamic_node_config.ini", "namespace_queue_paths.json"):
        text = (DEPLOY / folder / name).read_text()
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o644)
    path = tmp_path / "dynamic_node_config.ini"
    text = path.read_text().replace("[settings]", f"[settings]\nnamespace_queue_paths = {tmp_path}"
                                    "/namespace_queue_paths.json")  # fmt: skip
    path.write_text(text)
    config = load_config(path, {})
    assert config.state == "kubernetes" and config.log_console
    assert config.state_dir.parent == Path("/dev/shm")
    assert str(config.node_convert_path) in mounted()


def test_two_instances_share_nothing_but_the_account() -> None:
    read = {}
    for name in ("cpu", "gpu"):
        parser = configparser.ConfigParser()
        parser.read(DEPLOY / "two" / name / "dynamic_node_config.ini")
        read[name] = parser["settings"]
    for key in ("instance_id", "monitored_namespaces", "node_type"):
        assert read["cpu"][key] != read["gpu"][key]


def mounted() -> list[str]:
    return [one["mountPath"] for one in CONTAINER["volumeMounts"]]


def test_the_pod_may_as_little_as_it_can() -> None:
    context = {**POD["securityContext"], **CONTAINER["securityContext"]}
    assert context["runAsNonRoot"] and context["readOnlyRootFilesystem"]
    assert context["capabilities"] == {"drop": ["ALL"]}
    assert not context["allowPrivilegeEscalation"]
    user = re.search(r"^USER (\d+):(\d+)$", (DEPLOY / "Containerfile").read_text(), re.M)
    assert user and user.groups() == (f"{context['runAsUser']}", f"{context['runAsGroup']}")


def test_no_folder_of_a_config_map_is_on_the_way_to_what_dnm_obeys() -> None:
    """Such a folder can be written by everybody, by its mode."""
    config_maps = {one["name"] for one in POD["volumes"] if "configMap" in one}
    mounts = [one for one in CONTAINER["volumeMounts"] if one["name"] in config_maps]
    assert len(mounts) == 3
    assert all(one["mountPath"].rpartition("/")[2] == one["subPath"] for one in mounts)


def test_the_cron_job_is_as_patient_as_the_unit() -> None:
    unit = configparser.ConfigParser(interpolation=None)
    unit.read(ROOT / "cron" / "dnm.service")
    job = CRON_JOB["spec"]["jobTemplate"]["spec"]
    assert job["activeDeadlineSeconds"] == int(unit["Service"]["TimeoutStartSec"])
    assert POD["terminationGracePeriodSeconds"] == int(unit["Service"]["TimeoutStopSec"])
    assert CRON_JOB["spec"]["schedule"] == "* * * * *"
    assert DEFAULTS.check_interval.total_seconds() == 60
    assert job["backoffLimit"] == 0 and CRON_JOB["spec"]["concurrencyPolicy"] == "Forbid"


@pytest.mark.skipif(shutil.which("shellcheck") is None, reason="'make test' installs shellcheck")
def test_shellcheck_finds_no_fault() -> None:
    done = subprocess.run(
        ["shellcheck", *map(str, SCRIPTS)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout


# --- what docs/kubernetes.md shows ---------------------------------------------------------------


def test_the_example_kustomization_is_one_instance() -> None:
    (example,) = [one for one in BLOCKS if "kind" not in one]
    one = yaml.safe_load((DEPLOY / "one" / "kustomization.yaml").read_text())
    assert example["images"] == one["images"]
    assert example["configMapGenerator"][0]["behavior"] == "merge"
    assert [name.rpartition("/")[2] for name in example["resources"]] == [
        name.rpartition("/")[2] for name in one["resources"]
    ]


def test_argo_cd_is_told_to_ignore_what_dnm_writes_and_nothing_else() -> None:
    told = block("Application")["spec"]
    (ignored,) = told["ignoreDifferences"]
    where = (ignored["namespace"], ignored["name"])
    assert where == (DEFAULTS.yunikorn_cm_namespace, DEFAULTS.yunikorn_cm_name)
    assert ignored["jsonPointers"] == ["/data/queues.yaml"]
    assert told["syncPolicy"]["automated"]["selfHeal"] is False
    assert "syncOptions" not in told["syncPolicy"]


def test_flux_is_told_to_leave_the_document_alone() -> None:
    told = block("Kustomization")["spec"]
    assert told["suspend"] is True and told["prune"] is False
    metadata = block("ConfigMap")["metadata"]
    assert (metadata["namespace"], metadata["name"]) == (
        DEFAULTS.yunikorn_cm_namespace,
        DEFAULTS.yunikorn_cm_name,
    )
    assert metadata["annotations"] == {"kustomize.toolkit.fluxcd.io/ssa": "IfNotPresent"}
    assert LEDGER_ANNOTATION not in metadata["annotations"]


@pytest.mark.parametrize(
    ("words", "code", "called"),
    [
        ("DNM_REQUEST=r1 NAMESPACE=dev node-convert --set k8s --node-type a --num-nodes 2", 0,
         "r1 dev --set k8s --node-type a --num-nodes 2"),
        ("DNM_REQUEST= NAMESPACE= node-convert --list", 0, "--list"),
        ("node-convert --list; touch /tmp/x", 2, ""),
        ("node-convert $(id)", 2, ""),
        ("node-convert --node-name ../etc/a", 2, ""),
        ("PATH=/tmp node-convert --list", 2, ""),
    ],
)  # fmt: skip
def test_the_other_end_of_ssh_takes_the_words_of_the_contract_alone(
    tmp_path: Path, words: str, code: int, called: str
) -> None:
    (script,) = re.findall(r"^```sh\n(#!/bin/sh\n.*?)^```", PAGE, re.M | re.S)
    (tmp_path / "by-ssh").write_text(script)
    (tmp_path / "node-convert").write_text('#!/bin/sh\necho $DNM_REQUEST $NAMESPACE "$@"\n')
    (tmp_path / "node-convert").chmod(0o755)
    done = subprocess.run(
        ["sh", str(tmp_path / "by-ssh")], capture_output=True, text=True, check=False,
        env={"PATH": f"{tmp_path}:{os.environ['PATH']}", "SSH_ORIGINAL_COMMAND": words},
    )  # fmt: skip
    assert (done.returncode, done.stdout.strip()) == (code, called), done.stderr


def test_the_way_to_the_converter_calls_ssh_with_what_it_was_told(tmp_path: Path) -> None:
    (tmp_path / "ssh").write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    (tmp_path / "ssh").chmod(0o755)
    done = subprocess.run(
        ["sh", str(DEPLOY / "instance" / "node-convert"), "--set", "batch", "--node-name", "a001"],
        capture_output=True, text=True, check=True,
        env={"PATH": f"{tmp_path}:{os.environ['PATH']}", "DNM_REQUEST": "r7"},
    )  # fmt: skip
    options, _, words = done.stdout.partition("\nconverter\n")
    folder = options.splitlines()[1].rpartition("/")[0]
    assert folder in mounted()
    assert words.split() == ["DNM_REQUEST=r7", "NAMESPACE=", "node-convert", "--set", "batch",
                             "--node-name", "a001"]  # fmt: skip


def test_the_files_of_the_queue_maps_are_json() -> None:
    for path in DEPLOY.rglob("namespace_queue_paths.json"):
        assert isinstance(json.loads(path.read_text()), dict)
