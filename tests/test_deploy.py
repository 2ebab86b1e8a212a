"""Tests that the files of deploy/ and packages/, and the examples of docs/kubernetes.md, are
complete and consistent. `make test-packages` and tests/real/test_in_kubernetes.py run them."""

from __future__ import annotations

import configparser
import json
import os
import re
import shutil
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dnm.config.load import load_config
from dnm.converter.contract import (
    OPTIONS,
    VALUE,
    VARIABLES,
    convert_command,
    converter_env,
    list_command,
    reserve_command,
    resume_command,
    return_command,
    unreserve_command,
)
from dnm.converter.node_list import list_batch_nodes
from dnm.model.batch import BatchList
from dnm.model.calendar import EventReservation, occurrence_name
from dnm.model.config import Config
from dnm.model.hostlist import fold_hostlist
from dnm.model.lease import LEASE_NAMESPACE
from tests.docs.pages import PAGES, ROOT

DEPLOY = ROOT / "deploy"
KUSTOMIZATIONS = sorted([*DEPLOY.rglob("kustomization.yaml"), ROOT / "etc" / "kustomization.yaml"])
CRON_JOB = yaml.safe_load((DEPLOY / "instance" / "cronjob.yaml").read_text())
POD = CRON_JOB["spec"]["jobTemplate"]["spec"]["template"]["spec"]
CONTAINER = POD["containers"][0]
PAGE = PAGES["docs/kubernetes.md"]
BLOCKS = [yaml.safe_load(item) for item in re.findall(r"^```yaml\n(.*?)^```", PAGE, re.M | re.S)]
SCRIPTS = [
    *sorted((ROOT / "packages" / "scripts").iterdir()),
    DEPLOY / "instance" / "node-convert",
    DEPLOY / "node-convert-by-ssh",
]
DEFAULTS = Config(path=Path(), namespaces={}, node_types={})


def block(kind: str) -> Any:
    (result,) = [item for item in BLOCKS if item.get("kind") == kind]
    return result


@pytest.mark.parametrize("path", KUSTOMIZATIONS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_file_named_by_a_kustomization_exists(path: Path) -> None:
    reported = yaml.safe_load(path.read_text())
    files = [name for item in reported.get("configMapGenerator", ()) for name in item["files"]]
    for name in (*reported.get("resources", ()), *files):
        result = path.parent / name
        assert (result / "kustomization.yaml").exists() if result.is_dir() else result.exists(), (
            name
        )


@pytest.mark.parametrize("folder", ["instance", "two/cpu", "two/gpu"])
def test_every_deployed_configuration_is_valid(tmp_path: Path, folder: str) -> None:
    for name in ("dynamic_node_config.ini", "namespace_queue_paths.json"):
        text = (DEPLOY / folder / name).read_text()
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o644)
    path = tmp_path / "dynamic_node_config.ini"
    text = path.read_text().replace("[settings]", f"[settings]\nnamespace_queue_paths = {tmp_path}"
                                    "/namespace_queue_paths.json")  # fmt: skip
    path.write_text(text)
    config = load_config(path, {})
    assert config.registry_storage == "kubernetes"
    assert config.state_dir.parent == Path("/dev/shm")
    assert str(config.node_convert_path) in mounted()


def built(folder: Path) -> dict[str, list[Any]]:
    """Returns kind -> the objects that `kubectl kustomize` prints for a folder."""
    done = subprocess.run(
        ["kubectl", "kustomize", str(folder)], capture_output=True, text=True, check=True
    )
    results: dict[str, list[Any]] = {}
    for item in yaml.safe_load_all(done.stdout):
        results.setdefault(item["kind"], []).append(item)
    return results


def test_cluster_account_has_exactly_the_permissions_of_its_pod() -> None:
    """The converter runs elsewhere, so this account deletes no Nodes and evicts no pods."""
    objects = built(DEPLOY / "one")
    bound = {item["roleRef"]["name"] for kind in ("RoleBinding", "ClusterRoleBinding")
             for item in objects[kind]}  # fmt: skip
    rules = [rule for item in [*objects["Role"], *objects["ClusterRole"]]
             if item["metadata"]["name"] in bound for rule in item["rules"]]  # fmt: skip
    may = {
        f"{verb} {subject}"
        for rule in rules
        for subject in rule["resources"]
        for verb in rule["verbs"]
    }
    assert {"list pods", "patch nodes", "update configmaps", "patch leases"} <= may
    assert not {name for name in may if name.startswith("delete") or "eviction" in name}
    (namespace,) = objects["Namespace"]
    ignored = {"yunikorn.apache.org/namespace.enableYuniKorn": "false"}
    assert namespace["metadata"]["annotations"] == ignored


