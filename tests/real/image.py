"""A test of the image of deploy/Containerfile, on a local Debian root instead of a base image.

make test-packages
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.docs.pages import ROOT
from tests.real.image_store import IMAGE, ImageStore, build_image


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ImageStore]:
    with build_image(tmp_path_factory.mktemp("store"), ROOT) as made:
        yield made


def test_image_is_built_and_its_user_runs_dnm(store: ImageStore) -> None:
    container = store("from", "--pull-never", IMAGE)
    message = store("run", container, "--", "sh", "-c",
                 "id -u; id -g; id -gn; dnm --version; node-convert --help; ssh -V 2>&1; "
                 "touch /opt/dnm/x 2>&1; ls /var/lib/apt/lists")  # fmt: skip
    assert message.startswith("65532\n65532\ndnm\ndnm ") and "usage: node-convert" in message
    assert "OpenSSH" in message and message.endswith("'/opt/dnm/x': Permission denied")
    config = json.loads(store("inspect", "--type=image", IMAGE))["OCIv1"]["config"]
    assert config["User"] == "65532:65532" and config["Cmd"] == ["run"]
