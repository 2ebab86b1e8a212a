"""Tests of the registry file: atomic writes, a stop if unreadable, the predecessor's format."""

from __future__ import annotations

import grp
import json
import os
import subprocess
import sys
import tempfile
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dnm.model.config import Config
from dnm.model.errors import DnmError, RegistryError
from dnm.model.history import HistoryLine
from dnm.model.lent import Phase
from dnm.model.observed import Backoff, Breaker
from dnm.model.orders import Way
from dnm.model.registry import Registry
from dnm.record.history_file import History
from dnm.run.registry import (
    encode_registry,
    load_registry,
    save_registry,
)
from dnm.run.state import previous_path
from tests.builders import NOW, QUEUE, SIZE, a_config, a_lent_node, a_request, write_registry

FULL = Registry(
    nodes={"a001": a_lent_node(), "a002": a_lent_node(Phase.RETURNING, error="x")},
    requests=(a_request(),),
    backoffs={"a": Backoff(failures=2, until=NOW, ask_at_most=1)},
    breakers={"root.dev": Breaker(unused=2)},
    held=("a001",),
)


def test_site_without_registry_file_starts_empty(tmp_path: Path) -> None:
    assert load_registry(a_config(tmp_path), NOW) == Registry()


def test_saved_registry_is_loaded_unchanged(tmp_path: Path) -> None:
    config = a_config(tmp_path)
    assert save_registry(config, FULL)
    assert load_registry(config, NOW) == FULL


def test_unused_conversions_keep_their_field_name_in_registry_files() -> None:
    breakers = json.loads(encode_registry(FULL))["breakers"]
    assert breakers["root.dev"]["strikes"] == FULL.breakers["root.dev"].unused


def test_unchanged_registry_is_not_written_again(tmp_path: Path) -> None:
    path = a_config(tmp_path).converted_nodes_path
    write_registry(path, FULL)
    before = path.stat()
    assert not write_registry(path, FULL)
    assert path.stat().st_ino == before.st_ino and not previous_path(path).exists()


def test_previous_registry_is_kept(tmp_path: Path) -> None:
    path = a_config(tmp_path).converted_nodes_path
    write_registry(path, Registry())
    write_registry(path, FULL)
    assert previous_path(path).read_bytes() == encode_registry(Registry())


BROKEN = {
    "empty": b"",
    "truncated": encode_registry(FULL)[:-40],
    "not an object": b"[1]",
    "an empty object": b"{}",
    "only a version": b'{"version": 1}',
    "without its version": b'{"nodes": {}}',
    "without its nodes": encode_registry(FULL).replace(b'"nodes": {', b'"claimed": {'),
    "newer version": b'{"version": 2}',
    "unknown phase": encode_registry(FULL).replace(b"returning", b"levitating"),
    "unknown key": encode_registry(FULL).replace(b'"held"', b'"hold"'),
    "no time": encode_registry(FULL).replace(b'"until": "2026-03-02T12:00:00Z"',
                                             b'"until": "tomorrow"'),
    "no zone": encode_registry(FULL).replace(b'12:00:00Z"', b'12:00:00"'),
    "not UTF-8": b'{"version": 1, "held": ["\xff"]}',
    "deep": b"[" * 100_000,
}  # fmt: skip


@pytest.mark.parametrize("content", BROKEN.values(), ids=BROKEN.keys())
def test_damaged_registry_stops_the_run_and_is_not_changed(tmp_path: Path, content: bytes) -> None:
    config = a_config(tmp_path)
    config.converted_nodes_path.write_bytes(content)
    with pytest.raises(RegistryError) as raised:
        load_registry(config, NOW)
    assert str(config.converted_nodes_path) in str(raised.value)
    assert config.converted_nodes_path.read_bytes() == content


def test_deleted_registry_is_not_an_empty_registry(tmp_path: Path) -> None:
    config = a_config(tmp_path)
    save_registry(config, Registry())
    save_registry(config, FULL)
    config.converted_nodes_path.unlink()
    with pytest.raises(RegistryError, match="cp -p"):
        load_registry(config, NOW)


def test_world_writable_registry_is_refused(tmp_path: Path) -> None:
    config = a_config(tmp_path)
    save_registry(config, FULL)
    config.converted_nodes_path.chmod(0o666)
    with pytest.raises(DnmError, match="chmod"):
        load_registry(config, NOW)


def test_registry_of_the_predecessor_is_converted(tmp_path: Path) -> None:
    config = a_config(tmp_path)
    old = {
        "a001": {"namespace": "dev", "last_pod_end": "2026-03-01T10:00:00.123456", "owner": "prod"},
        "a002": {"namespace": "dev", "last_pod_end": None},
        "b001": {"namespace": "other", "last_pod_end": None, "owner": "validation"},
    }
    config.converted_nodes_path.write_text(json.dumps(old))
    nodes = load_registry(config, NOW).nodes
    assert nodes["a001"].idle_since is None  # last_pod_end is the time of the conversion
    assert (nodes["a001"].phase, nodes["a001"].queue) == (Phase.SERVING, QUEUE)
    assert nodes["a001"].counted == SIZE and nodes["a002"].owner == "prod"
    assert nodes["b001"].owner == "validation"


