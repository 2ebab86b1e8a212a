"""The errors that dnm raises, with one parent.

Each message names the object, the wrong value and the next step. A caller that can continue after
the failure catches `DnmError`; otherwise `cli/app.py` does. Modules at the edges translate foreign
exceptions with `raise ... from`."""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """The exit codes of `dnm`, for cron. 75 is EX_TEMPFAIL of sysexits.h."""

    OK = 0
    FAILED = 1
    NEEDS_PERSON = 2
    WOULD_ACT = 3  # of `dnm plan --detailed-exitcode` alone
    LOCKED = 75


class DnmError(Exception):
    """The parent of all errors of dnm. `exit_code` is the one with which the command ends."""

    exit_code = ExitCode.FAILED


class ConfigError(DnmError):
    """A wrong configuration. The message lists every problem on a line of its own."""

    exit_code = ExitCode.NEEDS_PERSON


class RegistryError(DnmError):
    """A registry that dnm cannot trust. dnm changes nothing until an administrator has acted."""

    exit_code = ExitCode.NEEDS_PERSON


class StateError(RegistryError):
    """A failed write of the registry in Kubernetes. The next run tries again."""

    exit_code = ExitCode.FAILED


class LeaseLostError(RegistryError):
    """The loss of the Lease to another run during a suspension. This run writes nothing more."""

    exit_code = ExitCode.LOCKED


class LockedError(DnmError):
    """A lock that another run holds."""

    exit_code = ExitCode.LOCKED


class StoppedError(DnmError):
    """The end of a run by a signal, before its first action or after the grace period."""


class KubeError(DnmError):
    """A request to the Kubernetes API that got no answer, a refusal, or an unreadable answer."""


class KubeConflict(KubeError):
    """A write refused (HTTP 409, precondition), since another client wrote first. Read again."""


class QueueError(DnmError):
    """A queue document that dnm cannot read or cannot edit safely."""


class LeaseError(DnmError):
    """An instance for which another dnm acts, or for which dnm could not check whether one does."""

    exit_code = ExitCode.NEEDS_PERSON


class SlurmError(DnmError):
    """A missing answer of Slurm, or an unreadable fact about a node. `cause` is the message without
    the consequence for a conversion."""

    def __init__(self, cause: str, consequence: str = "") -> None:
        super().__init__(f"{cause}; {consequence}" if consequence else cause)
        self.cause = cause


class ConverterError(DnmError):
    """A converter that is missing, cannot be started, failed, or exceeded its time."""


class SandboxError(DnmError):
    """An embedded cluster that cannot be started, found or stopped."""
