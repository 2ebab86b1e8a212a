"""Builds, checks and describes a release in dist/: `make release`.

    python -m packages.release [--into DIRECTORY]

The artefacts are an sdist, a wheel, a deb, an rpm and the build context of the image. Each is
installed in a clean root, or built into an image, where the rehearsal of docs/production.md is
played with it. SHA256SUMS has the checksums, and dnm-VERSION.cdx.json lists the components with
their versions (CycloneDX).
"""

from __future__ import annotations

import argparse
import hashlib
import io
import json
import re
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from packages import build as packages
from packages.build import ROOT, PackageError, build_time, project, run, tell
from packages.distributions import add_share, build_distributions, copy_source
from tests.real.build import BuildError

VERSION = str(project()["version"])
REHEARSAL = ROOT / "packages" / "rehearsal.sh"
LOCK = ROOT / "requirements" / "test.txt"
SBOM = f"dnm-{VERSION}.cdx.json"
SUMS = "SHA256SUMS"
FIRST = {"monitored_namespaces": "dev", "max_converted_nodes": "0"}  # as the table of the page
CONTEXT = ("deploy/Containerfile",)  # of the image, with the deb


# --- what is built -------------------------------------------------------------------------------


def build_all(into: Path) -> list[Path]:
    """Builds the artefacts of a release and returns them. Raises PackageError or BuildError."""
    with tempfile.TemporaryDirectory(prefix="dnm-source-") as name:
        copy_source(Path(name))
        add_share(Path(name), VERSION)
        built = [*build_distributions(Path(name), into)]
    built += packages.build(VERSION, into)
    (deb,) = (file for file in built if file.suffix == ".deb")
    return [*built, pack_context(deb, into)]


def pack_context(deb: Path, into: Path) -> Path:
    """Returns an archive with the Containerfile and the deb, from which container tools build the
    image. Equal contents give equal bytes."""
    target = into / f"dnm-{VERSION}-image.tar"
    files = {name: ROOT / name for name in CONTEXT} | {f"dist/{deb.name}": deb}
    with tarfile.open(target, "w") as archive:
        for name, file in files.items():
            entry = tarfile.TarInfo(f"dnm-{VERSION}-image/{name}")
            content = file.read_bytes()
            entry.size, entry.mode, entry.mtime = len(content), 0o644, build_time()
            archive.addfile(entry, io.BytesIO(content))
    return target


# --- how it is checked ---------------------------------------------------------------------------


def rehearsal_ini() -> str:
    """Returns the example configuration, with changes that docs/production.md describes."""
    text = (ROOT / "etc" / "dynamic_node_config.ini").read_text()
    page = (ROOT / "docs" / "production.md").read_text()
    (block,) = re.findall(r"^```ini\n(.*?)^```", page, re.S | re.M)
    changes = dict(line.split(" = ", 1) for line in block.splitlines())
    changes["yunikorn_url"] = re.sub(r":\d+$", ":@PORT@", changes["yunikorn_url"])
    for key, value in {**changes, **FIRST}.items():
        text, count = re.subn(rf"^#?{key} =.*$", f"{key} = {value}", text, flags=re.M)
        if count != 1:
            raise PackageError(f"docs/production.md sets {key}, which the example ini has not once")
    return text.replace("[settings]\n", "[settings]\ndemand_days = 60\n", 1)


@contextmanager
def environment_of(artefact: Path) -> Iterator[Path]:
    """Yields a new virtual environment with a wheel or an sdist and its locked dependencies."""
    with tempfile.TemporaryDirectory(prefix="dnm-release-") as name:
        home = Path(name) / "venv"
        run(sys.executable, "-m", "venv", "--without-pip", str(home))
        pins = Path(name) / "pins"
        pins.write_text(run(sys.executable, "-m", "pip", "freeze", "--exclude-editable"))
        run(
            sys.executable, "-m", "pip", "--python", str(home / "bin" / "python"), "install",
            "--quiet", "--disable-pip-version-check", "--constraint", str(pins), str(artefact),
        )  # fmt: skip
        yield home


def rehearse_in_environment(artefact: Path) -> str:
    """Installs a wheel or an sdist, and returns the output of the rehearsal with it."""
    with environment_of(artefact) as home, tempfile.TemporaryDirectory() as name:
        ini = Path(name) / "ini"
        ini.write_text(rehearsal_ini())
        lab = f"{sys.executable} -m dnm.cli"
        return run("sh", str(REHEARSAL), str(home / "bin" / "dnm"), str(ini), LAB=lab)