@pytest.mark.parametrize(
    "entry",
    [{"namespace": "unknown"}, {"namespace": 5}, []],
)
def test_malformed_predecessor_entry_is_named(tmp_path: Path, entry: object) -> None:
    config = a_config(tmp_path)
    config.converted_nodes_path.write_text(json.dumps({"a001": entry}))
    with pytest.raises(RegistryError, match="a001"):
        load_registry(config, NOW)


@given(st.binary(max_size=300))
def test_arbitrary_bytes_give_a_registry_or_an_error_message(
    tmp_path_factory: pytest.TempPathFactory, content: bytes
) -> None:
    config = a_config(tmp_path_factory.mktemp("state"))
    config.converted_nodes_path.write_bytes(content)
    try:
        load_registry(config, NOW)
    except DnmError as error:
        assert str(error)


STEPS = ("registry.write", "registry.fsync", "registry.keep_previous", "registry.rename",
         "registry.fsync_directory")  # fmt: skip


def write_and_fail(path: Path, registry: Registry, fault: str) -> int:
    """Writes the registry in a process with this fault. Returns its exit code."""
    program = (
        "import sys; from pathlib import Path; import msgspec;"
        "from tests.builders import write_registry; from dnm.model.registry import Registry;"
        "write_registry(Path(sys.argv[1]), msgspec.json.decode(sys.argv[2], type=Registry))"
    )
    return subprocess.run(
        [sys.executable, "-c", program, str(path), encode_registry(registry).decode()],
        env={**os.environ, "DNM_FAULT": fault},
        capture_output=True,
        check=False,
    ).returncode


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("call", ["kill", "fail"])
@pytest.mark.parametrize("step", STEPS)
def test_interrupted_write_leaves_the_old_or_the_new_registry(
    tmp_path: Path, step: str, call: str, when: str
) -> None:
    config = a_config(tmp_path)
    path = config.converted_nodes_path
    write_registry(path, Registry())
    assert write_and_fail(path, FULL, f"{step}:{when}:{call}") != 0
    assert load_registry(config, NOW) in (Registry(), FULL)
    write_registry(path, FULL)
    assert load_registry(config, NOW) == FULL


@pytest.mark.parametrize(
    ("node", "node_type"),
    [("a001", "a"), ("anvil-gpu", None), ("a", None), ("b001", None), ("a1x", None)],
)
def test_node_type_is_a_prefix_followed_by_digits(node: str, node_type: str | None) -> None:
    assert a_config().type_of(node) == node_type


def modes(path: Path) -> list[int]:
    return [file.stat().st_mode & 0o777 for file in (path, previous_path(path))]


def test_registry_file_is_readable_by_its_owner_only(tmp_path: Path) -> None:
    path = a_config(tmp_path).converted_nodes_path
    write_registry(path, Registry())
    write_registry(path, FULL)
    assert modes(path) == [0o600, 0o600]
    for file in (path, previous_path(path)):
        file.chmod(0o644)
    assert not write_registry(path, FULL)  # nothing to write, but the mode is fixed
    assert modes(path) == [0o600, 0o600]
    path.chmod(0o644)
    path.with_name(path.name + ".new").touch(mode=0o666)  # of a killed run
    write_registry(path, Registry())
    assert modes(path) == [0o600, 0o600]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")
def test_state_group_decides_the_readers_of_the_registry() -> None:
    """Reads the registry as another user: outside of state_group, in it, and without a group."""
    with tempfile.TemporaryDirectory() as directory:
        Path(directory).chmod(0o711)
        path = a_config(Path(directory)).converted_nodes_path
        read_as_other_users(path)
        Path(directory).chmod(0o700)
        assert "chgrp GROUP" in read_as(65534, path), "out of sight is not missing"


def read_as(gid: int, path: Path) -> str:
    """Reads the registry in a process of an unprivileged user with one group."""
    program = (
        "import os, sys; from pathlib import Path; from dnm.run.state import FileState\n"
        "from tests.builders import a_config\n"
        "state = FileState(a_config(Path(sys.argv[1]).parent))\n"
        "state.path = Path(sys.argv[1])\n"
        "def tell():\n"
        "    try: return str(state.read() is not None)\n"
        "    except Exception as error: return str(error)\n"
        "tell()\n"  # import everything before it loses its rights
        "os.setgroups([]); os.setgid(int(sys.argv[2])); os.setuid(65534)\n"
        "print(tell())"
    )
    return subprocess.run(
        [sys.executable, "-c", program, str(path), str(gid)],
        capture_output=True, text=True, check=True, timeout=300,
    ).stdout  # fmt: skip


