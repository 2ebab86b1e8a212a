"""Builds dist/dnm-VERSION.tar.gz and dist/dnm-VERSION-py3-none-any.whl.

    python -m packages.distributions [--into DIRECTORY]

setuptools builds them from a copy of the files that git knows, because it leaves files where it
builds. The copy also has the manual pages and completions, which setuptools cannot make.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from packages.build import (
    ROOT,
    PackageError,
    build_time,
    project,
    run,
    stage_completion,
    stage_manuals,
)

BACKEND = "setuptools.build_meta"
# Files to add -> their place below share/.
SHARE = {
    "man/*.8.gz": "man/man8",
    "man5/*.5.gz": "man/man5",
    "completion/dnm.bash": "bash-completion/completions/dnm",
    "completion/dnm.zsh": "zsh/site-functions/_dnm",
    "completion/dnm.fish": "fish/vendor_completions.d/dnm.fish",
}


def tracked_files() -> list[Path]:
    """Returns the files of the checkout that git knows, as relative paths."""
    names = run("git", "ls-files", "-z").split("\0")
    return [Path(name) for name in names if name and (ROOT / name).is_file()]


def copy_source(source: Path) -> None:
    """Copies the checkout, but only files that git knows."""
    for name in tracked_files():
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, source / name)


def add_share(
    source: Path, version: str, pages: Sequence[tuple[tuple[str, ...], str]] = ()
) -> None:
    """Adds manual pages and completions to the copy, where pyproject.toml expects them."""
    with tempfile.TemporaryDirectory(prefix="dnm-share-") as name:
        stage = Path(name)
        stage_manuals(stage, version, pages)
        stage_completion(stage)
        for pattern, place in SHARE.items():
            target = source / "share" / place
            is_folder = "*" in pattern
            (target if is_folder else target.parent).mkdir(parents=True)
            for file in stage.glob(pattern):
                shutil.copy(file, target)


def build_distributions(source: Path, into: Path) -> tuple[Path, Path]:
    """Builds the sdist and the wheel from a copy and returns their paths. Raises PackageError."""
    into.mkdir(parents=True, exist_ok=True)
    environment = {"SOURCE_DATE_EPOCH": str(max(build_time(), 315_532_800))}  # zip begins in 1980
    for kind in ("sdist", "wheel"):
        code = f"import os, sys; os.chdir(sys.argv[1]); import {BACKEND} as backend; "
        code += f"backend.build_{kind}(sys.argv[2])"
        run(sys.executable, "-c", code, str(source), str(into), **environment)
    version = str(project()["version"])
    return into / f"dnm-{version}.tar.gz", into / f"dnm-{version}-py3-none-any.whl"


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m packages.distributions", description=__doc__)
    parser.add_argument("--into", type=Path, default=ROOT / "dist")
    chosen = parser.parse_args(arguments)
    try:
        with tempfile.TemporaryDirectory(prefix="dnm-source-") as name:
            copy_source(Path(name))
            add_share(Path(name), str(project()["version"]))
            for built in build_distributions(Path(name), chosen.into.resolve()):
                print(f"{built}: {built.stat().st_size / 2**20:.1f} MiB")
    except PackageError as error:
        print(f"packages: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
