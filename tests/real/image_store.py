"""Images that buildah builds on this machine, with a local Debian root as their base image.

They need the mirror of the machine's own apt, but no image registry."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.real.package_roots import BASE, root_of
from tests.real.programs import HUNG

CONTAINERFILE = "deploy/Containerfile"
IMAGE = "localhost/dnm:built"


class ImageStore:
    """A store of buildah, whose images and containers are used by nobody else."""

    def __init__(self, directory: Path, context: Path) -> None:
        self._context = context
        self._options = [f"--root={directory}/images", f"--runroot={directory}/run",
                         "--storage-driver=vfs"]  # fmt: skip

    def __call__(self, *arguments: str) -> str:
        """Runs buildah and returns its output. Raises AssertionError with the output of a failed
        command."""
        done = subprocess.run(
            ["buildah", *self._options, *arguments], capture_output=True, text=True, timeout=HUNG,
            env={**os.environ, "BUILDAH_ISOLATION": "chroot"}, cwd=self._context,
        )  # fmt: skip
        assert done.returncode == 0, f"buildah {arguments}: {done.stdout[-3000:]}{done.stderr}"
        return done.stdout.strip()


@contextmanager
def build_image(directory: Path, context: Path) -> Iterator[ImageStore]:
    """Builds the image from `context`, which has the Containerfile and the deb. Yields the store
    with the image, and removes both."""
    store = ImageStore(directory, context)
    text = (context / CONTAINERFILE).read_text()
    (base,) = re.findall(r"^FROM (.*)$", text, re.MULTILINE)
    try:
        container = store("from", "scratch")
        store("add", "--quiet", container, str(root_of(BASE)), "/")
        store("commit", "--quiet", container, base)
        store("build", "--pull-never", "--network=host", f"--file={CONTAINERFILE}",
              f"--tag={IMAGE}", ".")  # fmt: skip
        yield store
    finally:
        store("rm", "--all")
        store("rmi", "--all", "--force")