def read_as_other_users(path: Path) -> None:
    group = next(pair for pair in grp.getgrall() if pair.gr_gid not in (0, 65534))

    write_registry(path, FULL)
    assert "chgrp GROUP" in read_as(group.gr_gid, path)
    os.chown(path.parent, -1, group.gr_gid)
    path.parent.chmod(0o2750)
    write_registry(path, FULL)
    assert (path.stat().st_mode & 0o777, path.stat().st_gid) == (0o640, group.gr_gid)
    assert read_as(group.gr_gid, path) == "True\n"
    assert "chgrp GROUP" in read_as(65534, path)
    path.parent.chmod(0o711)  # the group may no longer read it
    write_registry(path, FULL)
    assert "chgrp GROUP" in read_as(group.gr_gid, path)


@pytest.mark.parametrize("when", ["before", "after"])
def test_kill_while_access_is_changed_does_not_widen_access(tmp_path: Path, when: str) -> None:
    path = a_config(tmp_path).converted_nodes_path
    write_registry(path, FULL)
    path.chmod(0o644)
    assert write_and_fail(path, Registry(), f"registry.access:{when}:kill") < 0
    write_registry(path, FULL)
    assert path.stat().st_mode & 0o777 == 0o600 and load_registry(a_config(tmp_path), NOW) == FULL


def test_named_pipe_as_registry_does_not_block(tmp_path: Path) -> None:
    config = a_config(tmp_path)
    os.mkfifo(config.converted_nodes_path, 0o600)
    with pytest.raises(RegistryError, match="is not a regular file"):
        load_registry(config, NOW)


def command_history(config: Config, *verbs: tuple[str, str, dict[str, str]]) -> None:
    """Writes a history file with lines of these commands, a minute apart."""
    lines = [
        HistoryLine(
            schema=1, number=number, time=NOW + timedelta(minutes=number), run="r",
            instance=config.instance_id, kind="verb", event=event, object=name, requester="ada",
            host="mgmt1", reason="why", numbers=numbers,
        )
        for number, (event, name, numbers) in enumerate(verbs)
    ]  # fmt: skip
    History(config.converted_nodes_path, timedelta(days=90)).append(lines, NOW)


OVER = {"until": (NOW + timedelta(minutes=30)).isoformat()}
YET = {"until": (NOW + timedelta(days=30)).isoformat()}
LATER = NOW + timedelta(hours=1)


def test_lost_registry_is_started_from_the_history_and_paused(tmp_path: Path) -> None:
    config = a_config(tmp_path)
    command_history(
        config,
        ("hold", "a001", {}), ("hold", "a002", {}), ("unhold", "a002", {}), ("hold", "a003", OVER),
        ("exclude", "a004", YET), ("exclude", "a005", {}), ("unexclude", "a005", {}),
        ("lend", "lend-1", YET), ("lend", "lend-0", OVER), ("event add", "course", {}),
        ("event add", "gone", {}), ("event remove", "gone", {}),
    )  # fmt: skip
    registry = load_registry(config, LATER)
    assert (registry.held, [*registry.holds], [*registry.excluded]) == (
        ("a001",),
        ["a001"],
        ["a004"],
    )
    assert (
        registry.holds["a001"].requester == "ada on mgmt1"
        and registry.excluded["a004"].until is not None
    )
    assert registry.pause is not None and registry.pause.half is Way.LENDING
    assert registry.pause.is_after_loss and registry.pause.until is None
    for name in ("lend-1", "course", str(config.converted_nodes_path), "dnm resume"):
        assert name in registry.pause.reason
    for name in ("lend-0", "gone by"):
        assert name not in registry.pause.reason


@pytest.mark.parametrize(
    ("verbs", "half"),
    [
        ([("pause", "", {})], None),
        ([("pause", "", {"half": "returning"})], None),
        ([("pause", "", {"half": "lending"})], Way.LENDING),
        ([("pause", "", OVER)], Way.LENDING),
        ([("pause", "", {}), ("resume", "", {})], Way.LENDING),
        ([("reset", "a", {})], Way.LENDING),
    ],
    ids=["both", "returning", "lending", "over", "resumed", "none"],
)
def test_pause_survives_the_loss_of_the_registry(
    tmp_path: Path, verbs: list[tuple[str, str, dict[str, str]]], half: Way | None
) -> None:
    config = a_config(tmp_path)
    command_history(config, *verbs)
    pause = load_registry(config, LATER).pause
    assert pause is not None and pause.half is half and pause.is_after_loss


@given(st.binary(max_size=300))
def test_arbitrary_history_gives_a_registry(
    tmp_path_factory: pytest.TempPathFactory, content: bytes
) -> None:
    config = a_config(tmp_path_factory.mktemp("state"))
    config.converted_nodes_path.with_name("history.jsonl").write_bytes(content)
    assert load_registry(config, NOW).nodes == {}
