"""Slinky's programs of releases that Go's module proxy lacks, built from a checkout named by an
environment variable: `python -m tests.real.checkouts slurm-bridge`.

If the proxy lacks slurm-client too, a go.work beside the checkout, or at GOWORK, has `use
./slurm-bridge` and `replace github.com/SlinkyProject/slurm-client => ./slurm-client`."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path

from tests.real.build import BuildError, build, cache, checked, go_environment, log_progress


@dataclass(frozen=True)
class Checkout:
    """A checkout: `variable` is the environment variable with its path, `package` its command."""

    name: str
    variable: str
    package: str

    @property
    def directory(self) -> Path | None:
        named = os.environ.get(self.variable)
        return Path(named) if named else None

    @property
    def program(self) -> Path:
        """Returns the path of the built program. Raises BuildError."""
        if self.directory is None:
            raise BuildError(
                f"{self.variable} names no checkout of {self.name}, and its source is not on "
                f"Go's module proxy: git clone https://github.com/SlinkyProject/{self.name}, and "
                f"name its directory: {self.variable}=/path make {self.target}"
            )
        if not (self.directory / self.package / "main.go").exists():
            raise BuildError(
                f"{self.variable}={self.directory} has no {self.package}/main.go: name the "
                f"directory of a checkout of {self.name}"
            )
        return cache() / f"{self.name}-{self.version}"

    @property
    def target(self) -> str:
        return f"test-{self.name.removeprefix('slurm-')}"

    @property
    def version(self) -> str:
        """Returns the version in the checkout's file VERSION, with its commit."""
        assert self.directory is not None
        commit = checked(
            ["git", "describe", "--always", "--dirty", "--exclude=*"], os.environ, self.directory
        )
        return f"{(self.directory / 'VERSION').read_text().strip()}-{commit.strip()}"

    def build(self) -> None:
        """Builds the program each time, because a checkout may change. Raises BuildError."""
        program = self.program
        environment = {**go_environment(), "GOFLAGS": "-trimpath"}
        environment["GOWORK"] = os.environ.get("GOWORK", "")
        log_progress(f"{program.name} from {self.directory}: minutes, the first time")
        cache().mkdir(parents=True, exist_ok=True)
        made = f"{program}.made"
        checked(["go", "build", "-o", made, f"./{self.package}"], environment, self.directory)
        os.replace(made, program)


SLURM_BRIDGE = Checkout("slurm-bridge", "DNM_SLURM_BRIDGE", "cmd/controllers")
SLURM_OPERATOR = Checkout("slurm-operator", "DNM_SLURM_OPERATOR", "cmd/manager")


def main(names: list[str]) -> int:
    """Builds the named checkouts. Without one, slurm-operator is built from the proxy's release."""
    try:
        for checkout in (SLURM_BRIDGE, SLURM_OPERATOR):
            if checkout.name not in names:
                continue
            if checkout is SLURM_OPERATOR and checkout.directory is None:
                build([checkout.name])
            else:
                checkout.build()
    except BuildError as error:
        print(f"real: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
