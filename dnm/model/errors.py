"""Every error dnm raises on purpose: one parent, one sentence each.

The message names the thing, the value that is wrong and the operator's next step. Who can go on
without what failed catches `DnmError`, and `cli/app.py` catches what is left; edges translate
foreign exceptions with `raise ... from`.
"""

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
    """The parent of all; `exit_code` is what the command ends with."""

    exit_code = ExitCode.FAILED


class ConfigError(DnmError):
    """The configuration is wrong; the message lists every problem, a line each."""

    exit_code = ExitCode.NEEDS_PERSON


class RegistryError(DnmError):
    """The state file can't be trusted; nothing is touched until a person has looked."""

    exit_code = ExitCode.NEEDS_PERSON


class StateError(RegistryError):
    """The registry in Kubernetes could not be written now: the next run tries again."""

    exit_code = ExitCode.FAILED


class LeaseLostError(RegistryError):
    """Another run has taken over while this one was asleep or cut off: this run writes nothing."""

    exit_code = ExitCode.LOCKED


class LockedError(DnmError):
    """Another run holds the lock."""

    exit_code = ExitCode.LOCKED


class StoppedError(DnmError):
    """A signal came before anything was done, or its grace was over while dnm waited for others."""


class KubeError(DnmError):
    """The Kubernetes API did not answer, refused, or answered with something unreadable."""


class KubeConflict(KubeError):
    """HTTP 409 or a failed precondition: somebody wrote in between. Read again, then try again."""


class QueueError(DnmError):
    """The queue document can't be read or can't be edited safely."""


class YunikornError(DnmError):
    """YuniKorn's REST API did not answer or refused a document."""


class LeaseError(DnmError):
    """Another dnm acts for the same instance, or dnm can't find out whether one does."""

    exit_code = ExitCode.NEEDS_PERSON


class SlurmError(DnmError):
    """Slurm did not answer, or a fact about a node can't be read."""


class ConverterError(DnmError):
    """The converter is missing, can't be started, failed, or ran out of time."""


class SandboxError(DnmError):
    """The embedded cluster can't be started, found or stopped."""
