"""`bridge-convert`: the command line of node-convert, for machines that slurm-bridge manages."""

from __future__ import annotations

from dnm.converters.cli import main as run_program
from dnm.converters.machines import Machines


def main() -> None:
    """The entry point; ends the process with the exit code."""
    run_program(machines=Machines.BRIDGED)


if __name__ == "__main__":
    main()
