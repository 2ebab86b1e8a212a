"""Tests of the deb and the rpm in fresh Debian roots: install, upgrade, remove while nodes are
lent.

    make test-packages

They use Debian's dpkg and rpm. The lent nodes are those of a sandbox from the checkout, because the
packages do not contain the lab."""

from __future__ import annotations

import json
import re
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from packages.build import build, project
from tests.docs.pages import ROOT, rows, section
from tests.real.package_roots import SUITES, Root, machine

VERSION = str(project()["version"])
NEXT = "9.9.9"
DIST = ROOT / "dist"
LAB = "PYTHONPATH=/srv/checkout /opt/dnm/bin/python -m dnm.cli"
SITE = f"""
{LAB} sandbox up --dir /srv/sandbox --nodes 6 --speed 4 >/dev/null
cp /srv/sandbox/kubeconfig /srv/sandbox/namespace_queue_paths.json /etc/dynamic-node/
sed -e 's,^state_dir.*,state_dir = /var/lib/dynamic-node,' \
    -e 's,^node_convert_path = ,&/srv/sandbox/,' \
    -e 's,^\\(reversion_idle_seconds\\|global_cooldown_seconds\\) = .*,\\1 = 1,' \
    -e 's,^max_converted_nodes = .*,max_converted_nodes = 2,' \
    /srv/sandbox/dnm.ini >/etc/dynamic-node/dynamic_node_config.ini
"""
QUEUE_DOCUMENT = """
/opt/dnm/bin/python - <<'END'
import json, urllib.request, yaml
with open("/etc/dynamic-node/kubeconfig") as file:
    server = yaml.safe_load(file)["clusters"][0]["cluster"]["server"]
path = "/api/v1/namespaces/yunikorn/configmaps/yunikorn-configs"
with urllib.request.urlopen(server + path) as answer:
    print(json.load(answer)["data"]["queues.yaml"])
END
"""


@dataclass(frozen=True)
class Kind:
    """The commands that install and remove a kind of package (deb or rpm)."""

    name: str
    pattern: str
    install: str
    remove: str
    back: str
    of: str  # lists its files


DEB = Kind("deb", "dnm_{}*.deb", "dpkg --force-confold -i", "dpkg -r dnm",
           "dpkg --force-confold -i", "dpkg -L dnm")  # fmt: skip
RPM = Kind("rpm", "dnm-{}*.rpm", "rpm -U --nodeps", "rpm -e --nodeps dnm",
           "rpm -U --nodeps --oldpackage", "rpm -ql dnm")  # fmt: skip
