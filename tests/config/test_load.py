"""Configuration: what sites have is read as it is; what is wrong is named, all of it at once."""

from __future__ import annotations

import json
import os
import shutil
from datetime import timedelta
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dnm.config.former import FORMER, RETIRED, with_former
from dnm.config.keys import (
    KUBELET_KEYS,
    NAMESPACE_KEYS,
    NODE_CONVERT_KEYS,
    NODE_TYPE_KEYS,
    SETTINGS,
)
from dnm.config.lab import RUN_KEYS
from dnm.config.load import DEFAULT_PATH, find_config_path, find_converter, load_config
from dnm.config.opening_values import opening_steps
from dnm.config.sections import state_folder
from dnm.converters.settings import load_settings
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
    """A directory with both files; `more` follows the keys that every configuration needs."""
    directory.chmod(0o755)
    write(directory / "map.json", queue_map)
    return write(directory / "dnm.ini", BASE + more)


def load(directory: Path, more: str = "", queue_map: str | bytes = MAP) -> Config:
    return load_config(site(directory, more, queue_map), HOME)


def told(kind: str, key: str, section: str = "") -> str:
    """What is said of a key of an older dnm."""
    if key in RETIRED.get(kind, {}):
        return f"[{section or kind}] {key}: this key is gone: {RETIRED[kind][key]}"
    why = FORMER[kind][key][2]
    return f"[{section or kind}] {key}: this key is followed, and not needed any more: {why}"


def refusal(path: Path) -> str:
    with pytest.raises(ConfigError) as caught:
        load_config(path, HOME)
    return str(caught.value)


# --- what sites have -------------------------------------------------------------------------


def copy_data(name: str, directory: Path) -> Path:
    for source in (DATA / name).iterdir():
        write(directory / source.name, source.read_bytes())
    return directory / "dynamic_node_config.ini"


def test_production_file_of_the_predecessor(tmp_path: Path) -> None:
    path = copy_data("site", tmp_path)
    queues = '{"dev": "services.dev", "notebook": "Root.Services.NB"}'
    queue_map = write(tmp_path / "q.json", queues)
    text = path.read_text().replace("/etc/dynamic-node/namespace_queue_paths.json", str(queue_map))
    config = load_config(write(path, text), {})
    assert config.queues == ("root.services.dev", "root.services.nb")
    assert config.node_types == {
        "a": NodeType(name="a", size={"vcore": 128_000, "memory": 256 * 10**9})
    }
    assert config.default_request == {"vcore": 1000, "memory": 2 * 1024**3}
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
def test_what_was_lent_before_is_found_where_it_lies(tmp_path: Path, name: str) -> None:
    """A site that takes the new file over its old one has its registry in /etc."""
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
        retired=tuple(
            told("settings", key)
            for key in (
                "log_console",
                "allowed_queue_prefixes",
                "global_cooldown_seconds",
                "shutdown_grace_seconds",
                "node_cpu_capacity",
                "node_memory_capacity",
                "yunikorn_cm_name",
                "yunikorn_queue_annotation",
                "default_cpu_request_m",
                "default_mem_request",
            )
        ),
        state_dir=tmp_path / "state",
        converted_nodes_path=tmp_path / "state" / "converted_nodes.json",
        kubeconfig_path=tmp_path / "kubeconfig",
        node_convert_path=tmp_path / "node-convert",
        allowed_queue_prefixes=("root.anvil.services.dev",),
        slurm_reservation_name="k8s-dnm-validation",
        max_converted_nodes=2,
        check_interval=timedelta(seconds=30),
        global_cooldown=timedelta(seconds=60),
        node_types={"b": NodeType(name="b", size={"vcore": 128_000, "memory": 256 * 10**9})},
        namespaces={
            "notebook-test": NamespacePolicy(
                name="notebook-test",
                queue="root.anvil.services.dev",
                node_types=("b",),
                reversion_idle=timedelta(seconds=300),
            )
        },
    )


def test_defaults_are_those_of_the_model(tmp_path: Path) -> None:
    config = load(tmp_path)
    plain = Config(path=config.path, namespaces=config.namespaces, node_types=config.node_types)
    for field in set(Config.__struct_fields__) - {"node_convert_path"}:
        assert getattr(config, field) == getattr(plain, field), field


def test_every_field_has_a_key_and_every_key_a_field() -> None:
    built = {"path", "namespaces", "node_types", "default_request",
             "calendar_events", "unread_events", "retired", "lead", "yunikorn_cm_name"}  # fmt: skip
    followed = {**with_former("settings", SETTINGS), **RUN_KEYS}
    several = {field for key in ("exclude_nodes", "state", "batch_floor")
               for field in SETTINGS[key][1]({"state": "file"}.get(key, "1"))}  # fmt: skip
    several |= {"state_namespace", "batch_floor", "calendar"}
    filled = {field for field, _ in followed.values()} | several
    assert filled - {"", "*"} == set(Config.__struct_fields__) - built
    followed = with_former("namespace", NAMESPACE_KEYS)
    assert {field for field, _ in followed.values()} == set(NamespacePolicy.__struct_fields__) - {
        "name",
        "queue",
        "min_nodes_by",
        "min_of_type",
    }
    assert {field for field, _ in NODE_TYPE_KEYS.values()} - {""} == set(
        NodeType.__struct_fields__
    ) - {"name", "size", "kubelet"}
    followed = with_former("node_type", KUBELET_KEYS)
    assert {field for field, _ in followed.values()} - {"*"} == set(
        KubeletSettings.__struct_fields__
    )


