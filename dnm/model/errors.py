"""The errors that dnm raises, with `DnmError` as their parent.

Each message names the object, the wrong value and the next step. A caller that can continue after
the failure catches `DnmError`; otherwise `cli/app.py` does. Modules that call other systems
translate their exceptions with `raise ... from`."""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """The exit codes of `dnm`, for cron and scripts. 75 is EX_TEMPFAIL of sysexits.h."""

    OK = 0
    FAILED = 1
    NEEDS_PERSON = 2
    WOULD_ACT = 3  # of `dnm plan --detailed-exitcode` alone
    LOCKED = 75


class DnmError(Exception):
    """The parent class of dnm's errors. A command that fails with it exits with `exit_code`."""

    exit_code = ExitCode.FAILED


class ConfigError(DnmError):
    """The configuration is wrong. The message lists every problem on a line of its own."""

    exit_code = ExitCode.NEEDS_PERSON


class RegistryError(DnmError):
    """The registry cannot be trusted. dnm changes nothing until an administrator has acted."""

    exit_code = ExitCode.NEEDS_PERSON


class StateError(RegistryError):
    """The registry could not be written in Kubernetes. The next run tries again."""

    exit_code = ExitCode.FAILED


class LeaseLostError(RegistryError):
    """Another run took the Lease while this one was suspended. This run writes nothing more."""

    exit_code = ExitCode.LOCKED


class LockedError(DnmError):
    """The lock of the registry is held by another run."""

    exit_code = ExitCode.LOCKED


class StoppedError(DnmError):
    """A signal ended the run, either before its first action or after its grace period."""


class KubeError(DnmError):
    """A request to the Kubernetes API failed: no answer, a refusal, or an unreadable answer."""


class KubeConflict(KubeError):
    """A write refused (HTTP 409, precondition), since another client wrote first. Read again."""


class QueueError(DnmError):
    """The limits of a queue cannot be read, or cannot be edited safely."""


class LeaseError(DnmError):
    """Another dnm acts for this instance, or dnm could not check whether one does."""

    exit_code = ExitCode.NEEDS_PERSON


class SlurmError(DnmError):
    """Slurm did not answer, or a fact about a node is unreadable. `cause` is the message without
    its consequence for a conversion."""

    def __init__(self, cause: str, consequence: str = "") -> None:
        super().__init__(f"{cause}; {consequence}" if consequence else cause)
        self.cause = cause


class ConverterError(DnmError):
    """The converter is missing, cannot be started, failed, or exceeded its time limit."""


class SandboxError(DnmError):
    """The embedded cluster cannot be started, found or stopped."""
