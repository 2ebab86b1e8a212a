"""Builds dist/dnm_VERSION_ARCH.deb and dist/dnm-VERSION-1.ARCH.rpm: `make packages`.

    python -m packages.build [--version VERSION] [--into DIRECTORY]

/opt/dnm is a virtual environment without an interpreter. The package's script links the host's
Python, of any version from 3.11 to 3.14. The libraries of all these are in one folder, since the
names of compiled files contain the version. The tests have run with the same library versions."""

from __future__ import annotations

import argparse
import gzip
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from email import message_from_string
from email.message import Message
from pathlib import Path
from string import Template
from typing import Any, TypeVar

from packages.manuals import configuration_page, included
from tests.real.build import BuildError, program

T = TypeVar("T")
ROOT = Path(__file__).parent.parent
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
ARCHES = {"x86_64": "amd64", "aarch64": "arm64"}  # the machine's name -> Go's and Debian's
WHEELS = ("manylinux2014", "manylinux_2_17", "manylinux_2_28")
MAINTAINER = "the administrators of this site <root@localhost>"
SCRIPT = "#!/opt/dnm/bin/python -I\nimport sys\nfrom {module} import {name}\nsys.exit({name}())\n"
CONVERTERS = (
    (("node-convert",), "move nodes between Slurm and Kubernetes"),
    (("nodeset-convert",), "move nodes whose slurmd runs in a pod"),
    (("bridge-convert",), "move nodes that slurm-bridge has put into Slurm"),
)
SHELLS = ("bash", "zsh", "fish")
# What a site copies, and what it reads: as in the repository.
SHARED = (
    "README.md", "CHANGELOG.md", "docs", "deploy", "etc/rbac.yaml", "etc/rbac-slinky.yaml",
    "etc/rbac-kueue.yaml", "etc/rbac-kueue-cluster-queue.yaml",
    "etc/rbac-kueue-capacity-provider.yaml", "etc/rbac-resource-quota.yaml",
    "etc/admission-policy.yaml", "etc/kustomization.yaml", "etc/hooks", "etc/grafana",
    "etc/prometheus",
)  # fmt: skip


class PackageError(Exception):
    """The error if a package cannot be built. Its message has the output of the failed program."""


def run(*command: str, **environment: str) -> str:
    """Returns the standard output of a command. Raises PackageError with the end of its output."""
    answer = subprocess.run(
        command, capture_output=True, text=True, cwd=ROOT, env={**os.environ, **environment}
    )
    if answer.returncode:
        said = "\n".join((answer.stdout + answer.stderr).splitlines()[-20:])
        raise PackageError(f"{' '.join(command)}: exit code {answer.returncode}\n{said}")
    return answer.stdout


def tell(what: str) -> None:
    """Prints which long step the build begins."""
    print(f"packages: {what}", file=sys.stderr, flush=True)


def progressing(what: str, things: Sequence[T]) -> Iterator[T]:
    """Yields each of the things, and shows the remaining time on a terminal."""
    from dnm.cli.terminal.paint import progress

    with progress(what) as told:
        for number, thing in enumerate(things):
            told(number / len(things))
            yield thing