# --- values ----------------------------------------------------------------------------------

GOOD = [
    pytest.param("max_converted_nodes = 0", "max_converted_nodes", 0, id="cap-zero"),
    pytest.param("max_converted_nodes = 25%", "max_converted_nodes", Share(percent=25), id="cap-%"),
    pytest.param(
        "max_converted_nodes = 2.5 %%",
        "max_converted_nodes",
        Share(percent=2.5),
        id="cap-with-a-blank",
    ),
    pytest.param("max_converted_nodes = 0%", "max_converted_nodes", Share(percent=0), id="cap-0%"),
    pytest.param("MAX_Converted_Nodes = 7", "max_converted_nodes", 7, id="key-in-any-case"),
    pytest.param("headroom = 1", "headroom", 1.0, id="headroom-one"),
    pytest.param("headroom = .8", "headroom", 0.8, id="headroom-short"),
    pytest.param("join_timeout_seconds = 1.5", "join_timeout", timedelta(seconds=1.5), id="half"),
    pytest.param("event_reservations = yes", "book_ahead", timedelta(days=7), id="booked-a-week"),
    pytest.param("event_reservations = 14", "book_ahead", timedelta(days=14), id="booked-two"),
    pytest.param(
        "event_reservations = true\nBook_Days = 30",
        "book_ahead",
        timedelta(days=30),
        id="booked-as-before",
    ),
    pytest.param("book_days = 30", "book_ahead", timedelta(), id="never-booked-before"),
    pytest.param(
        "[node_convert]\nres_name = lent",
        "slurm_reservation_name",
        "lent",
        id="reservation-as-before",
    ),
    pytest.param(
        "slurm_reservation_name = new\n[node_convert]\nres_name = lent",
        "slurm_reservation_name",
        "new",
        id="the-new-place-first",
    ),
    pytest.param(
        "[node_convert]\npreempt_enabled = yes", "allow_preempt", True, id="preemption-as-before"
    ),
    pytest.param(
        "pass_environment = A\n[node_convert]\npass_environment = A, B",
        "pass_environment",
        ("A", "B"),
        id="variables-add-up",
    ),
    pytest.param("[lab]\npending_grace_seconds = 0", "pending_grace", timedelta(0), id="no-grace"),
    pytest.param("max_conversions_per_run = 9", "max_reversions_per_run", 9, id="as-many-return"),
    pytest.param("max_conversions_per_run = 1", "max_reversions_per_run", 4, id="four-at-least"),
    pytest.param("max_reversions_per_run = 2", "max_reversions_per_run", 2, id="returns-as-before"),
    pytest.param(
        "converted_nodes_path = /srv/x", "converted_nodes_path", Path("/srv/x"), id="file-as-before"
    ),
    pytest.param("adjust_guaranteed = No", "adjust_guaranteed", False, id="bool-no"),
    pytest.param("allow_preempt = 1", "allow_preempt", True, id="bool-1"),
    pytest.param("kubeconfig_path = ~/k", "kubeconfig_path", Path("/home/operator/k"), id="home"),
    pytest.param("state_dir = ${SITE}/s", "state_dir", Path("/opt/site/s"), id="variable"),
    pytest.param("state_dir = $SITE/../x", "state_dir", Path("/opt/x"), id="normalised"),
    pytest.param("kubeconfig_path =", "kubeconfig_path", None, id="empty-is-default"),
    pytest.param("slurm_reservation_name =", "slurm_reservation_name", "", id="empty-name"),
    pytest.param(
        "yunikorn_url = http://yk.yunikorn:9080/",
        "yunikorn_url",
        "http://yk.yunikorn:9080",
        id="url",
    ),
    pytest.param(
        "allowed_queue_prefixes = Services,\n  root.other",
        "allowed_queue_prefixes",
        ("root.services", "root.other"),
        id="list-over-lines",
    ),
    pytest.param("allowed_queue_prefixes = root", "allowed_queue_prefixes", ("root",), id="root"),
    pytest.param(
        "state_dir = /srv/dnm",
        "converted_nodes_path",
        Path("/srv/dnm/converted_nodes.json"),
        id="registry-follows-state-dir",
    ),
    pytest.param("state_dir = /a%%b", "state_dir", Path("/a%b"), id="percent"),
    pytest.param(
        "state_dir = /srv/%(instance_id)s\ninstance_id = two",
        "state_dir",
        Path("/srv/two"),
        id="reference-of-the-standard-ini",
    ),
    pytest.param(
        "[DEFAULT]\nmax_converted_nodes = 3", "max_converted_nodes", 3, id="default-section"
    ),
    pytest.param("[node_convert]\nanything = goes", "instance_id", "prod", id="other-command"),
    pytest.param("# [x]\n; y = z\n", "instance_id", "prod", id="comments"),
    pytest.param("batch_floor = 10", "batch_floor", Floor(nodes=10), id="floor"),
    pytest.param("batch_floor = 5%", "batch_floor", Floor(percent=5), id="floor-%"),
    pytest.param(
        "batch_floor = 1, partition gpu: 2.5 %",
        "partition_floors",
        {"gpu": Floor(percent=2.5)},
        id="floor-of-a-partition",
    ),
    pytest.param("batch_floor = 1, a: 5 %", "type_floors", {"a": Floor(percent=5)}, id="of-a-type"),
    pytest.param(
        "batch_floor = 1\n[node_type:a]\nbatch_floor = 2\n[partition:gpu]\nbatch_floor = 3",
        "partition_floors",
        {"gpu": Floor(nodes=3)},
        id="floors-as-before",
    ),
    pytest.param(
        "exclude_nodes = a[1,3],\n partition gpu, b2",
        "exclude_nodes",
        frozenset({"a1", "a3", "b2"}),
        id="kept-out",
    ),
    pytest.param(
        "exclude_nodes = a1, partition gpu\nexclude_partitions = long, debug",
        "exclude_partitions",
        ("gpu", "long", "debug"),
        id="partitions-as-before",
    ),
    pytest.param("exclude_features = ib", "exclude_features", ("ib",), id="features-as-before"),
    pytest.param("state = kubernetes gpu", "state_namespace", "gpu", id="namespace-of-the-state"),
    pytest.param("calendar = d, /x/w.ics", "calendar", Path("/x/w.ics"), id="icalendar"),
    pytest.param("calendar = /x/events.d", "events_dir", Path("/x/events.d"), id="events.d"),
    pytest.param(
        "max_lend_hours = 72", "options", {"max_lend_hours": timedelta(days=3)}, id="hours"
    ),
    pytest.param("pod_minute_worth = 0.3", "pod_minute_worth", 0.3, id="price"),
    pytest.param("charge_account = -", "charge_account", "-", id="nobody"),
    pytest.param("charge_account = p_1.x", "charge_account", "p_1.x", id="an-account"),
    pytest.param(f"charge_user_label = {JUPYTER}", "charge_user_label", JUPYTER, id="user-label"),
]


