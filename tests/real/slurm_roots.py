"""Slurm of newer Debian suites, beside the installed one: each in a root made by debootstrap.

    python -m tests.real.slurm_roots build [SUITE...]    makes missing roots, with progress

A root is below `$DNM_REAL_CACHE`, by default ~/.cache/dnm-real; it is made elsewhere and renamed
into place, so that an existing one is complete. The mirror is that of the machine's own apt.

Nothing stays mounted. `programs` has a command for each of Slurm's programs. It mounts the root's
/usr over the machine's, in a mount namespace that ends with the process. So paths, users and /tmp
are the machine's; programs and libraries are the root's."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from filelock import FileLock

from tests.real.build import cache, log_progress

SUITES = {"trixie": "24.11", "forky": "26.05"}  # the versions when this was written
# apt has slurmrestd without it, beside the installed release.
REST_SUITES = {"bookworm": "22.05", **SUITES}
PACKAGES = (
    "slurmctld", "slurmd", "slurm-client", "slurmrestd", "slurm-wlm-jwt-plugin", "munge"
)  # fmt: skip
PROGRAMS = {
    "sbin": ("slurmctld", "slurmd", "slurmrestd", "munged"),
    "bin": ("scontrol", "squeue", "sbatch", "scancel", "sinfo", "srun", "setpriv"),
}
RECIPE = 2  # a higher number rebuilds every root
BUILD_SECONDS = 1800
PROGRESS_SECONDS = 20.0
BUILDING = ".root-building-"
SCRIPTS = Path("/usr/share/debootstrap/scripts")
# /lib, /bin and /sbin are links into /usr; the name slurmctld is one of Debian's alternatives.
WRAPPER = """\
#!/bin/sh
exec unshare --mount --propagation private sh -c '
mount --bind "$0/usr" /usr
mount --bind "$0/etc/alternatives" /etc/alternatives
exec /usr/{place}/{program} "$@"' "${{0%/programs/*}}" "$@"
"""


class RootError(Exception):
    """A root could not be made; the message has the cause and the next step."""


def root_of(suite: str) -> Path:
    """Returns the path of the root of a Debian suite, made or not."""
    return cache() / f"slurm-{suite}-{RECIPE}"


def programs_of(suite: str) -> Path:
    """Returns the directory of the suite's programs, for the front of PATH. Raises RootError."""
    programs = root_of(suite) / "programs"
    if not programs.exists():
        raise RootError(f"{root_of(suite)} does not exist: run 'make real'")
    return programs


def version_of(programs: Path | None = None) -> str:
    """Returns the version of slurmctld, such as 26.05.5; without `programs` the installed one."""
    program = f"{programs}/slurmctld" if programs else "/usr/sbin/slurmctld"
    answer = subprocess.run([program, "-V"], capture_output=True, text=True, timeout=30)
    result = re.search(r"\d+\.\d+\.\d+", answer.stdout)
    if result is None:
        raise RootError(f"{program} -V prints no version: {answer.stdout}{answer.stderr}")
    return result[0]


def build_roots(suites: Sequence[str] = tuple(REST_SUITES)) -> None:
    """Makes the missing roots and reports the version of each. Raises RootError."""
    with building():
        for suite in suites:
            keep_root(root_of(suite), partial(make_root, suite))
            met = version_of(programs_of(suite))
            wanted = REST_SUITES.get(suite, "")
            surprise = "" if met.startswith(wanted) else f"; {wanted} was expected"
            log_progress(f"Slurm {met} of {suite}{surprise}, in {root_of(suite)}")


@contextmanager
def building() -> Iterator[None]:
    """Holds a lock, so that only one build runs, and removes what killed builds have left."""
    cache().mkdir(parents=True, exist_ok=True)
    with FileLock(cache() / ".roots-lock"):
        for leftover in cache().glob(f"{BUILDING}*"):
            shutil.rmtree(leftover)
        yield


def keep_root(place: Path, make: Callable[[Path], None]) -> None:
    """Makes a root, unless it exists; completely or not at all."""
    if place.exists():
        return
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix=BUILDING, dir=cache()) as directory:
        root = Path(directory) / "root"
        make(root)
        shutil.rmtree(root / "var/cache/apt", ignore_errors=True)
        root.chmod(0o755)
        root.rename(place)
    log_progress(f"{place.name}: made in {time.monotonic() - began:.0f} s")


