"""The `dnm` command, also as `python -m dnm.cli`; it loads the rest where a Ctrl-C is told."""

import gc
import signal
import sys


def main() -> None:
    """Runs the verb that the command line names."""
    gc.set_threshold(50_000)  # what is loaded stays: looking through it took a tenth of the start
    sys.unraisablehook = _in_a_finalizer
    try:
        try:
            import dnm.cli.app as app

            app.main()
        finally:
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # the interpreter's end hears none
    except (KeyboardInterrupt, SystemExit) as error:
        if isinstance(error, KeyboardInterrupt) or error.code == 130:
            from dnm.cli.interrupted import tell

            tell(error)
        raise


def _in_a_finalizer(ignored: "sys.UnraisableHookArgs") -> None:
    from dnm.cli.interrupted import hear

    hear(ignored)


if __name__ == "__main__":
    main()
