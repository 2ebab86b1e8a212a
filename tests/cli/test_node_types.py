"""Tests of `dnm node-types` for people and scripts: wrong keys, narrow terminals, exit codes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

GOOD = """\
[settings]
[node_type:a]
[node_type:g]
cpu = 64
memory = 200Gi
memory_manager_policy = Static
topology_manager_policy = single-numa-node
kube_reserved = memory=8500Mi
system_reserved = memory=0
eviction_hard_memory_available = 100Mi
reserved_memory = 0: 4300Mi, 1: 4300Mi
numa_memory = 0: 128Gi, 1: 128Gi
"""
CONFIGZ = {
    "memoryManagerPolicy": "Static",
    "topologyManagerPolicy": "single-numa-node",
    "kubeReserved": {"memory": "8912896000"},
    "systemReserved": {"memory": "0"},
    "evictionHard": {"memory.available": "100Mi", "nodefs.available": "10%"},
    "reservedMemory": [
        {"numaNode": 1, "limits": {"memory": "4300Mi"}},
        {"numaNode": 0, "limits": {"memory": "4508876800"}},
    ],
}


def play(directory: Path, ini: str, *arguments: str, stdin: str = "") -> tuple[int, str, str]:
    path = directory / "dnm.ini"
    path.write_text(ini)
    path.chmod(0o644)
    done = subprocess.run(
        [sys.executable, "-m", "dnm.cli", "node-types", *arguments, "-c", str(path)],
        capture_output=True, text=True, check=False, input=stdin,
        env={"PYTHONIOENCODING": "utf-8"},
    )  # fmt: skip
    assert "Traceback" not in done.stderr
    return done.returncode, done.stdout, done.stderr


def test_node_types_json_has_the_configuration_keys(tmp_path: Path) -> None:
    code, out, _ = play(tmp_path, GOOD, "check", "-o", "json")
    (settings,) = (
        node_type["settings"] for node_type in json.loads(out)["types"] if node_type["settings"]
    )
    assert code == 0 and settings["kube_reserved"] == "memory=8500Mi", out
    assert "kube_reserved_memory" not in settings and settings["system_reserved"] == "memory=0"


def test_valid_node_types_pass_without_a_cluster(tmp_path: Path) -> None:
    code, out, err = play(tmp_path, GOOD, "check")
    assert (code, err) == (0, "")
    assert "node type a: no kubelet settings" in out
    assert "node type g: 6 kubelet settings; pods get about 253544Mi memory" in out


def test_all_node_type_problems_are_reported_with_exit_code_1(tmp_path: Path) -> None:
    ini = (
        GOOD.replace("Static", "static").replace("1: 4300Mi", "1: 4.3Gi") + "reserved_memori = 1\n"
    )
    code, out, _ = play(tmp_path, ini, "check")
    assert code == 1
    assert "memory_manager_policy = static: is not known to the kubelet, did you mean" in out
    assert "reserved_memori: unknown key, did you mean 'reserved_memory'?" in out
    code, out, _ = play(tmp_path, GOOD.replace("1: 4300Mi", "1: 4.5Gi"), "check", "g")
    assert code == 1 and "2 failed" in out
    document = json.loads(play(tmp_path, GOOD, "check", "-o", "json")[1])
    assert document["ok"] is True


def test_unknown_node_type_is_answered_with_the_existing_types(tmp_path: Path) -> None:
    for verb in ("check", "render"):
        code, _, err = play(tmp_path, GOOD, verb, "gg")
        assert code == 2
        assert "there is no node type gg" in err


def test_render_prints_only_configured_settings_and_is_deterministic(tmp_path: Path) -> None:
    assert play(tmp_path, GOOD, "render", "a") == (0, "", "")
    first = play(tmp_path, GOOD, "render", "g")
    assert first == play(tmp_path, GOOD, "render", "g")
    assert "numa" not in first[1].replace("numaNode", "").replace("single-numa-node", "")