def make_root(suite: str, root: Path) -> None:
    if os.geteuid() != 0:
        raise RootError("debootstrap needs root: run 'make real' as root")
    if shutil.which("debootstrap") is None:
        raise RootError("debootstrap is not installed: run 'make tools' as root")
    if not Path("/bin").is_symlink():
        raise RootError("/bin is not a link into /usr: the roots need a machine with a merged /usr")
    bootstrap(suite, root)
    for waste in ("var/lib/apt/lists", "usr/share/doc", "usr/share/locale"):
        shutil.rmtree(root / waste, ignore_errors=True)
    write_programs(root / "programs")
    version_of(root / "programs")  # a version that does not start is not kept


def write_programs(directory: Path) -> None:
    directory.mkdir()
    for place, names in PROGRAMS.items():
        for name in names:
            (directory / name).write_text(WRAPPER.format(place=place, program=name))
            (directory / name).chmod(0o755)


def bootstrap(suite: str, root: Path, packages: Sequence[str] = PACKAGES) -> None:
    """Runs debootstrap in namespaces of its own: after any end, its processes and mounts are
    gone."""
    facts = SCRIPTS / suite
    command = [
        "setpriv", "--pdeathsig", "KILL", "unshare", "--mount", "--pid", "--fork", "--kill-child",
        "debootstrap", "--variant=minbase", f"--include={','.join(packages)}", suite, str(root),
        mirror(), str(facts if facts.exists() else SCRIPTS / "sid"),
    ]  # fmt: skip
    log_progress(f"{suite}: debootstrap, about a minute")
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        text=True, errors="replace", env=environment(),
    )  # fmt: skip
    bound = threading.Timer(BUILD_SECONDS, process.send_signal, (signal.SIGKILL,))
    bound.start()
    lines: list[str] = []
    reported = began = time.monotonic()
    assert process.stdout is not None
    try:
        for line in process.stdout:
            lines.append(line.rstrip())
            if time.monotonic() - reported > PROGRESS_SECONDS:
                reported = time.monotonic()
                log_progress(f"{suite}: {reported - began:.0f} s: {lines[-1]}")
        code = process.wait()
    finally:
        bound.cancel()
        process.kill()
    if code:
        end = "\n".join(lines[-15:])
        raise RootError(
            f"debootstrap of {suite} failed (exit {code}) after {time.monotonic() - began:.0f} s:"
            f"\n{end}"
        )


def environment() -> Mapping[str, str]:
    """Returns the environment with apt's proxy, which debootstrap does not read."""
    answer = checked("apt-config", "shell", "proxy", "Acquire::http::Proxy")
    result = re.search(r"proxy='([^']+)'", answer)
    return {**os.environ, **({"http_proxy": result[1]} if result else {})}


def mirror() -> str:
    """Returns the address of Debian's archive in the machine's own apt configuration."""
    question = ("apt-get", "indextargets", "--format", "$(REPO_URI) $(ORIGIN) $(LABEL)")
    for attempt in range(2):
        if attempt:  # apt knows the origin of a source once it has read its index
            checked("apt-get", "update", "-qq")
        for line in checked(*question).splitlines():
            address, _, origin = line.partition(" ")
            if origin == "Debian Debian" and address.startswith(("http://", "https://", "file:")):
                return address.rstrip("/")
    raise RootError("apt has no source of Debian's archive over http: its Slurm is unavailable")


def checked(*command: str) -> str:
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=120)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise RootError(f"{' '.join(command)}: {error}") from error
    if answer.returncode:
        raise RootError(f"{' '.join(command)}: exit {answer.returncode}: {answer.stderr.strip()}")
    return answer.stdout


def main(arguments: Sequence[str]) -> int:
    if not arguments or arguments[0] != "build" or set(arguments[1:]) - set(REST_SUITES):
        print(__doc__, file=sys.stderr)
        return 2
    try:
        build_roots(arguments[1:] or tuple(REST_SUITES))
    except RootError as error:
        print(f"real: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