def test_account_without_yunikorn_has_the_same_roles_but_for_its_config_maps() -> None:
    """Without YuniKorn, all namespaced objects are in dnm's own namespace."""
    expected: dict[str, list[Any]] = {}
    for item in yaml.safe_load_all((ROOT / "etc" / "rbac.yaml").read_text()):
        metadata = item["metadata"]
        if metadata == {"name": "dynamic-node-manager", "namespace": "yunikorn"} and (
            item["kind"] in ("Role", "RoleBinding")
        ):
            continue
        for place in (metadata, *item.get("subjects", ())):
            if "namespace" in place:
                place["namespace"] = "dnm"
        expected.setdefault(item["kind"], []).append(item)
    objects = built(DEPLOY / "none")
    assert "configmaps" not in f"{objects}" and "yunikorn" not in f"{objects}"
    assert {kind: sorted(items, key=str) for kind, items in objects.items()} == {
        kind: sorted(items, key=str) for kind, items in expected.items()
    }


@pytest.mark.parametrize("folder", ["one", "two", "plan"])
def test_network_policy_and_priority_select_the_pod(folder: str) -> None:
    objects = built(DEPLOY / folder)
    (policy,), (priority,) = objects["NetworkPolicy"], objects["PriorityClass"]
    ports = {port["port"] for rule in policy["spec"]["egress"] for port in rule["ports"]}
    assert {9080, 6443, 22, 53} <= ports and "ingress" not in policy["spec"]
    for job in objects["CronJob"]:
        template = job["spec"]["jobTemplate"]["spec"]["template"]
        assert template["spec"]["priorityClassName"] == priority["metadata"]["name"]
        wanted = policy["spec"]["podSelector"]["matchLabels"]
        assert wanted.items() <= template["metadata"]["labels"].items()


def test_persistent_state_is_on_a_volume_without_group_write(tmp_path: Path) -> None:
    for name in ("deploy", "etc"):
        shutil.copytree(ROOT / name, tmp_path / name)
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "kustomization.yaml").write_text(
        "resources: [../deploy/two]\ncomponents: [../deploy/kept]\n"
    )
    for job in built(tmp_path / "site")["CronJob"]:
        spec = job["spec"]["jobTemplate"]["spec"]["template"]["spec"]
        assert "fsGroup" not in spec["securityContext"]
        assert spec["volumes"][1]["secret"]["defaultMode"] == 0o444
        assert spec["volumes"][2]["persistentVolumeClaim"] == {"claimName": "dnm"}
        assert spec["containers"][0]["volumeMounts"][-1]["name"] == "kept"


def test_two_instances_share_only_the_account() -> None:
    read = {}
    for name in ("cpu", "gpu"):
        parser = configparser.ConfigParser()
        parser.read(DEPLOY / "two" / name / "dynamic_node_config.ini")
        read[name] = parser["settings"]
    for key in ("instance_id", "monitored_namespaces", "node_type"):
        assert read["cpu"][key] != read["gpu"][key]


def mounted() -> list[str]:
    return [item["mountPath"] for item in CONTAINER["volumeMounts"]]


def test_pod_security_context_is_minimal() -> None:
    context = {**POD["securityContext"], **CONTAINER["securityContext"]}
    assert context["runAsNonRoot"] and context["readOnlyRootFilesystem"]
    assert context["capabilities"] == {"drop": ["ALL"]}
    assert not context["allowPrivilegeEscalation"]
    user = re.search(r"^USER (\d+):(\d+)$", (DEPLOY / "Containerfile").read_text(), re.M)
    assert user and user.groups() == (f"{context['runAsUser']}", f"{context['runAsGroup']}")


def test_no_config_map_directory_is_on_a_trusted_path() -> None:
    """Kubelets make ConfigMap folders writable for all users, so only single files are mounted."""
    config_maps = {volume["name"] for volume in POD["volumes"] if "configMap" in volume}
    mounts = [item for item in CONTAINER["volumeMounts"] if item["name"] in config_maps]
    assert len(mounts) == 3
    assert all(mount["mountPath"].rpartition("/")[2] == mount["subPath"] for mount in mounts)


def test_cron_job_has_the_timeouts_of_the_systemd_unit() -> None:
    unit = configparser.ConfigParser(interpolation=None, strict=False)
    unit.read(ROOT / "cron" / "dnm.service")
    job = CRON_JOB["spec"]["jobTemplate"]["spec"]
    assert job["activeDeadlineSeconds"] == int(unit["Service"]["TimeoutStartSec"])
    assert POD["terminationGracePeriodSeconds"] == int(unit["Service"]["TimeoutStopSec"])
    assert CRON_JOB["spec"]["schedule"] == "* * * * *"
    assert DEFAULTS.check_interval.total_seconds() == 60
    assert job["backoffLimit"] == 0 and CRON_JOB["spec"]["concurrencyPolicy"] == "Forbid"


