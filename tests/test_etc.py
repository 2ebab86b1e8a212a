"""Tests of files that sites copy: example configuration, RBAC, crontab line, systemd units."""

from __future__ import annotations

import configparser
import json
import re
import shutil
import subprocess
from datetime import timedelta
from pathlib import Path

import msgspec
import pytest
import yaml

from dnm.checks.permissions import permissions
from dnm.config.keys import DEFAULT_QUEUE_MAP, SETTINGS
from dnm.config.load import load_config
from dnm.config.node_checks import parse_readiness_checks
from dnm.model.config import Config, NamespacePolicy
from dnm.model.node_type import NodeType
from packages.reference import GROUPS, default_of

ROOT = Path(__file__).parent.parent
OFF = re.compile(r"^#(?=\[\w|[a-z][A-Za-z0-9_./-]* = )", re.MULTILINE)


@pytest.fixture
def etc(tmp_path: Path) -> Path:
    """Copies the example ini and queue map to a folder, for which the ini is adapted."""
    for name in ("dynamic_node_config.ini", "namespace_queue_paths.json"):
        text = (ROOT / "etc" / name).read_text()
        (tmp_path / name).write_text(text.replace(str(DEFAULT_QUEUE_MAP), DEFAULT_QUEUE_MAP.name))
        (tmp_path / name).chmod(0o644)
    return tmp_path


def all_on(etc: Path) -> Path:
    path = etc / "dynamic_node_config.ini"
    path.write_text(OFF.sub("", path.read_text()))
    return path


def test_example_configuration_equals_the_defaults(etc: Path) -> None:
    example = load_config(etc / "dynamic_node_config.ini", {})
    (etc / "bare.ini").write_text(
        "[settings]\nmonitored_namespaces = dev, notebook\n"
        f"namespace_queue_paths = {DEFAULT_QUEUE_MAP.name}\n"
    )
    (etc / "bare.ini").chmod(0o644)
    bare = load_config(etc / "bare.ini", {})
    kept = Path("/var/lib/dynamic-node")  # the built-in default stays the predecessor's path
    assert bare.state_dir == Path("/etc/dynamic-node")
    head, _, _ = (etc / "dynamic_node_config.ini").read_text().partition("[settings]")
    assert "have their default values, except state_dir and monitored_namespaces" in head
    assert example == msgspec.structs.replace(
        bare,
        path=example.path,
        state_dir=kept,
        converted_nodes_path=kept / bare.converted_nodes_path.name,
    )
    assert set(json.loads((etc / "namespace_queue_paths.json").read_text())) == {"dev", "notebook"}


def test_example_configuration_has_exactly_the_keys_that_a_site_decides() -> None:
    """The keys are those that docs/production.md describes as a site's decisions."""
    text = (ROOT / "etc" / "dynamic_node_config.ini").read_text()
    keys = re.findall(r"^#?([a-z_]+) =", text, re.M)
    assert keys == [*(row.key for row in GROUPS[0].rows), "cpu", "memory"] and len(keys) == 14
    page = (ROOT / "docs" / "production.md").read_text()
    assert not [key for key in keys if f"`{key}`" not in page and f"\n{key} =" not in page]


def test_documented_defaults_equal_the_used_defaults(etc: Path) -> None:
    needed = "[settings]\nmonitored_namespaces = dev\n"
    needed += f"namespace_queue_paths = {DEFAULT_QUEUE_MAP.name}\n"
    document = {key: default_of("[settings]", key) for key in SETTINGS}
    in_words = {"monitored_namespaces", "namespace_queue_paths", "node_convert_path",
                "reversion_idle_seconds"}  # fmt: skip
    (etc / "full.ini").write_text(
        needed
        + "".join(
            f"{key} = {text}\n"
            for key, text in document.items()
            if text != "none" and key not in in_words
        )
    )
    (etc / "bare.ini").write_text(needed)
    for name in ("full.ini", "bare.ini"):
        (etc / name).chmod(0o644)
    full, bare = (load_config(etc / name, {}) for name in ("full.ini", "bare.ini"))
    assert full == msgspec.structs.replace(bare, path=full.path)


def test_example_with_every_key_enabled_is_valid(etc: Path) -> None:
    config = load_config(all_on(etc), {})
    assert config.batch_floor is not None and config.metrics_file is not None


def test_every_key_of_the_example_has_a_comment(etc: Path) -> None:
    """Each key, or the group of keys that it is in, has a comment before it."""
    previous = ""
    for line in (etc / "dynamic_node_config.ini").read_text().splitlines():
        if re.match(r"#?[a-z][A-Za-z0-9_./-]* = ", line):
            assert previous.startswith("# ") or " = " in previous, line
        previous = line


# --- RBAC ------------------------------------------------------------------------------------


OF_A_RUN = (
    "ClusterRole dynamic-node-manager",
    "Role dynamic-node-manager",
    "Role dynamic-node-manager-lease",
    "ClusterRole dynamic-node-manager-converter",
    "ClusterRole dynamic-node-manager-evict",
    "ClusterRole dynamic-node-manager-events",
)