@pytest.mark.parametrize(("text", "field", "expected"), GOOD)
def test_value(tmp_path: Path, text: str, field: str, expected: object) -> None:
    assert getattr(load(tmp_path, text), field) == expected


def test_line_ends_and_byte_order_mark_do_not_matter(tmp_path: Path) -> None:
    path = site(tmp_path, "max_converted_nodes = 3\n", "\ufeff" + MAP)
    write(path, b"\xef\xbb\xbf" + path.read_bytes().replace(b"\n", b"\r\n"))
    assert load_config(path, HOME).max_converted_nodes == 3


def test_namespaces_and_node_types_with_sections_of_their_own(tmp_path: Path) -> None:
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
reversion_idle_seconds = 60
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
        reversion_idle=timedelta(seconds=60),
    )
    assert config.namespaces["test"].reversion_idle == timedelta(seconds=900)
    assert config.namespaces["test"].node_types == ("a",)
    assert config.node_types["g"] == NodeType(
        name="g",
        size={"vcore": 64_000, "memory": 1024**4, "nvidia.com/gpu": 4},
        name_prefix="gpu-",
        max_nodes=2,
        labels={"pool": "{namespace}", "{namespace}": "true"},
        taints=(
            Taint(key="dedicated", value="{namespace}", effect="NoSchedule"),
            Taint(key="nvidia.com/gpu", effect="PreferNoSchedule"),
        ),
    )
    assert config.node_types["a"].size == {"vcore": 128_000, "memory": 256 * 10**9}


# --- problems --------------------------------------------------------------------------------