@pytest.mark.skipif(shutil.which("shellcheck") is None, reason="'make test' installs shellcheck")
def test_shellcheck_accepts_the_deployed_scripts() -> None:
    done = subprocess.run(
        ["shellcheck", *map(str, SCRIPTS)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout


# --- what docs/kubernetes.md shows ---------------------------------------------------------------


def test_example_kustomization_is_a_complete_instance() -> None:
    (example,) = [entry for entry in BLOCKS if "kind" not in entry]
    item = yaml.safe_load((DEPLOY / "one" / "kustomization.yaml").read_text())
    assert example["images"] == item["images"]
    assert example["configMapGenerator"][0]["behavior"] == "merge"
    assert [name.rpartition("/")[2] for name in example["resources"]] == [
        name.rpartition("/")[2] for name in item["resources"]
    ]


@pytest.mark.parametrize("own", [{}, {"namespace": "dnm"}], ids=["with", "without"])
def test_example_kustomization_has_the_lease_where_dnm_reads_it(
    tmp_path: Path, own: dict[str, str]
) -> None:
    """For sites without YuniKorn, the page adds `namespace: dnm` to the example."""
    (example,) = [entry for entry in BLOCKS if "kind" not in entry]
    for name in ("deploy", "etc"):
        shutil.copytree(ROOT / name, tmp_path / name)
    site = tmp_path / "site"
    shutil.copytree(DEPLOY / "instance", site)
    (site / "kustomization.yaml").write_text(yaml.safe_dump({**example, **own}))
    assert "Without YuniKorn add `namespace: dnm`" in PAGE
    objects = built(site)
    (lease,) = [
        item["metadata"]["namespace"]
        for item in objects["Role"]
        if ["leases"] in [rule["resources"] for rule in item["rules"]]
    ]
    assert lease == LEASE_NAMESPACE
    assert {item["metadata"]["namespace"] for item in objects["ConfigMap"]} == {"dnm"}


def test_argo_cd_ignores_exactly_the_fields_that_dnm_writes() -> None:
    reported = block("Application")["spec"]
    (ignored,) = reported["ignoreDifferences"]
    where = (ignored["namespace"], ignored["name"])
    assert where == DEFAULTS.queue_document
    assert ignored["jsonPointers"] == ["/data/queues.yaml"]
    assert reported["syncPolicy"]["automated"]["selfHeal"] is False
    assert "syncOptions" not in reported["syncPolicy"]


def test_flux_leaves_the_queue_document_unchanged() -> None:
    reported = block("Kustomization")["spec"]
    assert reported["suspend"] is True and reported["prune"] is False
    assert "the annotation `kustomize.toolkit.fluxcd.io/ssa: IfNotPresent` on the ConfigMap" in PAGE


# --- both ends of ssh ----------------------------------------------------------------------------

BY_SSH = (DEPLOY / "node-convert-by-ssh").read_text()
CONFIG = Config(path=Path(), namespaces={}, node_types={}, node_convert_path=DEPLOY)


@pytest.fixture(scope="module")
def ends(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns a folder for PATH with a fake ssh, which runs the remote command as sshd would, and a
    converter that prints its arguments."""
    folder = tmp_path_factory.mktemp("ends")
    other_end = f'env -i PATH="$PATH" "SSH_ORIGINAL_COMMAND=$*" sh {DEPLOY}/node-convert-by-ssh'
    write_program(folder / "ssh", f"shift 3\nexec {other_end}")
    shown = " ".join(f'"${{{name}-}}"' for name in VARIABLES)
    write_program(folder / "node-convert", f'printf "%s\\n" {shown} "$@"')
    return folder


def write_program(path: Path, text: str) -> None:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


def called(ends: Path, script: str, *words: str, **variables: str) -> tuple[int, list[str]]:
    done = subprocess.run(
        ["sh", script, *words], capture_output=True, text=True, check=False, cwd="/",
        env={"PATH": f"{ends}:{os.environ['PATH']}", **variables},
    )  # fmt: skip
    return done.returncode, done.stdout.split("\n")[:-1]


LABELS = st.from_regex(r"[a-z0-9]([-a-z0-9]{0,20}[a-z0-9])?", fullmatch=True)
NODES = st.lists(LABELS | st.builds("a{:03}".format, st.integers(0, 300)), max_size=9)
MOMENTS = st.datetimes(timezones=st.just(UTC), min_value=datetime(2000, 1, 1))
COUNTS = st.integers(1, 300)
ACCOUNTS = st.sampled_from(("", "-", "proj_1.a-b"))
COMMANDS = st.one_of(
    st.builds(list_command, st.just(CONFIG), LABELS | st.just("")),
    st.builds(resume_command, st.just(CONFIG), LABELS, LABELS, ACCOUNTS),
    st.builds(return_command, st.just(CONFIG), LABELS),
    st.builds(
        convert_command, st.just(CONFIG), LABELS, COUNTS, LABELS, NODES.map(fold_hostlist), ACCOUNTS
    ),
    st.builds(
        reserve_command, st.just(CONFIG),
        st.builds(EventReservation, name=st.builds(occurrence_name, LABELS, MOMENTS, LABELS),
                  node_type=LABELS, count=COUNTS, begins=MOMENTS, ends=MOMENTS,
                  leave_out=NODES.map(fold_hostlist)),
    ),
    st.builds(unreserve_command, st.just(CONFIG), LABELS, NODES.map(fold_hostlist)),
)  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(command=COMMANDS, reservation=LABELS | st.just(""))
@example(convert_command(CONFIG, "a", 2, "dev", "a001,a002"), "")
@example(convert_command(CONFIG, "node-convert", 2, "dev", "a[001-004],b007"), "k8s")
def test_ssh_wrappers_pass_all_arguments_of_the_contract(
    ends: Path, command: list[str], reservation: str
) -> None:
    document = {
        "DNM_REQUEST": "20260301T120000Z-1",
        "DNM_INSTANCE": "My_site.1",
        "RES_NAME": reservation,
    }
    message = called(ends, str(DEPLOY / "instance" / "node-convert"), *command[1:], **document)
    assert message == (0, [*document.values(), *command[1:]])


def test_list_passes_the_ssh_wrappers_with_its_claims(ends: Path, tmp_path: Path) -> None:
    """The wrappers must pass JSON, since the table of `--list` does not have claims."""
    listed = [{"node": "a001", "state": "IDLE", "verdict": "OK", "claim": None}]
    message = json.dumps({"nodes": listed, "options": ["--exclude"]})
    write_program(
        tmp_path / "node-convert", f"[ \"$*\" = '--list --output json' ] && echo '{message}'"
    )
    write_program(tmp_path / "at-ours", f'exec sh {DEPLOY}/instance/node-convert "$@"')
    config = msgspec.structs.replace(CONFIG, node_convert_path=tmp_path / "at-ours")
    environment = converter_env(config, {"PATH": f"{tmp_path}:{ends}:{os.environ['PATH']}"})
    unreadable = list_batch_nodes(config, environment)
    assert isinstance(unreadable, BatchList), unreadable
    assert unreadable.leaves_out and unreadable.nodes["a001"].reports_claim


def test_remote_ssh_wrapper_equals_the_contract_declaration() -> None:
    named = re.findall(r"--[a-z-]+(?= \||\) ;;)", BY_SSH)
    assert tuple(named) == OPTIONS
    assert tuple(re.findall(r"([A-Z_]+)=\*", BY_SSH)) == VARIABLES
    (other,) = re.findall(r"-\* \| \*\[!(.*)\]\*\)", BY_SSH)
    assert VALUE.pattern == f"-|(?!-)[{other}]+"  # only - is an account


@pytest.mark.parametrize(
    "words",
    [
        "node-convert --list; touch /tmp/x",
        "node-convert $(id)",
        "node-convert --node-name ../etc/a",
        "node-convert --set batch --node-name a001 --force",
        "node-convert --list --config /tmp/x",
        "node-convert --list --config=/tmp/x",
        "node-convert -n",
        "node-convert --node-name *",
        "PATH=/tmp node-convert --list",
        "LD_PRELOAD=x node-convert --list",
    ],
)
def test_remote_ssh_wrapper_refuses_other_commands(ends: Path, words: str) -> None:
    script = str(DEPLOY / "node-convert-by-ssh")
    assert called(ends, script, SSH_ORIGINAL_COMMAND=words) == (2, [])


def test_ssh_wrapper_uses_the_mounted_secret(tmp_path: Path) -> None:
    write_program(tmp_path / "ssh", 'printf "%s\\n" "$@"')
    _, lines = called(tmp_path, str(DEPLOY / "instance" / "node-convert"), "--list")
    assert lines[0] == "-F" and lines[1].rpartition("/")[0] in mounted()
    assert lines[2:] == ["converter", "node-convert", "--list"]
