"""The `dnm` command, also as `python -m dnm.cli`; it loads the rest where a Ctrl-C is told."""

import gc
import sys
from io import BufferedWriter, TextIOWrapper

from dnm.host.shortage import describe_shortage, end_command


def main() -> None:
    """Runs the verb that the command line names."""
    gc.set_threshold(50_000)  # what is loaded stays: looking through it took a tenth of the start
    sys.unraisablehook = _in_a_finalizer
    try:
        try:
            _open_streams()
            import dnm.cli.app as app

            app.main()
        finally:
            import signal

            signal.signal(signal.SIGINT, signal.SIG_IGN)  # the interpreter's end hears none
    except (KeyboardInterrupt, SystemExit) as error:
        if isinstance(error, KeyboardInterrupt) or error.code == 130:
            from dnm.cli.terminal.interrupted import tell

            tell()
        from dnm.cli.terminal import streams

        sys.stdout.flush()
        if streams.Descriptor.failed:
            streams.tell_failure(streams.Descriptor.failed, error.code)
        raise
    except (OSError, MemoryError, ImportError) as error:
        shortage = describe_shortage(error)
        if not shortage:
            raise
    else:
        return
    end_command(shortage)  # the files and the memory of the command's frames are free here


def _open_streams() -> None:
    from dnm.cli.terminal import streams

    if None in (sys.stdin, sys.stdout, sys.stderr):
        streams.open_closed()
    for name, number in (("stdout", 1), ("stderr", 2)):
        raw, was = streams.Descriptor(number, "wb", closefd=False), getattr(sys, name)
        code, errors = getattr(was, "encoding", "utf-8"), getattr(was, "errors", "replace")
        lines = getattr(was, "line_buffering", True) or was.write_through
        setattr(sys, name, TextIOWrapper(BufferedWriter(raw), code, errors, line_buffering=lines))


def _in_a_finalizer(ignored: "sys.UnraisableHookArgs") -> None:
    from dnm.cli.terminal.interrupted import hear

    hear(ignored)


if __name__ == "__main__":
    main()