BAD = [
    pytest.param("max_converted_node = 3", "did you mean 'max_converted_nodes'?", id="unknown-key"),
    pytest.param("zzz = 3", "[settings] zzz = 3: unknown key", id="unknown-key-no-guess"),
    pytest.param("[setings]\n", "[setings]: unknown section, did you mean [settings]?", id="sec"),
    pytest.param("[qqq]\n", "there are [settings], [namespace:NAME]", id="section-no-guess"),
    pytest.param("[namespaces:dev]\n", "did you mean [namespace:dev]?", id="named-section"),
    pytest.param("[nodetype:b]\n", "did you mean [node_type:b]?", id="named-section-type"),
    pytest.param("[namespace]\n", "write [namespace:NAME]", id="section-without-name"),
    pytest.param("[namespace:dex]\n", "did you mean 'dev'?", id="namespace-not-monitored"),
    pytest.param("[namespace:qq]\n", "name it in monitored_namespaces", id="namespace-no-guess"),
    pytest.param("max_converted_nodes = -1", "from 0 to 100000", id="negative"),
    pytest.param("max_converted_nodes = 1.5", "is not a whole number", id="fraction"),
    pytest.param("max_converted_nodes = ten", "max_converted_nodes = ten: is not", id="word"),
    pytest.param("max_converted_nodes = 101%", "from 0% to 100%, e.g. 25%", id="cap-above-all"),
    pytest.param("max_converted_nodes = -5%%", "is no percentage", id="cap-below-0"),
    pytest.param(
        "max_converted_nodes = %%", "is no percentage of the batch nodes", id="cap-bare-%"
    ),
    pytest.param("[namespace:dev]\nmax_nodes = 5%%5", "is no percentage", id="cap-of-a-namespace"),
    pytest.param("[node_type:a]\nmax_nodes = ten%%", "is no percentage", id="cap-of-a-type"),
    pytest.param("max_converted_nodes = 3 ; small", "a line of its own", id="comment-behind"),
    pytest.param("max_converted_nodes = " + "9" * 5000, "is not a whole number", id="huge"),
    pytest.param("max_converted_nodes =", "is empty", id="empty"),
    pytest.param("reversion_idle_seconds = 10y", "is no duration; write seconds", id="suffix"),
    pytest.param("check_interval_seconds = 2d", "is out of range", id="interval-days"),
    pytest.param("history_days = 2w", "is not a whole number", id="days-in-weeks"),
    pytest.param("check_interval_seconds = 0", "out of range", id="interval-zero"),
    pytest.param("batch_floor = some", "write a number of nodes, e.g. 10, or a", id="floor-word"),
    pytest.param("batch_floor = 101%", "or a percentage, e.g. 5%", id="floor-above-all"),
    pytest.param("batch_floor = -1", "is no floor", id="floor-negative"),
    pytest.param("charge_account = a b", "is not a name that Slurm takes", id="blank"),
    pytest.param("charge_account = -x", "is not a name that Slurm takes", id="option"),
    pytest.param("charge_user_label = a b", "'a b' is not a label key", id="user-label-blank"),
    pytest.param("charge_user_label =", "is empty; write a value, or leave", id="user-label-none"),
    pytest.param("max_lend_hours = 1.5", "is not a whole number", id="half-an-hour"),
    pytest.param("[namespace:dev]\nnode_hours_per_week = much", "is no number", id="budget-word"),
    pytest.param(
        "[namespace:dev]\nnode_hours_per_week = 1e9", "is no number", id="budget-exponent"
    ),
    pytest.param("batch_floor = partition a?: 1", "is no name of a partition", id="partition"),
    pytest.param("[partition:a]\nfloor = 1", "unknown key", id="partition-key"),
    pytest.param("batch_floor = part a: 1", "write TYPE: 5, or partition NAME: 5", id="floor-of"),
    pytest.param("batch_floor = c: 1", "there is no node type c; write partition c", id="no-type"),
    pytest.param("exclude_nodes = feature ?", "is no name of a feature", id="feature"),
    pytest.param("state = kubernetes A", "is not a namespace name", id="state-namespace"),
    pytest.param("state = file dnm", "write file or kubernetes, with its", id="file-namespace"),
    pytest.param("calendar = a, b", "name one directory and one", id="two-directories"),
    pytest.param("[node_type:a]\nkube_reserved = gpu=1", "write e.g. cpu=500m", id="kept-back"),
    pytest.param("headroom = 1.2", "above 0 and up to 1", id="headroom-high"),
    pytest.param("headroom = 0", "out of range", id="headroom-zero"),
    pytest.param("headroom = nan", "is not a share", id="headroom-nan"),
    pytest.param("headroom = .", "is not a share", id="headroom-dot"),
    pytest.param("headroom = 95%", "headroom = 95%: is a percentage; write 0.95", id="percent"),
    pytest.param("[node_type:a]\ngres = gpu:4", "e.g. nvidia.com/gpu = 4", id="gres"),
    pytest.param("[node_type:a]\ngres/gpu = 4", "e.g. nvidia.com/gpu = 4", id="gres-gpu"),
    pytest.param("node_type = a b", "a comma between them; write a, b", id="types-no-comma"),
    pytest.param("allow_preempt = maybe", "write true or false", id="bool"),
    pytest.param("node_memory_capacity = 256GB", "write e.g. 256G", id="memory-unit"),
    pytest.param("node_cpu_capacity = 0", "is not more than nothing", id="cpu-zero"),
    pytest.param("instance_id = a b", "letters, digits", id="instance-space"),
    pytest.param("instance_id = -rf", "letters, digits", id="instance-dash"),
    pytest.param("slurm_reservation_name = a,b", "is not a name that Slurm takes", id="comma"),
    pytest.param("slurm_reservation_name = $(id)", "is not a name that Slurm", id="shell"),
    pytest.param("yunikorn_cm_namespace = a.b", "RFC 1123", id="cm-namespace"),
    pytest.param("yunikorn_url = yk:9080", "http://yunikorn-service", id="url-scheme"),
    pytest.param("yunikorn_url = http://yk:99999", "http://yunikorn-service", id="url-port"),
    pytest.param("yunikorn_url = http://[::1/", "http://yunikorn-service", id="url-bracket"),
    pytest.param("yunikorn_url = http://u:p@yk/", "without user name", id="url-secret"),
    pytest.param("node_type = a;b", "is not a node type", id="node-type-alphabet"),
    pytest.param("node_type = A", "is not a node type", id="node-type-upper"),
    pytest.param("allowed_queue_prefixes = root..x", "is not a queue path", id="prefix"),
    pytest.param(
        "allowed_queue_prefixes = root.service",
        "does not cover root.services.dev",
        id="outside-prefix",
    ),
    pytest.param("state_dir = $NOWHERE/x", "has no variable NOWHERE", id="variable"),
    pytest.param("state_dir = ~nobody-here-at-all/x", "has no home", id="user"),
    pytest.param("state_dir = /a\n  /b", "runs over several lines", id="path-lines"),
    pytest.param("state_dir = %(absent)s", "write the value out", id="reference"),
    pytest.param("state_dir = /\x07", "can't be shown", id="control-character"),
    pytest.param("converted_nodes_path = dnm.ini", "that dnm only reads", id="registry-is-ini"),
    pytest.param("headroom = 1\nheadroom = 1", "line 5: the key headroom is twice", id="twice"),
    pytest.param("headroom = 1\nHeadroom = 1", "is there twice; keep one", id="twice-by-case"),
    pytest.param("[node_type:g]\n[node_type:g]\n", "[node_type:g] is there twice", id="sections"),
    pytest.param("just words", "line 4: 'just words", id="no-equals"),
    pytest.param("[namespace:dev]\nnode_type = g", "write a section [node_type:g]", id="no-type"),
    pytest.param(
        "[namespace:dev]\nmax_nodes = 1\nmin_nodes = 2",
        "is above max_nodes = 1",
        id="min-above-max",
    ),
    pytest.param(
        "max_converted_nodes = 1\n[namespace:dev]\nmin_nodes = 2",
        "is below the sum of all min_nodes, 2",
        id="min-above-cap",
    ),
    pytest.param("[node_type:g]\ngpus = 4", "[node_type:g] gpus = 4: unknown key", id="resource"),
    pytest.param("[node_type:g]\nnvidia.com/gpu = four", "write e.g. 4", id="amount"),
    pytest.param("[node_type:g]\nlabels = a", "write key=value, key=value", id="label"),
    pytest.param("[node_type:g]\nlabels = a=1, a=2", "two values", id="label-twice"),
    pytest.param("[node_type:g]\nlabels = a=b c", "is not a label value", id="label-value"),
    pytest.param("[node_type:g]\ntaints = a=b", "is not a taint", id="taint"),
    pytest.param("[node_type:g]\ntaints = a=b:Nosched", "did you mean 'NoSchedule'?", id="effect"),
    pytest.param(
        "[node_type:g]\ntaints = a:NoExecute, a=1:NoExecute", "give it once", id="taint-twice"
    ),
    pytest.param("[node_type:g]\nname_prefix = G", "write a-z", id="prefix"),
    pytest.param("[node_type:g]\n[node_type:g1]\n", "tell them apart", id="overlapping-prefixes"),
    pytest.param("[node_type:g]\n[node_type:h]\nname_prefix = g", "tell them apart", id="same"),
    pytest.param("[node_type:g g]\nname_prefix = g", "is not a node type", id="type-alphabet"),
    pytest.param("[node_type:g] \v [settings]", "is not a node type", id="type-unprintable"),
    pytest.param(
        "[node_type:g]\nlabels = {namespace}-" + "x" * 61 + "=1",
        "longer than 63",
        id="label-grows-too-long",
    ),
]