def rehearse_in_root(artefact: Path, suite: str) -> str:
    """Installs a deb or an rpm in a fresh Debian root, and returns the output of the rehearsal."""
    from tests.real.package_roots import machine

    install = "dpkg -i" if artefact.suffix == ".deb" else "rpm -U --nodeps"
    with tempfile.TemporaryDirectory(prefix="dnm-root-") as name:
        ini = Path(name) / "ini"
        ini.write_text(rehearsal_ini())
        with machine(suite, Path(name)) as root:
            root.put(artefact, "/tmp/package")
            root("mkdir /srv/checkout /srv/rehearsal")
            root.put(ROOT / "dnm", "/srv/checkout/dnm")
            root.put(REHEARSAL, "/srv/rehearsal/run")
            root.put(ini, "/srv/rehearsal/ini")
            root(f"{install} /tmp/package")
            lab = "env PYTHONPATH=/srv/checkout /opt/dnm/bin/python -m dnm.cli"
            return root(
                f"export LAB='{lab}'; sh /srv/rehearsal/run /usr/sbin/dnm /srv/rehearsal/ini"
            )


def rehearse_in_image(context: Path) -> str:
    """Builds the image from its context, with a local Debian root in place of the base image.
    Returns the output of the rehearsal, which the image's user plays in a container."""
    from tests.real.image_store import IMAGE, build_image

    with tempfile.TemporaryDirectory(prefix="dnm-image-") as name:
        ini = Path(name) / "ini"
        ini.write_text(rehearsal_ini())
        run("tar", "--extract", f"--file={context}", f"--directory={name}")
        with build_image(Path(name) / "store", Path(name) / context.stem) as store:
            container = store("from", "--pull-never", IMAGE)
            files = {"checkout/dnm": ROOT / "dnm", "run": REHEARSAL, "ini": ini}
            for target, source in files.items():
                store("add", "--quiet", container, str(source), f"/srv/{target}")
            lab = "env PYTHONPATH=/srv/checkout /opt/dnm/bin/python -m dnm.cli"
            script = f"export LAB='{lab}'; sh /srv/run /usr/sbin/dnm /srv/ini"
            return store("run", container, "--", "sh", "-c", script)


def check_all(built: list[Path]) -> None:
    """Rehearses a site's set-up with each artefact. Raises PackageError or AssertionError."""
    from tests.real.package_roots import SUITES

    for artefact in built:
        for suite in {".deb": SUITES, ".rpm": SUITES[-1:]}.get(artefact.suffix, ()):
            tell(f"{artefact.name} in a root of {suite}")
            print(rehearse_in_root(artefact, suite), end="")
        if artefact.suffix == ".tar":
            tell(f"{artefact.name} as an image")
            print(rehearse_in_image(artefact))
        elif artefact.suffix in (".whl", ".gz"):
            tell(f"{artefact.name} in a virtual environment")
            print(rehearse_in_environment(artefact), end="")


# --- what describes it ---------------------------------------------------------------------------


def write_sbom(wheel: Path, into: Path) -> Path:
    """Writes the list of what a virtual environment with the wheel contains, as CycloneDX."""
    target = into / SBOM
    with environment_of(wheel) as home:
        run(
            str(Path(sys.executable).parent / "cyclonedx-py"), "environment",
            "--output-reproducible", "--pyproject", str(ROOT / "pyproject.toml"),
            "--output-file", str(target), str(home / "bin" / "python"),
        )  # fmt: skip
    return target


def components(sbom: Path) -> dict[str, str]:
    """Returns the name and the version of each component of the release."""
    document = json.loads(sbom.read_text())
    return {part["name"]: part["version"] for part in document["components"]}


def write_sums(files: list[Path], into: Path) -> Path:
    """Writes the artefacts' checksums in the form that `sha256sum --check` reads."""
    lines = [f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {file.name}\n" for file in files]
    (into / SUMS).write_text("".join(sorted(lines, key=lambda line: line.split()[1])))
    return into / SUMS


def tag_command() -> str:
    """Returns the command that tags this release."""
    return f"git tag --annotate v{VERSION} --message 'dnm {VERSION}'"


def changed_files() -> str:
    """Returns the files that differ from the last commit, as git lists them."""
    return run("git", "status", "--porcelain", "--untracked-files=no")


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m packages.release", description=__doc__)
    parser.add_argument("--into", type=Path, default=ROOT / "dist")
    into = parser.parse_args(arguments).into.resolve()
    try:
        if changed := changed_files():
            raise PackageError(f"commit these files before a release:\n{changed}")
        built = build_all(into)
        check_all(built)
        sbom = write_sbom(next(file for file in built if file.suffix == ".whl"), into)
        sums = write_sums([*built, sbom], into)
    except (PackageError, BuildError, AssertionError, subprocess.SubprocessError) as error:
        print(f"release: {error}", file=sys.stderr)
        return 1
    print(sums.read_text(), end="")
    print(f"{sbom.name}: {len(components(sbom))} components")
    print(f"To tag it: {tag_command()}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