def roles() -> dict[str, list[dict[str, list[str]]]]:
    """Returns `Kind name` of each role in etc/rbac.yaml -> its rules."""
    documents = yaml.safe_load_all((ROOT / "etc" / "rbac.yaml").read_text())
    return {
        f"{document['kind']} {document['metadata']['name']}": document["rules"]
        for document in documents
        if "rules" in document
    }


def grants(*names: str) -> set[str]:
    """Returns what these roles permit, as `verb resource`."""
    rules = [rule for name in names for rule in roles()[name]]
    return {
        f"{verb} {resource}"
        for rule in rules
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def test_roles_grant_exactly_the_requests_of_the_client() -> None:
    files = sorted((ROOT / "dnm" / "kube").glob("*.py"))
    source = "\n".join(path.read_text() for path in files)
    asked = set(re.findall(r'"((?:get|list|watch|create|update|patch|delete) [a-z/]+)"', source))
    not_in_roles = {"create selfsubjectaccessreviews", "get /version", "get /apis"}  # of all users
    assert asked - not_in_roles == grants(*roles())


def test_roles_grant_exactly_the_permissions_that_check_tests() -> None:
    config = Config(
        path=Path(), namespaces={}, node_types={}, relist_interval=timedelta(minutes=60)
    )
    asked = {f"{permission.verb} {permission.resource}" for permission in permissions(config)}
    assert asked == grants(*OF_A_RUN)
    in_kubernetes = msgspec.structs.replace(config, registry_storage="kubernetes")
    more = set(permissions(in_kubernetes)) - set(permissions(config))
    assert {f"{permission.verb} {permission.resource}" for permission in more} == grants(
        "Role dynamic-node-manager-state"
    )
    assert {(permission.namespace, permission.name) for permission in more} == {
        ("dnm", "dnm-prod"),
        ("dnm", ""),
    }
    steps = parse_readiness_checks("daemonsets, images, probe a/b")
    opening = NodeType(name="a", size={}, readiness_checks=steps)
    more = set(permissions(msgspec.structs.replace(config, node_types={"a": opening})))
    assert {
        f"{permission.verb} {permission.resource}" for permission in more - set(permissions(config))
    } == grants("ClusterRole dynamic-node-manager-opening")
    named = {
        (permission.verb, permission.namespace, permission.name)
        for permission in permissions(config)
        if permission.name
    }
    granted = {
        (verb, where, name)
        for role, where in (
            ("Role dynamic-node-manager", "yunikorn"),
            ("Role dynamic-node-manager-lease", "dnm"),
            ("ClusterRole dynamic-node-manager", ""),
        )
        for rule in roles()[role]
        for verb in rule["verbs"]
        for name in rule.get("resourceNames", ())
    }
    assert named == granted


def test_roles_without_config_maps_grant_exactly_the_permissions_without_a_queue_system() -> None:
    """deploy/none has these roles, with the Lease in the namespace dnm."""
    alone = {"lab": NamespacePolicy(name="lab", queue="lab", node_types=(), queue_system="none")}
    config = Config(
        path=Path(), namespaces=alone, node_types={}, relist_interval=timedelta(minutes=60)
    )
    asked = permissions(config)
    assert {f"{permission.verb} {permission.resource}" for permission in asked} == {
        name for name in grants(*OF_A_RUN) if not name.endswith(" configmaps")
    }
    leases = [permission for permission in asked if permission.resource == "leases"]
    assert {(lease.namespace, lease.name) for lease in leases} == {("dnm", "dnm-prod"), ("dnm", "")}


def test_every_role_verb_has_a_reason_and_no_wildcard() -> None:
    lines = (ROOT / "etc" / "rbac.yaml").read_text().splitlines()
    verbs = [line for line in lines if re.match(r"      - ", line)]
    assert len(verbs) == sum(len(rule["verbs"]) for rules in roles().values() for rule in rules)
    assert all(re.search(r" # \w", line) for line in verbs)
    assert not any("*" in line for line in lines if not line.lstrip().startswith("#"))


def test_every_role_binding_names_an_existing_role() -> None:
    documents = list(yaml.safe_load_all((ROOT / "etc" / "rbac.yaml").read_text()))
    account = documents[0]["metadata"]
    for document in documents:
        if document["kind"].endswith("Binding"):
            assert f"{document['roleRef']['kind']} {document['roleRef']['name']}" in roles()
            assert document["subjects"] == [{"kind": "ServiceAccount", **account}]


# --- cron and systemd ------------------------------------------------------------------------


def unit(name: str) -> configparser.ConfigParser:
    parser = configparser.ConfigParser(interpolation=None, strict=False)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read_string((ROOT / "cron" / name).read_text())
    return parser


def test_service_timeout_exceeds_the_waits_of_dnm() -> None:
    service = unit("dnm.service")["Service"]
    defaults = Config(path=Path(), namespaces={}, node_types={})
    assert service["Type"] == "oneshot"
    assert service["KillMode"] == "process"
    assert service["SuccessExitStatus"] == "75"
    assert int(service["TimeoutStopSec"]) > defaults.shutdown_grace.total_seconds()
    assert int(service["TimeoutStartSec"]) > 10 * defaults.check_interval.total_seconds()
    assert service["ReadWritePaths"] == str(defaults.state_dir)
    example = (ROOT / "etc" / "dynamic_node_config.ini").read_text()
    assert f"\nstate_dir = /var/lib/{service['StateDirectory']}\n" in example


def test_service_starts_the_installed_program() -> None:
    page = (ROOT / "docs" / "production.md").read_text()
    (links,) = re.findall(r"^ln -s (.*)$", page, re.MULTILINE)
    *programs, directory = links.split()
    started = Path(unit("dnm.service")["Service"]["ExecStart"].split()[0])
    assert started.parent == Path(directory)
    assert started.name in {Path(program).name for program in programs}


def test_timer_interval_equals_the_configuration() -> None:
    timer = unit("dnm.timer")
    assert timer["Timer"]["OnCalendar"] == "*:0/1"
    assert Config(path=Path(), namespaces={}, node_types={}).check_interval.total_seconds() == 60
    assert timer["Install"]["WantedBy"] == "timers.target"


@pytest.mark.parametrize("at", ["", "@"])
def test_end_of_a_conversion_triggers_the_service_which_removes_the_trigger(at: str) -> None:
    """An end of a conversion during a run starts another run, and no end starts two."""
    of_state = [
        Path(folder) / Config(path=Path(), namespaces={}, node_types={}).trigger_path.name
        for folder in (f"/var/lib/dynamic-node{'/%i' if at else ''}",
                       f"/etc/dynamic-node{'/%i' if at else ''}")
    ]  # fmt: skip
    text = (ROOT / "cron" / f"dnm{at}.path").read_text()
    assert re.findall("^PathExists=(.*)$", text, re.M) == list(map(str, of_state))
    service = (ROOT / "cron" / f"dnm{at}.service").read_text()
    before = re.findall("^ExecStartPre=(.*)$", service, re.M)
    assert before == ["/bin/sleep 2", f"/bin/rm -f {of_state[0]} {of_state[1]}"]
    timer = unit(f"dnm{at}.timer")["Unit"]
    assert timer["Wants"] == f"dnm{'@%i' if at else ''}.path"
    assert f"PartOf=dnm{'@%i' if at else ''}.timer\n" in text


def test_crontab_line_mails_only_errors() -> None:
    lines = (ROOT / "cron" / "dnm.cron").read_text().splitlines()
    jobs = [line for line in lines if line.startswith("*")]
    assert [job.split()[:7] for job in jobs] == [["*"] * 5 + ["root", "dnm"]]
    command = jobs[0].split(None, 6)[6]
    for code, expected in ((0, 0), (75, 0), (1, 1), (2, 1)):
        script = f"dnm() {{ return {code}; }}; {command}"
        assert subprocess.run(["sh", "-c", script], check=False).returncode == expected


@pytest.mark.parametrize("kind", ["service", "timer", "path"])
def test_instance_unit_equals_the_single_unit(kind: str) -> None:
    """The units differ only in the instance's name, folder, and writable paths."""
    single, config_parser = unit(f"dnm.{kind}"), unit(f"dnm@.{kind}")
    if kind == "service":
        config = config_parser["Service"].pop("Environment")
        assert config == "DNM_CONFIG=/etc/dynamic-node/%i/dynamic_node_config.ini"
        # It may write only its own folders: the others are read-only, though below /var.
        text = (ROOT / "cron" / "dnm@.service").read_text()
        assert config_parser["Service"].pop("ReadOnlyPaths") == "/var/lib/dynamic-node"
        may = re.findall("^ReadWritePaths=(.*)$", text, re.M)
        assert may == ["/etc/dynamic-node/%i", "/var/lib/dynamic-node/%i"]
        config_parser["Service"]["ReadWritePaths"] = may[0]
    plain = {
        section: {key: re.sub(r"( of |, for |/|@)%i", "", value) for key, value in keys.items()}
        for section, keys in config_parser.items()
    }
    assert plain == {section: dict(keys) for section, keys in single.items()}


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd-analyze here")
@pytest.mark.parametrize("at", ["", "@"])
def test_systemd_verify_reports_no_error(tmp_path: Path, at: str) -> None:
    names = (f"dnm{at}.service", f"dnm{at}.timer", f"dnm{at}.path")
    for name in names:
        text = (ROOT / "cron" / name).read_text()
        (tmp_path / name).write_text(text.replace("/usr/local/sbin/dnm", "/bin/true"))
    answer = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", *(str(tmp_path / name) for name in names)],
        check=False, capture_output=True, text=True,
    )  # fmt: skip
    faults = [line for line in answer.stderr.splitlines() if "dnm" in line]
    assert faults == []