@pytest.mark.parametrize(("text", "expected"), BAD)
def test_problem(tmp_path: Path, text: str, expected: str) -> None:
    message = refusal(site(tmp_path, text))
    assert expected in message
    assert all(char.isprintable() for char in message.replace("\n", ""))


def test_all_problems_are_in_one_answer(tmp_path: Path) -> None:
    text = "\n".join(
        [
            "headrom = 1",
            "max_converted_nodes = x",
            "max_converted_nodes = 3",
            "nonsense",
            "[namespace:dve]",
            "[node_type:a]",
            "cpu = many",
            "[node_type:a]",
            "cpu = 3",
        ]
    )
    message = refusal(site(tmp_path, text, '{"dev": 3, "dev": "root", "extra": null}'))
    assert message.startswith(f"{tmp_path}/dnm.ini: ")
    for part in (
        "headrom",
        "max_converted_nodes = x",
        "is twice",
        "nonsense",
        "dve",
        "many",
        "[node_type:a] is there twice",
        "'dev' more than once",
        "queue of 'extra'",
        "test: has no queue",
    ):
        assert part in message, part


def test_a_thousand_problems_do_not_fill_the_screen(tmp_path: Path) -> None:
    message = refusal(site(tmp_path, "".join(f"bad{n} = 1\n" for n in range(1000))))
    assert len(message.splitlines()) == 52
    assert message.endswith("and 950 more")


