"""The command that builds and starts the real servers (the rig), and runs tests on them.

python -m tests.real build [...] builds the named modules, else what the short tests need python -m
tests.real up [...] a cluster until Ctrl-C: a version of YuniKorn, or kube-scheduler python -m
tests.real shell [...] a shell, or a command, in the cluster that is up python -m tests.real test
[...] pytest on tests/real, with pytest's own options python -m tests.real bench [...] measures a
large cluster; writes docs/bench.md"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import time
from collections.abc import Callable

from tests.real.build import BuildError, build
from tests.real.namespaces import INSIDE, enter_running, prepare, run_directory, run_inside
from tests.real.programs import RigError
from tests.real.rig import Rig


def main(arguments: list[str]) -> int:
    verb, rest = (arguments or [""])[0], arguments[1:]
    inside: dict[str, Callable[[list[str]], int]] = {"up": up, "test": test, "bench": bench}
    try:
        if verb == "build":
            build(rest)
            return 0
        if verb == "shell":
            enter_running(rest or ["bash", "--rcfile", "/etc/dynamic-node/rc"])
        if verb not in inside:
            print(__doc__, file=sys.stderr)
            return 2
        if INSIDE in os.environ:
            prepare()
            return inside[verb](rest)
        build()
        return run_inside(arguments)
    except (BuildError, RigError) as error:
        print(f"real: {error}", file=sys.stderr)
        return 1


def up(arguments: list[str]) -> int:
    began = time.monotonic()
    with Rig(run_directory(), *arguments) as rig:
        names = ("PATH", "KUBECONFIG")
        lines = [f"export {name}={shlex.quote(rig.environment[name])}" for name in names]
        (run_directory() / "etc" / "rc").write_text("\n".join([*lines, "PS1='real# '"]) + "\n")
        output = ", ".join(f"{name} {version}" for name, version in rig.versions().items())
        print(f"up after {time.monotonic() - began:.0f} s: {output}; logs in {rig.directory}/log")
        print("`python -m tests.real shell` elsewhere; Ctrl-C here ends it", flush=True)
        try:
            while True:
                time.sleep(1)
                for server in rig.servers.values():
                    if not server.is_up:
                        raise RigError(f"{server.name} has ended, see {server.log}")
        except KeyboardInterrupt:
            return 0


def bench(arguments: list[str]) -> int:
    from tests.real.bench import measure  # only this command needs its imports

    return measure(arguments)


def test(arguments: list[str]) -> int:
    # Not under `make test`: tests/real/conftest.py checks for the variable that `prepare` sets.
    has_paths = any(not argument.startswith("-") for argument in arguments)
    return subprocess.call(
        [sys.executable, "-m", "pytest", "--basetemp", f"{run_directory()}/tests", "-p",
         "no:cacheprovider", *([] if has_paths else ["tests/real"]), *arguments],
        env={**os.environ, "TMPDIR": str(run_directory())},
    )  # fmt: skip


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
