"""The `dnm` command, also as `python -m dnm.cli`. A Ctrl-C during its imports prints a message."""

import gc
import sys
from io import BufferedWriter, TextIOWrapper

from dnm.host.shortage import describe_shortage, end_command


def main() -> None:
    """Runs the command that the command line names."""
    gc.set_threshold(50_000)  # modules stay loaded: collecting among them took a tenth of the start
    sys.unraisablehook = _handle_unraisable
    try:
        try:
            _open_streams()
            import dnm.cli.app as app

            app.main()
        finally:
            import signal

            signal.signal(signal.SIGINT, signal.SIG_IGN)  # none interrupts the interpreter's exit
    except (KeyboardInterrupt, SystemExit) as error:
        if isinstance(error, KeyboardInterrupt) or error.code == 130:
            from dnm.cli.terminal.interrupted import end_interrupted

            end_interrupted()
        from dnm.cli.terminal import streams

        sys.stdout.flush()
        if streams.Descriptor.failed:
            streams.report_failure(streams.Descriptor.failed, error.code)
        raise
    except (OSError, MemoryError, ImportError) as error:
        shortage = describe_shortage(error)
        if not shortage:
            raise
    else:
        return
    end_command(shortage)  # here the files and memory of the command's frames are freed


def _open_streams() -> None:
    from dnm.cli.terminal import streams

    if None in (sys.stdin, sys.stdout, sys.stderr):
        streams.open_closed()
    for name, number in (("stdout", 1), ("stderr", 2)):
        raw, was = streams.Descriptor(number, "wb", closefd=False), getattr(sys, name)
        code, errors = getattr(was, "encoding", "utf-8"), getattr(was, "errors", "replace")
        lines = getattr(was, "line_buffering", True) or was.write_through
        setattr(sys, name, TextIOWrapper(BufferedWriter(raw), code, errors, line_buffering=lines))


def _handle_unraisable(ignored: "sys.UnraisableHookArgs") -> None:
    from dnm.cli.terminal.interrupted import end_if_interrupted

    end_if_interrupted(ignored)


if __name__ == "__main__":
    main()