@pytest.mark.parametrize(
    ("queue_map", "expected"),
    [
        pytest.param('{"dev": "root.a",\n "test" "root.b"}', "(line 2, column 9)", id="broken"),
        pytest.param("", "is not JSON", id="empty"),
        pytest.param('["dev"]', "is JSON but no map", id="list"),
        pytest.param("[" * 100_000, "is not JSON that can be read", id="deep"),
        pytest.param("9" * 10_000, "is not JSON", id="long-number"),
        pytest.param('{"dev": {"queue": "root.a"}}', "queue of 'dev' is not a string", id="shape"),
        pytest.param('{"dev": "root.a", "dev": "root.b"}', "'dev' more than once", id="twice"),
        pytest.param('{"dev": "root.a b"}', '"dev": "root.a b": ', id="alphabet"),
        pytest.param('{"dev": "root."}', "is not a queue path", id="dot"),
        pytest.param('{"dev": ""}', "is not a queue path", id="no-path"),
        pytest.param('{"dev": "ROOT"}', "is the whole cluster", id="root"),
        pytest.param('{"dve": "root.a"}', "dev: has no queue in", id="no-entry"),
        pytest.param('{"dve": "root.a"}', "did you mean 'dve'?", id="no-entry-guess"),
        pytest.param(b'{"dev": "root.\xff"}', "is not UTF-8 text (line 1)", id="not-utf8"),
        pytest.param('{"dev": "a\\u0007"}', '"dev": "a?": ', id="control-character"),
    ],
)
def test_queue_map_problem(tmp_path: Path, queue_map: str | bytes, expected: str) -> None:
    assert expected in refusal(site(tmp_path, "", queue_map))


def test_a_file_without_the_section(tmp_path: Path) -> None:
    message = refusal(write(tmp_path / "dnm.ini", "[node_convert]\n"))
    assert message.endswith("the section is missing; write it with monitored_namespaces")


def test_a_key_before_the_first_section(tmp_path: Path) -> None:
    message = refusal(write(tmp_path / "dnm.ini", "headroom = 1\n" + BASE))
    assert "line 1: 'headroom = 1' stands before the first section" in message


# --- files -----------------------------------------------------------------------------------


def test_missing_file_names_the_example(tmp_path: Path) -> None:
    assert "is missing: write it (an example" in refusal(tmp_path / "none.ini")


def test_missing_map(tmp_path: Path) -> None:
    path = site(tmp_path)
    (tmp_path / "map.json").unlink()
    assert f"the queue map {tmp_path}/map.json is missing" in refusal(path)


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
        ("pipe", "no regular file"),
        ("loop", "can't be read (Too many"),
        ("nul", "NUL"),
        ("latin", "(line 2): save it as UTF-8"),
        ("giant", "is larger than"),
        ("nul/x", "can't be read (Not a directory)"),
    ):
        assert expected in refusal(tmp_path / name), name


def test_unreadable_file(tmp_path: Path) -> None:
    site(tmp_path).chmod(0o000)
    user = os.geteuid()
    try:
        if user == 0:
            os.seteuid(65534)  # root may read everything
        assert "can't be read (Permission denied)" in refusal(tmp_path / "dnm.ini")
    finally:
        os.seteuid(user)


@pytest.mark.parametrize("name", ["dnm.ini", "map.json"])
@pytest.mark.parametrize("mode", [0o666, 0o664, 0o622, 0o602])
def test_files_that_others_can_write_are_refused(tmp_path: Path, name: str, mode: int) -> None:
    path = site(tmp_path)
    (tmp_path / name).chmod(mode)
    message = refusal(path)
    assert f"chmod go-w {tmp_path}/{name}" in message
    os.system(message.rpartition("run '")[2].rstrip("'"))
    assert load_config(path, HOME).path == path


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_files_of_somebody_else_are_refused(tmp_path: Path) -> None:
    path = site(tmp_path)
    os.chown(path, 12345, -1)
    assert "belongs to user id 12345" in refusal(path)


def test_trust_looks_at_what_a_link_points_to(tmp_path: Path) -> None:
    target = write(tmp_path / "a b", "")
    (tmp_path / "link").symlink_to(target)
    check_trust(tmp_path / "link")
    target.chmod(0o646)
    with pytest.raises(ConfigError, match="by everybody"):
        check_trust(tmp_path / "link")
    with pytest.raises(ConfigError, match=r"go-w '.*a b'"):
        check_trust(target)
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o1777)
    with pytest.raises(ConfigError, match="the directory"):
        check_trust(shared)
    with pytest.raises(FileNotFoundError):
        check_trust(tmp_path / "none")


def test_option_then_environment_then_default(tmp_path: Path) -> None:
    assert find_config_path(None, {}) == DEFAULT_PATH
    assert find_config_path(None, {"DNM_CONFIG": " "}) == DEFAULT_PATH
    assert find_config_path(None, {"DNM_CONFIG": "$SITE/x", **HOME}) == Path("/opt/site/x")
    assert find_config_path(Path("/a"), {"DNM_CONFIG": "/b"}) == Path("/a")
    assert find_config_path(Path("x.ini"), {}) == Path.cwd() / "x.ini"
    with pytest.raises(ConfigError, match="no variable NONE"):
        find_config_path(None, {"DNM_CONFIG": "$NONE/x"})


