"""Tests of `dnm sandbox up` and `dnm sandbox down`, with real processes."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from dnm.config.load import load_config
from dnm.lab.sandbox.client import ask
from dnm.lab.sandbox.commands import down, find_server, up


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Path]:
    directory = tmp_path / "sandbox"
    yield directory
    if find_server(directory) is not None:
        down(directory)


def url_of(place: Path) -> str:
    server = find_server(place)
    assert server is not None
    return server.url


def pods(place: Path, namespace: str) -> int:
    return len(ask(url_of(place), "GET", f"/api/v1/namespaces/{namespace}/pods")["items"])


def test_sandbox_up_prints_the_next_steps_and_down_ends_it(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert up(place, nodes=4, workshop=True) == 0
    message = capsys.readouterr().out
    assert f"export KUBECONFIG={place / 'kubeconfig'}" in message and "dnm plan" in message
    assert pods(place, "dev") == 75
    assert len(ask(url_of(place), "GET", "/sandbox/state")["machines"]) == 4
    config = load_config(place / "dnm.ini", {})
    assert config.node_convert_path == place / "node-convert"
    assert (config.yunikorn_url, set(config.namespaces)) == (url_of(place), {"dev", "notebook"})
    assert up(place) == 1
    assert "runs in" in capsys.readouterr().err
    assert down(place) == 0
    assert find_server(place) is None
    assert down(place) == 1
    assert "no sandbox runs" in capsys.readouterr().err


def test_sandbox_without_a_queue_system_has_a_site_for_it(place: Path) -> None:
    assert up(place, nodes=4, workshop=True, queue_system="none") == 0
    config = load_config(place / "dnm.ini", {})
    assert (set(config.queue_systems), config.yunikorn_url) == ({"none"}, "")
    assert not (place / "namespace_queue_paths.json").exists()
    items = ask(url_of(place), "GET", "/api/v1/namespaces/dev/pods")["items"]
    assert len(items) == 75
    assert {pod["spec"]["schedulerName"] for pod in items} == {"default-scheduler"}
    assert down(place) == 0


def test_sandbox_with_quotas_lacks_pods_of_a_workshop(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert up(place, nodes=4, workshop=True, queue_system="resource_quota") == 0
    assert "75 pods of a workshop need nodes in namespace dev." in capsys.readouterr().out
    config = load_config(place / "dnm.ini", {})
    assert set(config.queue_systems) == {"resource_quota"} and config.annotate_workloads
    assert pods(place, "dev") == 20
    assert down(place) == 0


def test_killed_sandbox_server_is_noticed(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    up(place)
    server = find_server(place)
    assert server is not None
    os.kill(server.pid, signal.SIGKILL)
    os.waitpid(server.pid, 0)
    assert down(place) == 0
    assert "had ended already" in capsys.readouterr().out


def test_outdated_server_file_does_not_stop_sandbox_up(place: Path) -> None:
    up(place)
    content = (place / "server.json").read_bytes()
    down(place)
    (place / "server.json").write_bytes(content)
    assert up(place) == 0


def test_port_in_use_is_reported_in_a_sentence(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert up(place, port=port) == 1
    assert f"port {port} on 127.0.0.1 is taken" in capsys.readouterr().err


def test_foreign_directory_is_left_unchanged(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "thesis.tex").touch()
    assert up(tmp_path) == 1
    assert "is not empty and not of a sandbox" in capsys.readouterr().err
    assert down(tmp_path / "missing") == 1
    assert "there is no sandbox in" in capsys.readouterr().err
    assert up(tmp_path / "thesis.tex") == 1
    assert "can't be used" in capsys.readouterr().err
    assert [entry.name for entry in tmp_path.iterdir()] == ["thesis.tex"]
