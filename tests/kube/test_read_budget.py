"""Tests of how many API requests and bytes a run needs: the benchmark in small, without times."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.request import urlopen

import pytest

from tests.bench.cluster import Size, write_cluster
from tests.bench.server import StaticServer
from tests.bench.site import write_site
from tests.processes import warm_processes

SIZE = Size(nodes=30, pods=1500)
PAGE = 500
SELECTOR = "fieldSelector=status.phase!=Succeeded,status.phase!=Failed"
LISTS = ["GET /TWIN/api/v1/nodes", "GET /TWIN/api/v1/pods"]
CONFIG_MAPS = "GET /TWIN/api/v1/namespaces/yunikorn/configmaps/yunikorn-"
DAEMON_SETS = {"busy": (f"GET /busy/apis/apps/v1/daemonsets?limit={PAGE}",)}  # pods wait
CLIENT = {"kubernetes", "urllib3", "requests", "http.client", "ssl"}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StaticServer]:
    static = StaticServer(SIZE, tmp_path_factory.mktemp("cluster"))
    static.start()
    yield static
    static.close()


ROOT = Path(__file__).parents[2]


def environment_in(home: Path) -> dict[str, str]:
    return {"PATH": os.environ["PATH"], "HOME": str(home)}


def dnm(*arguments: str, home: Path) -> None:
    """Runs `dnm ARGUMENTS` in a forked process, in which all modules are imported (warm.py)."""
    job = {"arguments": arguments, "environment": environment_in(home), "directory": str(ROOT)}
    (child,) = warm_processes().start(job)
    assert (ended := child.wait()).code == 0, ended


def at(
    server: StaticServer,
    directory: Path,
    twin: str,
    name: str = "site",
    more: str = "",
    lab: str = "",
) -> Path:
    """Writes the files of a site on the cluster `twin` of the server. `more` adds settings."""
    server.take_served()
    return write_site(directory / name, f"http://127.0.0.1:{server.port}/{twin}", more, lab)


def pages(total: int) -> int:
    return -(-total // PAGE)


LEASE = "GET /TWIN/apis/coordination.k8s.io/v1/namespaces/dnm/leases/dnm-prod"
WHERE_NAMED = {"dnm.kube.credentials", "dnm.queues.yunikorn.rest"}  # by the site's configuration


@pytest.mark.parametrize(
    ("verb", "twin", "unused"),
    [
        pytest.param("run", "quiet", {"dnm.queues.yunikorn.rest"}, id="a run with nothing to do"),
        pytest.param("plan", "busy", {"dnm.run.actuator", "dnm.queues.yunikorn.rest"},
                     id="a plan for pending pods"),
    ],
)  # fmt: skip
def test_run_reads_each_kind_once_and_loads_no_unused_module(
    server: StaticServer, tmp_path: Path, verb: str, twin: str, unused: set[str]
) -> None:
    loaded = modules_after(tmp_path, verb, "--config", str(at(server, tmp_path, twin)))
    assert "kubernetes" in loaded and not (WHERE_NAMED | unused) & loaded
    requests = server.take_served().requests
    first_pages = [request for request in requests if "continue=" not in request]
    nodes, pods = (line.replace("TWIN", twin) for line in LISTS)
    assert sorted(first_pages) == sorted(
        [
            f"{nodes}?limit={PAGE}",
            f"{pods}?{SELECTOR}&limit={PAGE}",
            *(CONFIG_MAPS.replace("TWIN", twin) + name for name in ("configs", "defaults")),
            *DAEMON_SETS.get(twin, ()),
            LEASE.replace("TWIN", twin),
        ]
    )
    unfinished = SIZE.pods - SIZE.pods * 18 // 100
    assert len(requests) == pages(SIZE.nodes) + pages(unfinished) + 3 + len(
        DAEMON_SETS.get(twin, ())
    )


def test_pods_of_a_large_cluster_are_read_with_a_single_answer(tmp_path: Path) -> None:
    server = StaticServer(Size(nodes=120, pods=700), tmp_path)
    server.start()
    dnm("run", "--config", str(at(server, tmp_path, "quiet")), home=tmp_path)
    requests = server.take_served().requests
    server.close()
    nodes, pods = (line.replace("TWIN", "quiet") for line in LISTS)
    expected = [f"{nodes}?limit={PAGE}", "GET /quiet/version", f"{pods}?{SELECTOR}"]
    assert requests[:4] == [LEASE.replace("TWIN", "quiet"), *expected]
    assert not any("pods" in request for request in requests[4:])


def test_second_run_reads_the_same_and_writes_nothing(server: StaticServer, tmp_path: Path) -> None:
    """Each run reads every object only once, and no finished pods."""
    config = at(server, tmp_path, "quiet")
    dnm("run", "--config", str(config), home=tmp_path)
    first, before = server.take_served(), contents(config.parent)
    written = write_cluster(SIZE, tmp_path)
    needed = written["quiet"].offsets[-1] + written["nodes"].offsets[-1]
    assert needed <= first.bytes_sent <= needed * 1.01
    dnm("run", "--config", str(config), home=tmp_path)
    assert server.take_served() == first
    assert all(request.startswith("GET ") for request in first.requests)
    assert contents(config.parent) == before


def test_registry_in_kubernetes_costs_a_single_further_request(
    server: StaticServer, tmp_path: Path
) -> None:
    file = at(server, tmp_path, "quiet")
    shared = at(server, tmp_path, "quiet", "shared", "registry = kubernetes\n")
    asked = {}
    for config in (file, shared):
        dnm("run", "--config", str(config), home=tmp_path)  # this run records its check
        server.take_served()
        dnm("run", "--config", str(config), home=tmp_path)
        asked[config] = server.take_served().requests
    lease = LEASE.replace("TWIN", "quiet")
    secret = "GET /quiet/api/v1/namespaces/dnm/secrets/dnm-prod"
    assert asked[file][0] == asked[shared][0] == lease
    assert asked[shared] == [lease, secret, *asked[file][1:]]


def test_run_after_a_change_reads_only_the_change(server: StaticServer, tmp_path: Path) -> None:
    lab = "watch_from_pods = 0\n"
    config = at(server, tmp_path, "quiet-3", lab=lab)
    for _ in range(2):
        with urlopen(f"http://127.0.0.1:{server.port}/quiet-3/change?count=3"):
            server.take_served()
        dnm("run", "--config", str(config), home=tmp_path)
    asked = server.take_served()
    assert not [
        request for request in asked.requests if request.endswith("/pods") or "limit=500" in request
    ]
    assert len([request for request in asked.requests if "watch=" in request]) == 2
    assert asked.bytes_sent < 200_000


def contents(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir()}


def test_status_sends_no_request_and_loads_no_client(server: StaticServer, tmp_path: Path) -> None:
    config = at(server, tmp_path, "quiet-9")  # no other test has taken this Lease
    dnm("run", "--config", str(config), home=tmp_path)
    server.take_served()
    loaded = modules_after(tmp_path, "status", "--config", str(config))
    assert server.take_served().requests == []
    assert not {*CLIENT, "dnm.kube", "yaml", "dnm.queues"} & loaded


def modules_after(home: Path, *arguments: str) -> set[str]:
    """Returns the modules that a command has imported when it ends."""
    code = (
        "import sys\nfrom dnm.cli.app import main\n"
        "try:\n    main()\nfinally:\n    print('--modules--', *sys.modules, sep='\\n')"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], env=environment_in(home), cwd=ROOT,
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return set(done.stdout.split("--modules--")[1].split())
