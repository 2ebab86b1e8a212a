"""Fresh Debian root file systems for tests of packages, made once by debootstrap.

    python -m tests.real.package_roots build

Each test uses a root through an overlay, in its own mount, network and process namespaces. What a
test installs is in the overlay's upper folder and is removed; the machine is untouched."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from tests.real.build import cache, log_progress
from tests.real.programs import HUNG
from tests.real.slurm_roots import RootError, bootstrap, building, keep_root

# Debian 12 has Python 3.11, Debian 13 has 3.13.
SUITES = ("bookworm", "trixie")
PACKAGES = (
    "python3", "systemd", "openssh-client", "man-db", "bash-completion", "rpm", "procps", "iproute2"
)  # fmt: skip
BASE = "trixie-slim"  # the base of the image: minimal Debian
RECIPE = 1  # a higher number rebuilds every root
ENTER = """
mount -t tmpfs tmpfs "$2"
mkdir "$2/upper" "$2/work"
mount -t overlay overlay -o "lowerdir=$1,upperdir=$2/upper,workdir=$2/work" "$3"
mount -t proc proc "$3/proc"
mount -t tmpfs tmpfs "$3/run"
mount -t tmpfs -o mode=1777 tmpfs "$3/tmp"
mount --rbind /dev "$3/dev"
ip link set lo up
touch "$3/run/is-up"
exec sleep infinity
"""


def root_of(suite: str) -> Path:
    """Returns the path of the root of a Debian suite, made or not."""
    return cache() / f"packages-{suite}-{RECIPE}"


def build_roots() -> None:
    """Makes the missing roots. Raises RootError."""
    with building():
        for suite in (*SUITES, BASE):
            packages = ("ca-certificates",) if suite == BASE else PACKAGES
            debian = suite.partition("-")[0]
            keep_root(root_of(suite), partial(bootstrap, debian, packages=packages))
            log_progress(f"a root of {suite} for packages: {root_of(suite)}")


class Root:
    """A simulated machine with a Debian suite: its files, processes and loopback."""

    def __init__(self, path: Path, inside: str) -> None:
        self.path = path
        self.inside = inside

    def start(self, script: str) -> subprocess.Popen[str]:
        command = ["nsenter", "-t", self.inside, "-m", "-n", "-p", "-i", "-u", "--", "chroot",
                   str(self.path), "/bin/bash", "-euo", "pipefail", "-c", script]  # fmt: skip
        environment = {
            "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            "HOME": "/root", "LC_ALL": "C.UTF-8", "DEBIAN_FRONTEND": "noninteractive",
            "COLUMNS": "200",
        }  # fmt: skip
        return subprocess.Popen(
            command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True,
        )  # fmt: skip

    def run(self, script: str, code: int | None = 0) -> subprocess.CompletedProcess[str]:
        """Runs a script as root. Fails unless the exit code is `code` (None accepts any)."""
        process = self.start(script)
        stdout, stderr = process.communicate(timeout=HUNG)
        answer = subprocess.CompletedProcess(script, process.returncode, stdout, stderr)
        message = f"{script}\nexit code {process.returncode}\n{stdout}{stderr}"
        assert code is None or process.returncode == code, message
        return answer

    def __call__(self, script: str) -> str:
        return self.run(script).stdout

    def put(self, source: Path, target: str) -> None:
        """Copies a file or a folder of the real machine into the simulated one."""
        enter = ["nsenter", "-t", self.inside, "-m", "--"]
        subprocess.run([*enter, "cp", "-r", str(source), f"{self.path}{target}"], check=True)

    def files(self) -> set[str]:
        """Returns the paths of all files, except for mounts; folders end with a slash."""
        text = self("find / -xdev -type d -printf '%p/\\n' -o -printf '%p\\n'")
        return set(text.splitlines())


@contextmanager
def machine(suite: str, directory: Path, own_network: bool = True) -> Iterator[Root]:
    """Yields a fresh machine; its processes end with it."""
    if not root_of(suite).exists():
        raise RootError(f"{root_of(suite)} does not exist: run 'make test-packages'")
    layer, merged = directory / "layer", directory / "root"
    for folder in (layer, merged):
        folder.mkdir(parents=True)
    holder = subprocess.Popen(
        ["setpriv", "--pdeathsig", "KILL", "unshare", "--mount", "--pid", "--ipc", "--uts",
         *(["--net"] if own_network else []), "--fork", "--kill-child",
         "bash", "-euc", ENTER, "bash", str(root_of(suite)), str(layer), str(merged)],
    )  # fmt: skip
    try:
        yield Root(merged, wait_for(holder, merged))
    finally:
        holder.kill()
        holder.wait()


def wait_for(holder: subprocess.Popen[bytes], merged: Path) -> str:
    """Waits until all is mounted. Returns the id of the first process in the namespaces."""
    deadline = time.monotonic() + 30
    children = Path(f"/proc/{holder.pid}/task/{holder.pid}/children")
    while time.monotonic() < deadline and holder.poll() is None:
        first = children.read_text().split()
        if first and os.path.exists(f"/proc/{first[0]}/root{merged}/run/is-up"):
            return first[0]
        time.sleep(0.02)
    raise RootError(f"a root did not get ready: exit code {holder.poll()}")


def main(arguments: Sequence[str]) -> int:
    if list(arguments) != ["build"]:
        print(__doc__, file=sys.stderr)
        return 2
    try:
        build_roots()
    except RootError as error:
        print(f"real: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