def project() -> Mapping[str, Any]:
    return dict(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"])


# --- the environment below /opt/dnm --------------------------------------------------------------


def stage_environment(stage: Path, version: str) -> None:
    """Writes the virtual environment below /opt/dnm: dnm and its libraries for each Python."""
    home = stage / "opt" / "dnm"
    packages = home / "lib" / "site-packages"
    packages.mkdir(parents=True)
    with tempfile.TemporaryDirectory(prefix="dnm-wheels-") as name:
        directory = Path(name)
        wheel = make_wheel(directory / "source", version)
        pins = directory / "pins"
        pins.write_text(run(sys.executable, "-m", "pip", "freeze", "--exclude-editable"))
        tell(f"libraries for Python {', '.join(PYTHONS)}, from the package index")
        for python in progressing("libraries", PYTHONS):
            install(wheel, python, pins, directory / python)
            shutil.copytree(directory / python, packages, dirs_exist_ok=True)
            (home / "lib" / f"python{python}").mkdir()
            (home / "lib" / f"python{python}" / "site-packages").symlink_to("../site-packages")
    for waste in [*packages.glob("bin"), *packages.glob("*.dist-info/RECORD")]:
        shutil.rmtree(waste) if waste.is_dir() else waste.unlink()
    write_scripts(home / "bin")


def make_wheel(source: Path, version: str) -> Path:
    """Returns dnm's wheel, built from a copy because setuptools leaves files where it builds."""
    source.mkdir()
    shutil.copytree(
        ROOT / "dnm", source / "dnm", ignore=shutil.ignore_patterns("__pycache__", "lab")
    )
    shutil.copy(ROOT / "README.md", source)
    text = (ROOT / "pyproject.toml").read_text()
    text = re.sub(r'^version = ".*"$', f'version = "{version}"', text, flags=re.MULTILINE)
    (source / "pyproject.toml").write_text(text)
    run(
        sys.executable, "-m", "pip", "wheel", "--quiet", "--disable-pip-version-check",
        "--no-deps", "--wheel-dir", str(source / "wheel"), str(source),
    )  # fmt: skip
    (wheel,) = (source / "wheel").glob("*.whl")
    return wheel


def install(wheel: Path, python: str, pins: Path, target: Path) -> None:
    """Installs dnm and its libraries as this version of Python needs them, without running it."""
    platforms = [f"--platform={wheel}_{platform.machine()}" for wheel in WHEELS]
    run(
        sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check",
        "--no-compile", "--only-binary=:all:", "--implementation=cp", f"--python-version={python}",
        *platforms, "--constraint", str(pins), "--target", str(target), str(wheel),
    )  # fmt: skip


def write_scripts(directory: Path) -> None:
    """Writes the commands that [project.scripts] of pyproject.toml names."""
    directory.mkdir()
    scripts = project()["scripts"]
    assert isinstance(scripts, dict)
    for command, entry in scripts.items():
        module, _, name = entry.partition(":")
        (directory / command).write_text(SCRIPT.format(module=module, name=name))
        (directory / command).chmod(0o755)


# --- what stands around it -----------------------------------------------------------------------


def stage_files(stage: Path) -> None:
    """Copies the systemd units, the configuration, the cron line and the documentation."""
    for unit in (ROOT / "cron").glob("dnm*.*"):
        text = unit.read_text()
        if unit.suffix == ".cron":
            write(stage / "etc" / "dnm.cron", switched_off(text))
        else:
            write(stage / "units" / unit.name, packaged_unit(text))
    for name in ("dynamic_node_config.ini", "namespace_queue_paths.json"):
        write(stage / "etc" / name, (ROOT / "etc" / name).read_text())
    for name in SHARED:
        source, target = ROOT / name, stage / "share" / name
        if source.is_dir():
            shutil.copytree(source, target)
        elif source.exists():
            write(target, source.read_text())


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def packaged_unit(text: str) -> str:
    """Returns a systemd unit with the paths that programs and units have in a package."""
    text = text.replace("/usr/local/sbin/", "/usr/sbin/")
    return text.replace("/etc/systemd/system/", "/usr/lib/systemd/system/")


def switched_off(text: str) -> str:
    """Returns the cron file with commented lines, so that an installation starts no run."""
    head = "# Off as it is installed: take the '#' away from the last line to use it.\n"
    return head + re.sub(r"^(?=\* )", "#", text, flags=re.MULTILINE)


def stage_manuals(
    stage: Path, version: str, pages: Sequence[tuple[tuple[str, ...], str]] = ()
) -> None:
    """Writes a manual page of section 8 for each command (or for those in `pages`) by help2man from
    its help text, and a page of section 5 for the configuration."""
    programs = Path(sys.executable).parent
    environment = {"COLUMNS": "80", "LC_ALL": "C.UTF-8", "SOURCE_DATE_EPOCH": str(build_time())}
    (stage / "man").mkdir()
    pages = pages or [*verbs(), *CONVERTERS]
    tell(f"{len(pages)} manual pages, a second each")
    for words, summary in progressing("manual pages", pages):
        page = stage / "man" / f"{'-'.join(words)}.8"
        page.write_text(included(words, summary))
        text = run(
            "help2man", "--no-info", "--section=8", "--manual=Dynamic Node Manager",
            f"--source=dnm {version}", f"--version-string={version}", f"--include={page}",
            f"{programs}/{' '.join(words)}", **environment,
        )  # fmt: skip
        write_packed(page.with_suffix(".8.gz"), text)
        page.unlink()
    write_packed(stage / "man5" / "dynamic_node_config.ini.5.gz", configuration_page(version))


def write_packed(path: Path, text: str) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(gzip.compress(text.encode(), mtime=0))


def stage_doc(stage: Path) -> None:
    """Writes the changelog, and the licenses of the libraries below /opt/dnm."""
    write_packed(stage / "doc" / "changelog.gz", (ROOT / "CHANGELOG.md").read_text())
    lines = ["dnm: its authors are in its history; it names no license.", "",
             "In /opt/dnm, each under its own license:", ""]  # fmt: skip
    for found in sorted((stage / "opt" / "dnm" / "lib" / "site-packages").glob("*.dist-info")):
        told = message_from_string((found / "METADATA").read_text(errors="replace"))
        if told["Name"] != "dnm":
            lines.append(f"{told['Name']} {told['Version']}: {license_of(told)}")
    write(stage / "doc" / "copyright", "\n".join(lines) + "\n")


def license_of(told: Message) -> str:
    """Returns the name of a library's license, from the metadata of the library."""
    classes = [name.rpartition(" :: ")[2] for name in told.get_all("Classifier", ())
               if name.startswith("License ::")]  # fmt: skip
    name = told["License-Expression"] or ", ".join(classes) or told["License"] or ""
    return name.strip().partition("\n")[0] or "as its files there say"


def verbs() -> Iterator[tuple[tuple[str, ...], str]]:
    """Yields (name, first line of the help) of each command and group of `dnm`. Omits the commands
    of the lab, which is not packaged."""
    import typer.main

    from dnm.cli.app import app

    todo: list[tuple[tuple[str, ...], Any]] = [(("dnm",), typer.main.get_command(app))]
    while todo:
        words, command = todo.pop()
        text = (command.help or "").strip().partition("\n")[0]
        yield words, text.rstrip(".")[:1].lower() + text.rstrip(".")[1:]
        for name in command.list_commands(None) if hasattr(command, "list_commands") else ():
            if name not in ("sandbox", "demo"):
                todo.append(((*words, name), command.get_command(None, name)))


def stage_completion(stage: Path) -> None:
    """Writes the completion script of each shell, as `dnm --show-completion` prints it."""
    (stage / "completion").mkdir()
    program = Path(sys.executable).parent / "dnm"
    for shell in SHELLS:
        text = run(str(program), _DNM_COMPLETE=f"source_{shell}")
        (stage / "completion" / f"dnm.{shell}").write_text(text)


def build_time() -> int:
    """Returns the time of the last commit, which all files get, so that builds are repeatable."""
    return int(run("git", "log", "-1", "--format=%ct").strip() or 0)


# --- the packages --------------------------------------------------------------------------------


def build(version: str, into: Path) -> list[Path]:
    """Builds the deb and the rpm, and returns their paths. Raises PackageError."""
    into.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="dnm-stage-") as name:
        stage = Path(name)
        stage_environment(stage, version)
        stage_doc(stage)
        stage_files(stage)
        stage_manuals(stage, version)
        stage_completion(stage)
        for entry in stage.rglob("*"):
            if not entry.is_symlink():
                is_open = entry.is_dir() or entry.stat().st_mode & 0o100
                entry.chmod(0o755 if is_open else 0o644)
        values = {"STAGE": name, "VERSION": version, "MAINTAINER": MAINTAINER,
                  "GOARCH": ARCHES[platform.machine()]}  # fmt: skip
        text = (ROOT / "packages" / "nfpm.yaml").read_text()
        (stage / "nfpm.yaml").write_text(Template(text).substitute(values))
        for kind in ("deb", "rpm"):
            tell(f"the {kind}, by nfpm")
            run(
                str(program("nfpm")), "package", "--config", str(stage / "nfpm.yaml"),
                "--packager", kind, "--target", str(into), SOURCE_DATE_EPOCH=str(build_time()),
            )  # fmt: skip
    return sorted([*into.glob(f"dnm_{version}*.deb"), *into.glob(f"dnm-{version}*.rpm")])


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m packages.build", description=__doc__)
    parser.add_argument("--version", default=project()["version"])
    parser.add_argument("--into", type=Path, default=ROOT / "dist")
    chosen = parser.parse_args(arguments)
    try:
        for package in build(chosen.version, chosen.into):
            print(f"{package}: {package.stat().st_size / 2**20:.1f} MiB")
    except (PackageError, BuildError) as error:
        print(f"packages: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
