"""Tests of the same kubeconfigs with kubectl and dnm, on the real API server: both accept or
refuse, or docs/kubernetes.md has the difference."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest

from tests.docs.pages import section, table_of
from tests.real.account import KUBECONFIG
from tests.real.kubeconfigs import CASES, REFUSED, TAKEN, WAITS, Asked, Case, Kit
from tests.real.rig import Rig
from tests.real.site import Site
from tests.real.test_lists import signed_token

PATIENCE = 30.0  # seconds after which kubectl counts as waiting
# Other differences than acceptance, each with its own test.
ELSEWHERE = {
    "the `auth-provider` oidc",
    "a name or password with letters beyond Latin-1",
    "a plug-in that gives a certificate and no token",
    "`NO_PROXY=example.org`",
}


@pytest.fixture(scope="module")
def site(started_rig: Rig, tmp_path_factory: pytest.TempPathFactory) -> Site:
    started_rig.reset()
    directory = tmp_path_factory.mktemp("kubeconfigs") / "site"
    return Site(started_rig, directory, KUBECONFIG, kubeconfig_path=None, request_timeout_seconds=5)


@pytest.fixture
def kit(started_rig: Rig, tmp_path: Path) -> Kit:
    return Kit(started_rig, tmp_path, signed_token(started_rig, 3600))


def environment(site: Site, kit: Kit, asked: Asked) -> dict[str, str]:
    return {**site.environment, "HOME": str(kit.directory), **asked.environment}


def kubectl_does(site: Site, kit: Kit, asked: Asked, seconds: float) -> tuple[str, str]:
    """Runs kubectl with a kubeconfig. Returns whether it accepts it, and the output."""
    process = subprocess.Popen(
        [*asked.before, "kubectl", "get", "nodes"],
        env=environment(site, kit, asked), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True, start_new_session=True,
    )  # fmt: skip
    try:
        message, _ = process.communicate(timeout=seconds)
        return REFUSED if process.returncode else TAKEN, message
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)  # with its plug-in
        return WAITS, process.communicate()[0]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_dnm_accepts_the_kubeconfigs_that_kubectl_accepts(site: Site, kit: Kit, case: Case) -> None:
    with case.asked(kit) as asked:
        seconds = 3.0 if case.kubectl == WAITS else PATIENCE
        text, output = kubectl_does(site, kit, asked, seconds)
        assert text == case.kubectl, output
        site.command = [*asked.before, "dnm"]
        done = site.dnm("plan", code=None, **environment(site, kit, asked))
    message = done.stdout + done.stderr
    wanted = case.dnm or case.kubectl
    assert (TAKEN if done.returncode == 0 else REFUSED) == wanted, message
    if wanted == TAKEN:
        return
    assert "error: " in message, message
    assert kit.token not in message
    assert bool(case.row) is (case.kubectl != wanted)


def test_kubernetes_page_lists_every_difference_from_kubectl() -> None:
    heading = "The kubeconfig, beside kubectl"
    lines = {row[0] for row in table_of("docs/kubernetes.md", heading)}
    named = {case.row for case in CASES if case.row}
    assert lines - named == ELSEWHERE
    above = section("docs/kubernetes.md", heading).partition("\n|")[0]
    assert not [row for row in named - lines if row not in " ".join(above.split())]
    assert len({case.name for case in CASES}) == len(CASES) > 28
