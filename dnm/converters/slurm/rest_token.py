"""The token (JWT) that slurmrestd is asked with: read from a file that only root or we can write.

It is read anew for each request, since a token of Slurm lasts for half an hour unless told else.
What is said of it names its file, never its text.
"""

from __future__ import annotations

import base64
import re
import time
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from dnm.host.trust import read_trusted
from dnm.model.errors import SlurmError

_LARGEST = 16 * 1024  # bytes
_JWT = re.compile(r"[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+")
_USER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@-]{0,254}")
_NEW_ONE = "write a new one there with 'scontrol token username=USER lifespan=SECONDS'"


class _Claims(msgspec.Struct):
    exp: float | None = None
    sun: str = ""  # Slurm's user name


class Token(msgspec.Struct, frozen=True):
    """A token that has not expired by this host's clock."""

    text: str
    user: str  # empty: it names none

    def __repr__(self) -> str:
        """Without the token: it may end in a log."""
        return f"Token(user={self.user!r})"

    @property
    def headers(self) -> dict[str, str]:
        """Returns what Slurm 22.05 wants, with the name; later ones need the token alone."""
        user = {"X-SLURM-USER-NAME": self.user} if self.user else {}
        return {**user, "X-SLURM-USER-TOKEN": self.text}


def read_token(file: Path) -> Token:
    """Returns the token: bare, or as `scontrol token` prints it. Raises SlurmError with the way."""
    try:
        content = read_trusted(file, _LARGEST, SlurmError)
    except OSError as error:
        raise SlurmError(
            f"slurmrestd_token_file {file} can't be read ({error.strerror}): {_NEW_ONE}"
        ) from error
    text = content.decode("ascii", "replace").strip().removeprefix("SLURM_JWT=")
    claims = _read_claims(text)
    if claims is None:
        raise SlurmError(f"slurmrestd_token_file {file} has no token of Slurm in it: {_NEW_ONE}")
    if claims.exp is not None and claims.exp <= time.time():
        ended = datetime.fromtimestamp(claims.exp, UTC)
        raise SlurmError(
            f"the token of slurmrestd_token_file {file} expired at {ended:%Y-%m-%d %H:%M:%S} UTC: "
            f"{_NEW_ONE}"
        )
    return Token(text=text, user=claims.sun)


def _read_claims(text: str) -> _Claims | None:
    """What the token says of itself; slurmctld alone can tell whether it is genuine."""
    if not _JWT.fullmatch(text):
        return None
    middle = text.split(".")[1]
    try:
        raw = base64.urlsafe_b64decode(middle + "=" * (-len(middle) % 4))
        claims = msgspec.json.decode(raw, type=_Claims)
    except (ValueError, msgspec.MsgspecError):
        return None
    return claims if not claims.sun or _USER.fullmatch(claims.sun) else None
