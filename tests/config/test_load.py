"""Tests of the loading of a configuration: valid files of sites, and all errors at once."""

from __future__ import annotations

import json
import os
import shutil
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dnm.config.keys import KUBELET_KEYS, NAMESPACE_KEYS, NODE_TYPE_KEYS, SETTINGS
from dnm.config.lab import RUN_KEYS
from dnm.config.load import DEFAULT_PATH, find_config_path, find_converter, load_config
from dnm.config.node_checks import parse_readiness_checks
from dnm.config.sections import state_folder
from dnm.host.trust import check_trust
from dnm.model.config import Config, NamespacePolicy
from dnm.model.errors import ConfigError
from dnm.model.kubelet import KubeletSettings
from dnm.model.node_type import NodeType, Taint
from dnm.model.share import Floor, Share

DATA = Path(__file__).parents[1] / "data" / "config"
JUPYTER = "hub.jupyter.org/username"
BASE = "[settings]\nmonitored_namespaces = dev, test\nnamespace_queue_paths = map.json\n"
MAP = '{"dev": "root.services.dev", "test": "root.services.test", "spare": "not/read.here"}'
HOME = {"HOME": "/home/operator", "SITE": "/opt/site"}


def write(path: Path, content: str | bytes) -> Path:
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    path.chmod(0o644)
    return path


def site(directory: Path, more: str = "", queue_map: str | bytes = MAP) -> Path:
    """Writes the ini and the queue map of a site. `more` follows the required keys of the ini."""
    directory.chmod(0o755)
    write(directory / "map.json", queue_map)
    return write(directory / "dnm.ini", BASE + more)


def load(directory: Path, more: str = "", queue_map: str | bytes = MAP) -> Config:
    return load_config(site(directory, more, queue_map), HOME)


def refusal(path: Path) -> str:
    with pytest.raises(ConfigError) as caught:
        load_config(path, HOME)
    return str(caught.value)


# --- what sites have -------------------------------------------------------------------------


def copy_data(name: str, directory: Path) -> Path:
    for source in (DATA / name).iterdir():
        write(directory / source.name, source.read_bytes())
    return directory / "dynamic_node_config.ini"


def test_production_file_of_the_predecessor_is_read(tmp_path: Path) -> None:
    path = copy_data("site", tmp_path)
    queues = '{"dev": "services.dev", "notebook": "Root.Services.NB"}'
    queue_map = write(tmp_path / "q.json", queues)
    text = path.read_text().replace("/etc/dynamic-node/namespace_queue_paths.json", str(queue_map))
    config = load_config(write(path, text), {})
    assert config.queues == ("root.services.dev", "root.services.nb")
    assert config.node_types == {
        "a": NodeType(name="a", size={"cpu": 128_000, "memory": 256 * 10**9})
    }
    assert config.default_request == {"cpu": 1000, "memory": 2 * 1024**3}
    assert config.check_interval == timedelta(seconds=30)
    assert (config.instance_id, config.allow_preempt) == ("prod", False)
    assert config.converted_nodes_path == Path("/etc/dynamic-node/converted_nodes.json")


STATE_FOLDERS = {
    "nothing yet": ("", (), "lib"),
    "one begun in /etc": ("", ("etc",), "etc"),
    "one in each": ("", ("etc", "lib"), "lib"),
    "one begun here": ("", ("lib",), "lib"),
    "another instance's": ("gpu", ("etc",), "lib/gpu"),
    "of an instance, begun in /etc": ("gpu", ("etc", "lib", "etc/gpu"), "etc/gpu"),
}


@pytest.mark.parametrize("name", STATE_FOLDERS)
def test_registry_of_the_predecessor_is_used_in_its_directory(tmp_path: Path, name: str) -> None:
    """A site that adopts the new configuration file still has its old registry in /etc."""
    of, there, expected = STATE_FOLDERS[name]
    for folder in there:
        (tmp_path / folder).mkdir(parents=True, exist_ok=True)
        (tmp_path / folder / "converted_nodes.json").touch()
    etc, lib = tmp_path / "etc", tmp_path / "lib"
    assert state_folder(lib / of, etc, lib) == tmp_path / expected
    assert state_folder(tmp_path / "srv", etc, lib) == tmp_path / "srv"


def test_validation_file_of_the_predecessor_is_relative_to_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = copy_data("validation", tmp_path)
    monkeypatch.chdir("/")
    config = load_config(path, {})
    assert config == Config(
        path=path,
        instance_id="validation",
        state_dir=tmp_path / "state",
        converted_nodes_path=tmp_path / "state" / "converted_nodes.json",
        kubeconfig_path=tmp_path / "kubeconfig",
        node_convert_path=tmp_path / "node-convert",
        max_converted_nodes=2,
        check_interval=timedelta(seconds=30),
        global_cooldown=timedelta(seconds=60),
        node_types={"b": NodeType(name="b", size={"cpu": 128_000, "memory": 256 * 10**9})},
        namespaces={
            "notebook-test": NamespacePolicy(
                name="notebook-test",
                queue="root.anvil.services.dev",
                node_types=("b",),
                reversion_idle=timedelta(seconds=300),
            )
        },
    )