CASES = [(DEB, suite) for suite in SUITES] + [(RPM, SUITES[-1])]


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns a folder with deb and rpm, each in the current and in a later version."""
    directory = tmp_path_factory.mktemp("dist")
    for package in (*DIST.glob(f"dnm_{VERSION}*.deb"), *DIST.glob(f"dnm-{VERSION}*.rpm")):
        shutil.copy(package, directory)
    assert len(build(NEXT, directory)) == 2
    return directory


@pytest.fixture(params=CASES, ids=[f"{kind.name}-{suite}" for kind, suite in CASES])
def played(
    request: pytest.FixtureRequest, built: Path, tmp_path: Path
) -> Iterator[tuple[Kind, Root]]:
    kind, suite = request.param
    with machine(suite, tmp_path) as root:
        for version in (VERSION, NEXT):
            (package,) = built.glob(kind.pattern.format(version))
            root.put(package, f"/tmp/{version}.{kind.name}")
        root("mkdir /srv/checkout")
        root.put(ROOT / "dnm", "/srv/checkout/dnm")
        yield kind, root


def lent(root: Root) -> dict[str, str]:
    """Returns lent node -> phase, by `dnm status` on the simulated machine."""
    return {node["node"]: node["phase"] for node in status(root)["nodes"]}


def status(root: Root) -> Any:
    return json.loads(root("dnm status -o json"))


def run_until(root: Root, is_so: Callable[[], bool], condition: str) -> None:
    deadline = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < deadline, f"{condition}: {root('dnm status; dnm plan')}"
        root("dnm run || [ $? -eq 75 ]")
        time.sleep(0.2)


def lend(root: Root) -> dict[str, str]:
    """Lends two nodes manually."""
    root("dnm lend --namespace dev 2")
    run_until(root, lambda: list(lent(root).values()) == ["serving"] * 2, "two nodes serve")
    return lent(root)


def test_package_is_installed_upgraded_and_removed(played: tuple[Kind, Root]) -> None:
    kind, root = played
    before = root.files()
    install, newer = f"{kind.install} /tmp/{VERSION}.{kind.name}", f"/tmp/{NEXT}.{kind.name}"

    root(install)
    root(f"test \"$(dnm --version)\" = 'dnm {VERSION}' && node-convert --version")
    nothing_is_switched_on(root)
    own = set(root(kind.of).splitlines())
    assert {"/usr/sbin/dnm", "/usr/share/man/man8/dnm-run.8.gz",
            "/usr/share/man/man5/dynamic_node_config.ini.5.gz",
            "/usr/share/doc/dnm/copyright", "/usr/share/doc/dnm/changelog.gz"} <= own  # fmt: skip

    assert not [name for name in own if "/dnm/lab" in name]
    assert "there is no command 'sandbox'" in root.run("dnm sandbox up", code=2).stderr
    root(SITE)
    untouched = root(QUEUE_DOCUMENT)
    nodes = lend(root)

    # Upgrade and downgrade, while runs start all the time.
    for command, version in ((f"{kind.install} {newer}", NEXT),
                             (f"{kind.back} /tmp/{VERSION}.{kind.name}", VERSION)):  # fmt: skip
        runs = root.start("while [ ! -e /tmp/enough ]; do dnm run || echo $?; sleep 0.1; done")
        root(f"sleep 0.5; {command}; sleep 1; touch /tmp/enough")
        output, _ = runs.communicate(timeout=60)
        root("rm /tmp/enough")
        assert root("dnm --version").split() == ["dnm", version], output
        assert lent(root) == nodes
        assert "instance_id = sandbox" in root("cat /etc/dynamic-node/dynamic_node_config.ini")
        root("dnm run")

    # Removed and reinstalled with lent nodes: the registry stays, and the message names the nodes.
    message = root.run(kind.remove).stderr
    assert all(node in message for node in nodes), message
    assert root.run("command -v dnm", code=None).returncode != 0
    restore_rpmsave_files(root)
    root(install)
    restore_rpmsave_files(root)
    assert lent(root) == nodes

    assert yaml.safe_load(root("dnm test-load dev -o yaml"))["kind"] == "Deployment"
    root(f"dnm return {' '.join(nodes)}")
    run_until(root, lambda: not lent(root), "all nodes are returned")
    assert root(QUEUE_DOCUMENT) == untouched
    root(f"{LAB} sandbox down --dir /srv/sandbox; rm -rf /srv/sandbox /srv/checkout")

    root(kind.remove)
    differing = left_behind(before, root) ^ documented_paths(f"{kind.name} removed")
    assert not differing, sorted(differing)
    if kind is DEB:
        assert "/var/lib/dynamic-node and /etc/dynamic-node stay" in root.run("dpkg -P dnm").stderr
        differing = left_behind(before, root) ^ documented_paths("deb purged")
        assert not differing, sorted(differing)


def nothing_is_switched_on(root: Root) -> None:
    assert not [line for line in root("cat /etc/cron.d/dnm").splitlines() if line.startswith("*")]
    for unit in ("dnm.timer", "dnm@gpu.timer"):
        assert root.run(f"systemctl is-enabled {unit}", code=None).stdout.strip() == "disabled"


def restore_rpmsave_files(root: Root) -> None:
    """Restores the edited files that rpm keeps as .rpmsave, as an administrator does."""
    root("cd /etc/dynamic-node; for f in *.rpmsave; do [ ! -e $f ] || mv -f $f ${f%.rpmsave}; done")


def left_behind(before: set[str], root: Root) -> set[str]:
    """Returns the paths that are new since `before`. It omits records and logs of the package
    manager, and folders of cron, zsh and fish, which these roots lack."""
    books = ("/var/lib/dpkg/", "/var/lib/rpm/", "/var/log/", "/var/cache/", "/root/", "/srv/")
    of_other_instances = re.compile(r"/etc/cron.d/|/usr/share/(zsh|fish)/[^/]+/")
    lines = {path for path in root.files() - before if not path.startswith(books)}
    return {path for path in lines if not of_other_instances.fullmatch(path)}


def documented_paths(when: str) -> set[str]:
    """Returns the paths in the table of docs/packages.md."""
    table = rows(section("docs/packages.md", "What is left behind"))
    return {path.strip("`") for path, after, _ in table if when in after.split(", ")}