@pytest.mark.parametrize(
    ("kind", "key"), [(kind, key) for kind, keys in RETIRED.items() for key in keys]
)
def test_a_key_that_is_gone_says_what_took_its_place_and_stops_nothing(
    tmp_path: Path, kind: str, key: str
) -> None:
    named = {"namespace": "namespace:dev", "node_type": "node_type:a", "partition": "partition:x"}
    section = named.get(kind, kind)
    head = "" if kind == "settings" else f"[{section}]\n"
    config = load_config(site(tmp_path, f"{head}{key.upper()} = whatever"), {})
    assert config.retired == (told(kind, key, section),)
    load_settings({}, {"DNM_CONFIG": str(config.path)})
    assert "unknown key" in refusal(site(tmp_path, f"[node_type:a]\n{key}_ = 7"))
    declared = {
        "settings": SETTINGS,
        "namespace": NAMESPACE_KEYS,
        "node_convert": NODE_CONVERT_KEYS,
        "node_type": NODE_TYPE_KEYS,
        "partition": {},
    }
    assert key not in declared[kind]


FOLLOWED = {
    ("settings", "converted_nodes_path"): "/srv/dnm/nodes.json",
    ("settings", "global_cooldown_seconds"): "90",
    ("settings", "max_reversions_per_run"): "2",
    ("settings", "allowed_queue_prefixes"): "root.services",
    ("settings", "history_days"): "30",
    ("settings", "node_cpu_capacity"): "96",
    ("settings", "node_memory_capacity"): "1Ti",
    ("settings", "state_namespace"): "gpu",
    ("settings", "events_dir"): "/srv/events",
    ("namespace", "reversion_idle_seconds"): "60",
    **{
        ("node_type", f"{part}_reserved_{kind}"): "1"
        for part in ("kube", "system")
        for kind in ("cpu", "memory")
    },
    ("node_type", "hugepages_2mi"): "4Gi",
    ("node_type", "hugepages_1gi"): "4Gi",
    ("node_type", "kubelet_version"): "1.29",
    ("node_convert", "preempt_user"): "fill",
    ("node_convert", "preempt_account"): "spare",
    ("node_convert", "preempt_grace_seconds"): "9",
    ("node_convert", "drain_timeout_seconds"): "99",
    ("node_convert", "parallel"): "2",
    ("node_convert", "state_dir"): "/srv/journal",
    ("node_convert", "mark_reason"): "lent",
}


def test_a_key_that_is_followed_still_does_what_it_says(tmp_path: Path) -> None:
    assert set(FOLLOWED) == {(kind, key) for kind, keys in FORMER.items() for key in keys}
    for (kind, key), text in FOLLOWED.items():
        field, parse, _ = FORMER[kind][key]
        section = {"namespace": "namespace:dev", "node_type": "node_type:a"}.get(kind, kind)
        for value in (text, ""):
            path = site(tmp_path, f"[{section}]\n{key} = {value}".removeprefix("[settings]\n"))
            config = load_config(path, {})
            assert config.retired == (told(kind, key, section),)
            size = {"vcore" if "cpu" in key else "memory": config.node_types["a"].size}
            found = {
                "settings": config,
                "namespace": config.namespaces["dev"],
                "node_type": config.node_types["a"].kubelet,
                "node_convert": load_settings({}, {"DNM_CONFIG": str(path)}),
            }[kind]
            known = (
                getattr(found, field, None)
                if field
                else next(one[kind] for kind, one in size.items())
            )
            assert (str(known) == str(parse(text))) is bool(value), key


def test_a_key_that_is_gone_changes_nothing_unsaid(tmp_path: Path) -> None:
    """As `dnm simulate --set` asks; one that is followed is."""
    path = site(tmp_path)
    with pytest.raises(ConfigError, match=r"breaker_strikes: this key is gone: a queue gets no"):
        load_config(path, HOME, {"breaker_strikes": "9"})
    assert load_config(path, HOME, {"max_reversions_per_run": "9"}).max_reversions_per_run == 9


def test_huge_pages_of_a_machine_are_those_that_its_nodes_bring(tmp_path: Path) -> None:
    lines = "[node_type:a]\nhugepages-1Gi = 4Gi\nnuma_memory = 0: 64Gi\n"
    for more, pages in (("", 4), ("hugepages_1gi = 8Gi\n", 8)):
        kubelet = load(tmp_path, lines + more).node_types["a"].kubelet
        assert kubelet is not None and kubelet.hugepages_1gi == pages * 1024**3


MOVES = {
    "elsewhere": (
        "event_reservations = true\nbook_days = 9\n[node_convert]\nRES_name = lent\n",
        ("[settings] book_days: 'event_reservations = 9'",
         "[node_convert] res_name: 'slurm_reservation_name = lent'"),
    ),
    "into a list": (
        "exclude_nodes = a[001-002]\nexclude_partitions = debug, long\nbatch_floor = 3\n"
        "[node_type:a]\nbatch_floor = 20%\n[partition:long]\nbatch_floor = 5\n",
        ("[settings] exclude_partitions: "
         "'exclude_nodes = a[001-002], partition debug, partition long'",
         "[node_type:a] batch_floor: 'batch_floor = 3, a: 20%, partition long: 5'",
         "[partition:long] batch_floor: 'batch_floor = 3, a: 20%, partition long: 5'"),
    ),
    "where the list has it already": (
        "exclude_nodes = partition  debug\nexclude_partitions = debug\nbatch_floor = 3, a: 30%\n"
        "[node_type:a]\nbatch_floor = 20%\n",
        ("[settings] exclude_partitions: 'exclude_nodes = partition debug'",
         "[node_type:a] batch_floor: 'batch_floor = 3, a: 30%'"),
    ),
    "and says nothing": ("exclude_partitions =\n", ("[settings] exclude_partitions: ",)),
}  # fmt: skip


