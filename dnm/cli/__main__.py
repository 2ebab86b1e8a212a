"""The `dnm` command, also as `python -m dnm.cli`. It loads the rest inside of `main`, so that a
Ctrl-C while that is loading is told like any other."""

import gc
import sys


def main() -> None:
    """Runs the verb that the command line names."""
    gc.set_threshold(50_000)  # what is loaded stays: looking through it took a tenth of the start
    try:
        from dnm.cli.app import main as run_verb

        run_verb()
    except KeyboardInterrupt:
        print("dnm: interrupted; the next run finds out what was under way", file=sys.stderr)
        sys.exit(130)


if __name__ == "__main__":
    main()