def test_defaults_equal_the_defaults_of_the_model(tmp_path: Path) -> None:
    config = load(tmp_path)
    plain = Config(path=config.path, namespaces=config.namespaces, node_types=config.node_types)
    for field in set(Config.__struct_fields__) - {"node_convert_path"}:
        assert getattr(config, field) == getattr(plain, field), field


def test_every_field_has_a_key_and_every_key_a_field() -> None:
    built = {"path", "namespaces", "node_types", "default_request",
             "calendar_events", "unread_events", "lead", "converted_nodes_path",
             "max_reversions_per_run"}  # fmt: skip
    keys = {**SETTINGS, **RUN_KEYS}
    several = {field for key in ("exclude_nodes", "registry", "batch_floor", "allow_preempt")
               for field in SETTINGS[key][1]({"registry": "file"}.get(key, "1"))}  # fmt: skip
    several |= {"registry_namespace", "batch_floor"}
    filled = {field for field, _ in keys.values()} | several
    assert filled - {"", "*"} == set(Config.__struct_fields__) - built
    assert {field for field, _ in NAMESPACE_KEYS.values()} == set(
        NamespacePolicy.__struct_fields__
    ) - {"name", "queue", "min_nodes_by", "min_of_type", "reversion_idle"}
    assert {field for field, _ in NODE_TYPE_KEYS.values()} - {""} == set(
        NodeType.__struct_fields__
    ) - {"name", "size", "kubelet"}
    kept_back = {f"{part}_reserved_{of}" for part in ("kube", "system") for of in ("cpu", "memory")}
    assert {field for field, _ in KUBELET_KEYS.values()} - {"*"} == set(
        KubeletSettings.__struct_fields__
    ) - {*kept_back, "hugepages_2mi", "hugepages_1gi"}


# --- values ----------------------------------------------------------------------------------

GOOD = {
    "cap-zero": ("max_converted_nodes = 0", "max_converted_nodes", 0),
    "cap-%": ("max_converted_nodes = 25%", "max_converted_nodes", Share(percent=25)),
    "cap-with-a-blank": ("max_converted_nodes = 2.5 %%", "max_converted_nodes", Share(percent=2.5)),
    "cap-0%": ("max_converted_nodes = 0%", "max_converted_nodes", Share(percent=0)),
    "key-in-any-case": ("MAX_Converted_Nodes = 7", "max_converted_nodes", 7),
    "headroom-one": ("headroom = 1", "headroom", 1.0),
    "headroom-short": ("headroom = .8", "headroom", 0.8),
    "half": ("join_timeout_seconds = 1.5", "join_timeout", timedelta(seconds=1.5)),
    "reserved-a-week": ("event_reservations = yes", "reserve_ahead", timedelta(days=7)),
    "reserved-two": ("event_reservations = 14", "reserve_ahead", timedelta(days=14)),
    "no-grace": ("[lab]\npending_grace_seconds = 0", "pending_grace", timedelta(0)),
    "as-many-return": ("max_conversions_per_run = 9", "max_reversions_per_run", 9),
    "four-at-least": ("max_conversions_per_run = 1", "max_reversions_per_run", 4),
    "bool-no": ("adjust_guaranteed = No", "adjust_guaranteed", False),
    "bool-1": ("allow_preempt = 1", "allow_preempt", True),
    "preempted": ("allow_preempt = fill/spare", "allow_preempt", True),
    "home": ("kubeconfig_path = ~/k", "kubeconfig_path", Path("/home/operator/k")),
    "variable": ("state_dir = ${SITE}/s", "state_dir", Path("/opt/site/s")),
    "normalised": ("state_dir = $SITE/../x", "state_dir", Path("/opt/x")),
    "empty-is-default": ("kubeconfig_path =", "kubeconfig_path", None),
    "url": ("yunikorn_url = http://yk.yunikorn:9080/", "yunikorn_url", "http://yk.yunikorn:9080"),
    "registry-follows-state-dir": ("state_dir = /srv/dnm", "converted_nodes_path",
        Path("/srv/dnm/converted_nodes.json")),
    "percent": ("state_dir = /a%%b", "state_dir", Path("/a%b")),
    "reference-of-the-standard-ini": ("state_dir = /srv/%(instance_id)s\ninstance_id = two",
        "state_dir", Path("/srv/two")),
    "default-section": ("[DEFAULT]\nmax_converted_nodes = 3", "max_converted_nodes", 3),
    "other-command": ("[node_convert]\nanything = goes", "instance_id", "prod"),
    "comments": ("# [x]\n; y = z\n", "instance_id", "prod"),
    "floor": ("batch_floor = 10", "batch_floor", Floor(nodes=10)),
    "floor-%": ("batch_floor = 5%", "batch_floor", Floor(percent=5)),
    "floor-of-a-partition": ("batch_floor = 1, partition gpu: 2.5 %", "partition_floors",
        {"gpu": Floor(percent=2.5)}),
    "of-a-type": ("batch_floor = 1, a: 5 %", "type_floors", {"a": Floor(percent=5)}),
    "kept-out": ("exclude_nodes = a[1,3],\n partition gpu, b2", "exclude_nodes",
        frozenset({"a1", "a3", "b2"})),
    "namespace-of-the-registry": ("registry = kubernetes gpu", "registry_namespace", "gpu"),
    "events.d": ("calendar = /x/events.d", "events_dir", Path("/x/events.d")),
    "out-of-sight": (f"calendar = /{300 * 'x'}", "events_dir", Path(f"/{300 * 'x'}")),
    "hours": ("max_lend_hours = 72", "options", {"max_lend_hours": timedelta(days=3)}),
}  # fmt: skip