@pytest.mark.parametrize("name", MOVES)
def test_a_key_that_has_moved_is_read_and_says_what_to_write(tmp_path: Path, name: str) -> None:
    """Whoever writes that, with the old one beside it or without it, has the same."""
    lines, said = MOVES[name]
    config = load_config(site(tmp_path, lines), {})
    moved = "this key has moved: write "
    assert config.retired == tuple(
        f"{one.replace(': ', f': {moved}', 1)} in [settings]" if "'" in one
        else f"{one}this key is gone"
        for one in said
    )  # fmt: skip
    plain = [line for line in lines.splitlines() if not line.startswith("[")]
    keys = {line.partition(" =")[0].lower(): line for line in plain}
    new = {one.split("'")[1].partition(" =")[0]: one.split("'")[1] for one in said if "'" in one}
    old = {one.partition("] ")[2].partition(":")[0] for one in said} - new.keys()
    kept = [line for key, line in {**keys, **new}.items() if key not in old]
    again = load_config(site(tmp_path, "\n".join(kept) + "\n"), {})
    assert not again.retired
    forget = {"retired": (), "path": None, "digest": ""}
    assert msgspec.structs.asdict(again) | forget == msgspec.structs.asdict(config) | forget


def test_what_has_moved_is_the_converters_too(tmp_path: Path) -> None:
    config = load_config(site(tmp_path, MOVES["elsewhere"][0]), {})
    settings = load_settings({}, {"DNM_CONFIG": str(config.path)})
    assert settings.res_name == config.slurm_reservation_name == "lent"


def test_converter_of_the_path_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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


# --- any input -------------------------------------------------------------------------------

WORDS = st.sampled_from(
    [
        *SETTINGS,
        *NODE_TYPE_KEYS,
        *NAMESPACE_KEYS,
        "[settings]",
        "[node_type:g]",
        "[namespace:dev]",
        "[",
        "]",
        "=",
        ":",
        "\n",
        "\n ",
        "#",
        ";",
        "%",
        "%(headroom)s",
        "$HOME",
        "~",
        "1",
        "256G",
        "a",
        ",",
        "nvidia.com/gpu",
        "{namespace}",
        "NoSchedule",
        "\r",
        "\x0b",
        "\u2028",
        "\ufeff",
        "dev",
    ]
)
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
def test_any_bytes_give_a_configuration_or_a_sentence(
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


@settings(max_examples=100, deadline=None)
@given(
    cap=st.integers(0, 100_000),
    headroom=st.integers(1, 1000),
    idle=st.integers(0, 10**7),
    cores=st.integers(1, 10**6),
    gib=st.integers(1, 10**6),
    priority=st.integers(-1000, 1000),
)
def test_what_is_written_is_what_is_read(
    tmp_path_factory: pytest.TempPathFactory,
    cap: int,
    headroom: int,
    idle: int,
    cores: int,
    gib: int,
    priority: int,
) -> None:
    directory = tmp_path_factory.getbasetemp() / "round"
    directory.mkdir(exist_ok=True)
    config = load(
        directory,
        f"max_converted_nodes = {cap}\nheadroom = {headroom / 1000}\nnode_cpu_capacity = {cores}\n"
        f"node_memory_capacity = {gib}Gi\nreversion_idle_seconds = {idle}\n"
        f"[namespace:dev]\npriority = {priority}\n",
    )
    assert config.max_converted_nodes == cap
    assert config.headroom == headroom / 1000
    assert config.node_types["a"].size == {"vcore": cores * 1000, "memory": gib * 1024**3}
    assert config.namespaces["dev"].priority == priority
    assert config.namespaces["test"].reversion_idle == timedelta(seconds=idle)


# --- lists of steps ------------------------------------------------------------------------------


def test_a_list_of_what_a_node_opens_by() -> None:
    steps = opening_steps("daemonsets within 5m\ncondition a.example/Up=True, images within 90s")
    assert [(one.kind, one.text, one.within.total_seconds()) for one in steps] == [
        ("daemonsets", "daemonsets", 300),
        ("condition", "condition a.example/Up=True", 900),
        ("images", "images", 90),
    ]


@pytest.mark.parametrize(
    ("text", "said"),
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
        ("images within soon", "write minutes"),
        ("images within 0", "write minutes"),
        ("images, images within 5m", "twice"),
        (", ".join(f"image x{number}" for number in range(21)), "write 20 at most"),
    ],
)
def test_a_step_that_is_none_is_refused_with_what_would_be_one(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        opening_steps(text)
