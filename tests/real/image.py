"""A test of deploy/Containerfile: buildah builds it on a local Debian root instead of an image.

    make test-packages

It needs the mirror of the machine's own apt, but no image registry."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.pages import ROOT
from tests.real.package_roots import BASE, root_of
from tests.real.programs import HUNG

CONTAINERFILE = ROOT / "deploy" / "Containerfile"
IMAGE = "localhost/dnm:built"


class Store:
    """A store of buildah, with the images and containers of this test only."""

    def __init__(self, directory: Path) -> None:
        self.options = [f"--root={directory}/images", f"--runroot={directory}/run",
                        "--storage-driver=vfs"]  # fmt: skip

    def __call__(self, *arguments: str) -> str:
        """Runs buildah and returns its output. If buildah fails, the test does, with its output."""
        done = subprocess.run(
            ["buildah", *self.options, *arguments], capture_output=True, text=True, timeout=HUNG,
            env={**os.environ, "BUILDAH_ISOLATION": "chroot"}, cwd=ROOT,
        )  # fmt: skip
        assert done.returncode == 0, f"buildah {arguments}: {done.stdout[-3000:]}{done.stderr}"
        return done.stdout.strip()


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    made = Store(tmp_path_factory.mktemp("store"))
    (base,) = re.findall(r"^FROM (.*)$", CONTAINERFILE.read_text(), re.MULTILINE)
    container = made("from", "scratch")
    made("add", "--quiet", container, str(root_of(BASE)), "/")
    made("commit", "--quiet", container, base)
    made(
        "build", "--pull-never", "--network=host", f"--file={CONTAINERFILE}", f"--tag={IMAGE}", "."
    )
    yield made
    made("rm", "--all")
    made("rmi", "--all")


def test_image_is_built_and_its_user_runs_dnm(store: Store) -> None:
    container = store("from", "--pull-never", IMAGE)
    message = store("run", container, "--", "sh", "-c",
                 "id -u; id -g; id -gn; dnm --version; node-convert --help; ssh -V 2>&1; "
                 "touch /opt/dnm/x 2>&1; ls /var/lib/apt/lists")  # fmt: skip
    assert message.startswith("65532\n65532\ndnm\ndnm ") and "usage: node-convert" in message
    assert "OpenSSH" in message and message.endswith("'/opt/dnm/x': Permission denied")
    config = json.loads(store("inspect", "--type=image", IMAGE))["OCIv1"]["config"]
    assert config["User"] == "65532:65532" and config["Cmd"] == ["run"]