@pytest.mark.parametrize(("text", "field", "expected"), GOOD.values(), ids=GOOD)
def test_setting_is_read(tmp_path: Path, text: str, field: str, expected: object) -> None:
    assert getattr(load(tmp_path, text), field) == expected


def test_line_ends_and_byte_order_mark_do_not_matter(tmp_path: Path) -> None:
    path = site(tmp_path, "max_converted_nodes = 3\n", "\ufeff" + MAP)
    write(path, b"\xef\xbb\xbf" + path.read_bytes().replace(b"\n", b"\r\n"))
    assert load_config(path, HOME).max_converted_nodes == 3


def test_namespaces_and_node_types_may_have_their_own_sections(tmp_path: Path) -> None:
    config = load(
        tmp_path,
        """
node_type = a
reversion_idle_seconds = 900
[namespace:dev]
node_type = g, a
max_nodes = 4
min_nodes = 1
priority = -5
[node_type:g]
cpu = 64
memory = 1Ti
nvidia.com/gpu = 4
name_prefix = gpu-
max_nodes = 2
labels = pool={namespace}, {namespace}=true
taints = dedicated={namespace}:NoSchedule, nvidia.com/gpu:PreferNoSchedule
""",
    )
    assert config.namespaces["dev"] == NamespacePolicy(
        name="dev",
        queue="root.services.dev",
        node_types=("g", "a"),
        max_nodes=4,
        min_nodes=1,
        priority=-5,
        reversion_idle=timedelta(seconds=900),
    )
    assert config.namespaces["test"].reversion_idle == timedelta(seconds=900)
    assert config.namespaces["test"].node_types == ("a",)
    assert config.node_types["g"] == NodeType(
        name="g",
        size={"cpu": 64_000, "memory": 1024**4, "nvidia.com/gpu": 4},
        name_prefix="gpu-",
        max_nodes=2,
        labels={"pool": "{namespace}", "{namespace}": "true"},
        taints=(
            Taint(key="dedicated", value="{namespace}", effect="NoSchedule"),
            Taint(key="nvidia.com/gpu", effect="PreferNoSchedule"),
        ),
    )
    assert config.node_types["a"].size == {"cpu": 128_000, "memory": 256 * 10**9}


def test_namespace_without_a_queue_system_is_its_own_queue(tmp_path: Path) -> None:
    """Without a queue system, dnm does not read the queue map, which need not exist."""
    text = "[settings]\nmonitored_namespaces = dev, test\nqueue_system = none\n"
    config = load_config(write(tmp_path / "dnm.ini", text), HOME)
    assert {name: policy.queue for name, policy in config.namespaces.items()} == {
        "dev": "dev",
        "test": "test",
    }
    assert config.namespace_queues == {"dev", "test"}


@pytest.mark.parametrize(
    ("system", "key", "is_refused"),
    [
        ("none", "namespace_queue_paths", True),
        ("none", "yunikorn_cm_name", True),
        ("none", "yunikorn_queue_annotation", True),
        ("resource_quota", "yunikorn_cm_namespace", True),
        ("kueue", "yunikorn_cm_name", True),
        ("yunikorn", "yunikorn_cm_name", False),
    ],
)
def test_key_of_another_queue_system_is_an_error(
    tmp_path: Path, system: str, key: str, is_refused: bool
) -> None:
    """By the contract with the predecessor, a key without effect is an error and not a note."""
    paths = "namespace_queue_paths = map.json\n" if system == "yunikorn" else ""
    value = "map.json" if key == "namespace_queue_paths" else "queues"
    lines = f"[settings]\nmonitored_namespaces = dev, test\nqueue_system = {system}\n"
    write(tmp_path / "map.json", MAP)
    path = write(tmp_path / "dnm.ini", f"{lines}{paths}{key} = {value}\n")
    if is_refused:
        expected = f"{key} = {value}: has no effect with queue_system = {system}; remove the key"
        assert expected in refusal(path).replace(str(tmp_path) + "/", "")
    else:
        assert load_config(path, HOME).yunikorn_cm_name == value


def test_queue_system_of_one_namespace_can_differ(tmp_path: Path) -> None:
    config = load(tmp_path, "[namespace:test]\nqueue_system = none\n")
    assert config.namespaces["dev"].queue == "root.services.dev"
    assert config.namespaces["test"].queue == "test"
    assert config.namespace_queues == {"test"}


def test_namespace_named_root_cannot_be_without_a_queue_system(tmp_path: Path) -> None:
    text = "[settings]\nmonitored_namespaces = root\nqueue_system = none\n"
    assert "monitored_namespaces = root: dnm cannot lend nodes" in refusal(
        write(tmp_path / "dnm.ini", text)
    )


@pytest.mark.parametrize(
    ("more", "is_hinted"),
    [("", True), ("queue_system = yunikorn\n", False), ("namespace_queue_paths = x\n", False)],
    ids=["nothing-chosen", "yunikorn-chosen", "map-named"],
)
def test_site_without_a_queue_map_learns_of_queue_system(
    tmp_path: Path, more: str, is_hinted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dnm.config.load.DEFAULT_QUEUE_MAP", tmp_path / "none.json")
    text = refusal(write(tmp_path / "dnm.ini", "[settings]\nmonitored_namespaces = dev\n" + more))
    assert "is missing" in text
    assert ("write queue_system = none in [settings]" in text) is is_hinted


@pytest.mark.parametrize(
    "lines",
    [
        "queue_system = nonne\n",
        "queue_system = kueu\nnamespace_queue_paths = x\nyunikorn_url = http://yk:9080\n",
        "queue_system = none\n[namespace:dev]\nqueue_system = nonne\n",
    ],
)
def test_misspelt_queue_system_is_the_only_problem(tmp_path: Path, lines: str) -> None:
    """dnm cannot know which keys the meant queue system needs, so it reports none as missing."""
    text = refusal(write(tmp_path / "dnm.ini", "[settings]\nmonitored_namespaces = dev\n" + lines))
    problems = [line for line in text.splitlines() if line.startswith("  ")]
    assert len(problems) == 1 and "is not a queue system" in problems[0]


# --- problems --------------------------------------------------------------------------------

BAD = {
    "unknown-key": ("max_converted_node = 3", "did you mean 'max_converted_nodes'?"),
    "key-of-a-namespace": ("min_nodes = 1", "unknown key; write it in [namespace:NAME]"),
    "key-of-two": ("max_nodes = 1", "write it in [namespace:NAME] or [node_type:NAME]"),
    "key-of-all": ("[namespace:dev]\nbatch_floor = 1", "unknown key; write it in [settings]"),
    "unknown-key-no-guess": ("zzz = 3", "[settings] zzz: unknown key"),
    "sec": ("[setings]\n", "[setings]: unknown section, did you mean [settings]?"),
    "section-no-guess": ("[qqq]\n", "there are [settings], [namespace:NAME]"),
    "named-section": ("[namespaces:dev]\n", "did you mean [namespace:dev]?"),
    "named-section-type": ("[nodetype:b]\n", "did you mean [node_type:b]?"),
    "section-without-name": ("[namespace]\n", "write [namespace:NAME]"),
    "namespace-not-monitored": ("[namespace:dex]\n", "did you mean 'dev'?"),
    "namespace-no-guess": ("[namespace:qq]\n", "name it in monitored_namespaces"),
    "negative": ("max_converted_nodes = -1", "from 0 to 100000"),
    "fraction": ("max_converted_nodes = 1.5", "is not a whole number"),
    "word": ("max_converted_nodes = ten", "max_converted_nodes = ten: is not"),
    "cap-above-all": ("max_converted_nodes = 101%", "from 0% to 100%, e.g. 25%"),
    "cap-below-0": ("max_converted_nodes = -5%%", "is not a percentage"),
    "cap-bare-%": ("max_converted_nodes = %%", "is not a percentage of batch nodes"),
    "cap-of-a-namespace": ("[namespace:dev]\nmax_nodes = 5%%5", "is not a percentage"),
    "cap-of-a-type": ("[node_type:a]\nmax_nodes = ten%%", "is not a percentage"),
    "comment-behind": ("max_converted_nodes = 3 ; small", "a line of its own"),
    "huge": ("max_converted_nodes = " + "9" * 5000, "is not a whole number"),
    "empty": ("max_converted_nodes =", "is empty"),
    "queue-system": ("queue_system = nonne", "write yunikorn, kueue, resource_quota or none"),
    "queue-systems": (
        "[namespace:dev]\nqueue_system = resource_quota",
        "resource_quota need a dnm",
    ),
    "queue-system-of-one": ("[namespace:dev]\nqueue_system = slurm", "is not a queue system"),
    "suffix": ("reversion_idle_seconds = 10y", "is not a duration; write seconds"),
    "interval-days": ("check_interval_seconds = 2d", "is out of range"),
    "interval-zero": ("check_interval_seconds = 0", "out of range"),
    "floor-word": ("batch_floor = some", "write a number of nodes or a percentage, e.g."),
    "floor-above-all": ("batch_floor = 101%", "or a percentage"),
    "floor-negative": ("batch_floor = -1", "is not a floor"),
    "blank": ("[namespace:dev]\ncharge_account = a b", "is not a name that Slurm accepts"),
    "option": ("[namespace:dev]\ncharge_account = -x", "is not a name that Slurm accepts"),
    "half-an-hour": ("max_lend_hours = 1.5", "is not a whole number"),
    "hours-with-unit": ("max_lend_hours = 36h", "is not a whole number of hours; write one from 0"),
    "weeks": ("demand_days = 2w", "is not a whole number of days; write one from 0 to 36500"),
    "budget-word": ("[namespace:dev]\nnode_hours_per_week = much", "is not a number"),
    "budget-exponent": ("[namespace:dev]\nnode_hours_per_week = 1e9", "is not a number"),
    "partition": ("batch_floor = partition a?: 1", "is not the name of a partition"),
    "floor-of": ("batch_floor = part a: 1", "write TYPE: 5, or partition NAME: 5"),
    "no-type": ("batch_floor = c: 1", "there is no node type c; write partition c"),
    "feature": ("exclude_nodes = feature ?", "is not a feature"),
    "partition-without-name": ("exclude_nodes = a1, partition", "does not name a partition"),
    "registry-namespace": ("registry = kubernetes A", "is not a namespace name"),
    "file-namespace": ("registry = file dnm", "write file, or kubernetes NAMESPACE"),
    "kept-back": ("[node_type:a]\nkube_reserved = gpu=1", "write e.g. cpu=500m"),
    "headroom-high": ("headroom = 1.2", "above 0 and up to 1"),
    "headroom-zero": ("headroom = 0", "out of range"),
    "headroom-nan": ("headroom = nan", "is not a share"),
    "headroom-dot": ("headroom = .", "is not a share"),
    "percent": ("headroom = 95%", "headroom = 95%: is a percentage; write 0.95"),
    "gres": ("[node_type:a]\ngres = gpu:4", "e.g. nvidia.com/gpu = 4"),
    "gres-gpu": ("[node_type:a]\ngres/gpu = 4", "e.g. nvidia.com/gpu = 4"),
    "types-no-comma": ("node_type = a b", "a comma between them; write a, b"),
    "bool": ("allow_preempt = maybe", "write true or false"),
    "memory-unit": ("node_memory_capacity = 256GB", "write e.g. 256G"),
    "cpu-zero": ("node_cpu_capacity = 0", "is not above zero"),
    "instance-space": ("instance_id = a b", "letters, digits"),
    "instance-dash": ("instance_id = -rf", "letters, digits"),
    "preempt-half": ("allow_preempt = fill/", "write false or USER/ACCOUNT"),
    "preempt-shell": ("allow_preempt = $(id)/x", "is not a name in Slurm"),
    "cm-namespace": ("yunikorn_cm_namespace = a.b", "RFC 1123"),
    "url-scheme": ("yunikorn_url = yk:9080", "http://yunikorn-service"),
    "url-port": ("yunikorn_url = http://yk:99999", "http://yunikorn-service"),
    "url-bracket": ("yunikorn_url = http://[::1/", "http://yunikorn-service"),
    "url-secret": ("yunikorn_url = http://u:p@yk/", "without user name"),
    "node-type-alphabet": ("node_type = a;b", "is not a node type"),
    "node-type-upper": ("node_type = A", "is not a node type"),
    "variable": ("state_dir = $NOWHERE/x", "has no variable NOWHERE"),
    "user": ("state_dir = ~nobody-here-at-all/x", "has no home"),
    "path-lines": (
        "state_dir = /a\n  /b",
        "has several lines"),
    "blank-before-a-key": (
        "batch_floor = 10%\n  max_converted_nodes = 30",
        "[settings] batch_floor: the line 'max_converted_nodes = …' below begins with a "
        "blank, so it continues 'batch_floor'; remove the blank"),
    "tab-before-a-key": ("headroom = 0.5\n\tinstance_id: x", "continues 'headroom'; remove the"),
    "several-lines-and-no-key": ("exclude_nodes = a1,\n  b[", "'a1,b[' can't be read"),
    "reference": ("state_dir = %(absent)s", "write the value out"),
    "control-character": ("state_dir = /\x07", "can't be shown"),
    "twice": ("headroom = 1\nheadroom = 1", "line 5: the key headroom is twice"),
    "twice-by-case": ("headroom = 1\nHeadroom = 1", "exists twice; keep one"),
    "sections": ("[node_type:g]\n[node_type:g]\n", "[node_type:g] exists twice"),
    "no-equals": ("just words", "line 4: 'just …' is neither"),
    "no-type-of-a-namespace": ("[namespace:dev]\nnode_type = g", "write a section [node_type:g]"),
    "min-above-max": ("[namespace:dev]\nmax_nodes = 1\nmin_nodes = 2", "is above max_nodes = 1"),
    "min-above-cap": ("max_converted_nodes = 1\n[namespace:dev]\nmin_nodes = 2",
        "is below the sum of all min_nodes, 2"),
    "type-that-nobody-lends": ("[node_type:gpu]\nnvidia.com/gpu = 4",
        "[settings] node_type: is missing; name what to lend: gpu"),
    "gpu": ("[node_type:a]\ngpu = 4", "[node_type:a] gpu: unknown key; write a resource as"),
    "gpu-of-all": ("gpu = 4", "e.g. nvidia.com/gpu = 4"),
    "resource-of-all": ("nvidia.com/gpu = 4", "unknown key; write it in [node_type:NAME]"),
    "resource": ("[node_type:g]\ngpus = 4", "[node_type:g] gpus: unknown key; write a resource as"),
    "amount": ("[node_type:g]\nnvidia.com/gpu = four", "write e.g. 4"),
    "label": ("[node_type:g]\nlabels = a", "write key=value, key=value"),
    "label-twice": ("[node_type:g]\nlabels = a=1, a=2", "two values"),
    "label-value": ("[node_type:g]\nlabels = a=b c", "is not a label value"),
    "taint": ("[node_type:g]\ntaints = a=b", "is not a taint"),
    "effect": ("[node_type:g]\ntaints = a=b:Nosched", "did you mean 'NoSchedule'?"),
    "taint-twice": ("[node_type:g]\ntaints = a:NoExecute, a=1:NoExecute", "give it once"),
    "prefix-of-nodes": ("[node_type:g]\nname_prefix = G", "write a-z"),
    "overlapping-prefixes": ("[node_type:g]\n[node_type:g1]\n", "change one prefix"),
    "same": ("[node_type:g]\n[node_type:h]\nname_prefix = g", "change one prefix"),
    "type-alphabet": ("[node_type:g g]\nname_prefix = g", "is not a node type"),
    "type-unprintable": ("[node_type:g] \v [settings]", "is not a node type"),
    "label-grows-too-long": ("[node_type:g]\nlabels = {namespace}-" + "x" * 61 + "=1",
        "longer than 63"),
}  # fmt: skip


@pytest.mark.parametrize(("text", "expected"), BAD.values(), ids=BAD)
def test_malformed_configuration_is_reported(tmp_path: Path, text: str, expected: str) -> None:
    message = refusal(site(tmp_path, text))
    assert expected in message
    assert all(char.isprintable() for char in message.replace("\n", ""))


def test_all_configuration_problems_are_reported_at_once(tmp_path: Path) -> None:
    text = (
        "headrom = 1\nmax_converted_nodes = x\nmax_converted_nodes = 3\nnonsense\n"
        "[namespace:dve]\n[node_type:a]\ncpu = many\n[node_type:a]\ncpu = 3\n"
    )
    message = refusal(site(tmp_path, text, '{"dev": 3, "dev": "root", "extra": null}'))
    assert message.startswith(f"{tmp_path}/dnm.ini: ")
    for part in ("headrom", "max_converted_nodes = x", "is twice", "nonsense", "dve", "many",
                 "[node_type:a] exists twice", "'dev' more than once", "queue of 'extra'",
                 "test: has no queue"):  # fmt: skip
        assert part in message, part


def test_thousand_problems_are_shortened(tmp_path: Path) -> None:
    message = refusal(site(tmp_path, "".join(f"bad{n} = 1\n" for n in range(1000))))
    assert len(message.splitlines()) == 52
    assert message.endswith("and 950 more")


@pytest.mark.parametrize(
    ("queue_map", "expected"),
    [
        pytest.param('{"dev": "root.a",\n "test" "root.b"}', "(line 2, column 9)", id="broken"),
        pytest.param("", "is not JSON", id="empty"),
        pytest.param('["dev"]', "is JSON but not a map", id="list"),
        pytest.param("[" * 100_000, "is not JSON that can be read", id="deep"),
        pytest.param("9" * 10_000, "is not JSON", id="long-number"),
        pytest.param('{"dev": {"queue": "root.a"}}', "queue of 'dev' is not a string", id="shape"),
        pytest.param('{"dev": "root.a", "dev": "root.b"}', "'dev' more than once", id="twice"),
        pytest.param('{"dev": "root.a b"}', '"dev": "root.a b": ', id="alphabet"),
        pytest.param('{"dev": "root."}', "is not a queue path", id="dot"),
        pytest.param('{"dev": ""}', "is not a queue path", id="no-path"),
        pytest.param('{"dev": "ROOT"}', "is the entire cluster", id="root"),
        pytest.param('{"dve": "root.a"}', "dev: has no queue in", id="no-entry"),
        pytest.param('{"dve": "root.a"}', "did you mean 'dve'?", id="no-entry-guess"),
        pytest.param(b'{"dev": "root.\xff"}', "is not UTF-8 text (line 1)", id="not-utf8"),
        pytest.param('{"dev": "a\\u0007"}', '"dev": "a?": ', id="control-character"),
    ],
)
def test_malformed_queue_map_is_reported(
    tmp_path: Path, queue_map: str | bytes, expected: str
) -> None:
    assert expected in refusal(site(tmp_path, "", queue_map))


# --- files -----------------------------------------------------------------------------------

FORMS = {
    "no section": ("[node_convert]\n", "is missing; write it with monitored_namespaces"),
    "before one": ("headroom = 1\n" + BASE, "line 1: 'headroom' is before the first sec"),
    "no map": (BASE, "/map.json is missing"),
}


@pytest.mark.parametrize(("text", "hint"), FORMS.values(), ids=FORMS)
def test_file_that_is_no_configuration_is_reported(tmp_path: Path, text: str, hint: str) -> None:
    assert "is missing: write it (an example" in refusal(tmp_path / "dnm.ini")
    assert hint in refusal(write(tmp_path / "dnm.ini", text))


def test_directory_pipe_loop_binary_and_giant_are_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe", 0o600)
    (tmp_path / "loop").symlink_to("loop")
    write(tmp_path / "nul", b"[settings]\0")
    write(tmp_path / "latin", b"[settings]\n# caf\xe9\n")
    with open(tmp_path / "giant", "wb") as file:
        file.truncate(5 * 1024 * 1024)
    (tmp_path / "giant").chmod(0o644)
    tmp_path.chmod(0o755)
    for name, expected in (
        (".", "is a directory"),
        ("pipe", "not a regular file"),
        ("loop", "can't be read (Too many"),
        ("nul", "NUL"),
        ("latin", "(line 2): save it as UTF-8"),
        ("giant", "is larger than"),
        ("nul/x", "can't be read (Not a directory)"),
    ):
        assert expected in refusal(tmp_path / name), name


@pytest.mark.parametrize(("name", "mode"), [("dnm.ini", 0o602), ("map.json", 0o620)])
def test_world_writable_configuration_files_are_refused(
    tmp_path: Path, name: str, mode: int
) -> None:
    path = site(tmp_path)
    (tmp_path / name).chmod(mode)
    message = refusal(path)
    assert f"chmod go-w {tmp_path}/{name}" in message
    os.system(message.rpartition("run '")[2].rstrip("'"))
    assert load_config(path, HOME).path == path


def test_remedy_quotes_the_file_name(tmp_path: Path) -> None:
    target = write(tmp_path / "a b", "")
    target.chmod(0o646)
    with pytest.raises(ConfigError, match=r"by every user.*go-w '.*a b'"):
        check_trust(target)


def test_config_path_is_option_before_environment_before_default(tmp_path: Path) -> None:
    assert find_config_path(None, {}) == DEFAULT_PATH
    assert find_config_path(None, {"DNM_CONFIG": " "}) == DEFAULT_PATH
    assert find_config_path(None, {"DNM_CONFIG": "$SITE/x", **HOME}) == Path("/opt/site/x")
    assert find_config_path(Path("/a"), {"DNM_CONFIG": "/b"}) == Path("/a")
    assert find_config_path(Path("x.ini"), {}) == Path.cwd() / "x.ini"
    with pytest.raises(ConfigError, match="no variable NONE"):
        find_config_path(None, {"DNM_CONFIG": "$NONE/x"})


def test_huge_pages_of_a_node_type_are_kubelet_settings_too(tmp_path: Path) -> None:
    lines = "[node_type:a]\nhugepages-1Gi = 4Gi\nnuma_memory = 0: 64Gi\n"
    kubelet = load(tmp_path, lines).node_types["a"].kubelet
    assert kubelet is not None and kubelet.hugepages_1gi == 4 * 1024**3


def test_converter_in_path_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.executable", str(tmp_path / "python"))
    monkeypatch.setattr("dnm.config.load.SITE_CONVERTER", tmp_path / "site" / "node-convert")
    assert find_converter({"PATH": "/nowhere"}) == tmp_path / "node-convert"
    (tmp_path / "bin").mkdir()
    write(tmp_path / "bin" / "node-convert", "#!/bin/sh\n").chmod(0o755)
    assert find_converter({"PATH": str(tmp_path / "bin")}) == tmp_path / "bin" / "node-convert"
    write(tmp_path / "node-convert", "")
    assert find_converter({"PATH": str(tmp_path / "bin")}) == tmp_path / "node-convert"
    shutil.copytree(tmp_path / "bin", tmp_path / "site")
    assert find_converter({"PATH": ""}) == tmp_path / "site" / "node-convert"
    out_of_reach = tmp_path / ("x" * 300) / "node-convert"  # as in a folder that is not for us
    monkeypatch.setattr("dnm.config.load.SITE_CONVERTER", out_of_reach)
    assert find_converter({"PATH": ""}) == tmp_path / "node-convert"


def test_unreachable_events_dir_stops_no_command(tmp_path: Path) -> None:
    """The configuration loads; only the command that reads the directory reports the problem."""
    config = load(tmp_path, f"calendar = {'x' * 300}/events.d\n")
    assert config.events_dir == tmp_path / ("x" * 300) / "events.d"


# --- any input -------------------------------------------------------------------------------

WORDS = st.sampled_from([
    *SETTINGS, *NODE_TYPE_KEYS, *NAMESPACE_KEYS, "[settings]", "[node_type:g]", "[namespace:dev]",
    "[", "]", "=", ":", "\n", "\n ", "#", ";", "%", "%(headroom)s", "$HOME", "~", "1", "256G", "a",
    ",", "nvidia.com/gpu", "{namespace}", "NoSchedule", "\r", "\x0b", "\u2028", "\ufeff", "dev",
])  # fmt: skip
INI = st.one_of(
    st.binary(max_size=200),
    st.lists(WORDS, max_size=40).map(" ".join),
    st.lists(WORDS, max_size=40).map(lambda words: BASE + "".join(words)),
)


@settings(max_examples=300, deadline=None)
@given(
    ini=INI,
    queue_map=st.one_of(
        st.just(MAP),
        st.binary(max_size=80),
        st.recursive(
            st.none() | st.text(max_size=4),
            lambda inner: (
                st.lists(inner, max_size=3)
                | st.dictionaries(st.text(max_size=4), inner, max_size=3)
            ),
        ).map(json.dumps),
    ),
)
def test_arbitrary_bytes_give_a_configuration_or_a_sentence(
    tmp_path_factory: pytest.TempPathFactory, ini: bytes | str, queue_map: bytes | str
) -> None:
    directory = tmp_path_factory.getbasetemp() / "fuzz"
    directory.mkdir(exist_ok=True)
    write(directory / "map.json", queue_map)
    path = write(directory / "dnm.ini", ini)
    try:
        config = load_config(path, HOME)
    except ConfigError as error:
        assert str(error).strip()
        assert all(char.isprintable() for char in str(error).replace("\n", ""))
    else:
        assert config.namespaces
        assert all(queue.startswith("root.") for queue in config.queues)


# --- lists of steps ------------------------------------------------------------------------------


def test_readiness_checks_are_parsed() -> None:
    steps = parse_readiness_checks(
        "daemonsets within 5m\ncondition a.example/Up=True, images within 90s"
    )
    assert [(step.kind, step.text, step.within.total_seconds()) for step in steps] == [
        ("daemonsets", "daemonsets", 300),
        ("condition", "condition a.example/Up=True", 900),
        ("images", "images", 90),
    ]


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("daemonset", "write daemonset NAMESPACE/NAME"),
        ("daemonset kube-system", "write daemonset NAMESPACE/NAME"),
        ("condition Up", "write condition TYPE=True"),
        ("condition Up=yes", "write condition TYPE=True"),
        ("image", "write image NAME"),
        ("image a b", "write image NAME"),
        ("probe x", "write probe NAMESPACE/PODTEMPLATE"),
        ("taint a b", "write taint KEY"),
        ("images now", "write images"),
        ("demonsets", "did you mean 'daemonsets'"),
        ("xyzzy", "write one of daemonsets, daemonset NAMESPACE/NAME"),
        ("images within soon", "write a number and a unit"),
        ("images within 0m", "write a number and a unit"),
        ("images within 5", "has 'within 5'; write a number and a unit, e.g. 90s"),
        ("images, images within 5m", "twice"),
        (", ".join(f"image x{number}" for number in range(21)), "write 20 at most"),
    ],
)
def test_malformed_readiness_check_is_answered_with_a_valid_form(text: str, hint: str) -> None:
    with pytest.raises(ValueError, match=hint):
        parse_readiness_checks(text)


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("Ready=False", "write one of condition TYPE=STATUS, e.g. condition Ready=False, taint"),
        ("condition GpuOk", "write condition TYPE=STATUS, e.g. condition Ready=False"),
        ("condition Ready=True", "which every healthy node has; name the fault"),
        ("images", "begins with 'images', which is not a check"),
    ],
)
def test_malformed_fault_condition_is_answered_with_a_valid_form(
    tmp_path: Path, text: str, hint: str
) -> None:
    message = refusal(site(tmp_path, f"fault_conditions = {text}"))
    assert hint in message and "TYPE=True" not in message


def test_advice_about_swallowed_keys_is_absent_in_a_list_of_pairs(tmp_path: Path) -> None:
    """A list of pairs may contain a name that is also a key, such as `memory`."""
    with pytest.raises(ConfigError) as refused:
        load(tmp_path, "[node_type:a]\nkube_reserved =\n  cpu=1\n  memory=x")
    assert "remove the blank" not in str(refused.value)
