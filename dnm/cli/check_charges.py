"""What `dnm check` says of the accounting of lent nodes: what sreport has of them, and what to
set."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from importlib.util import find_spec

from dnm.calendar.in_force import list_events
from dnm.cli.findings import Finding, doubtful, fine
from dnm.model.batch import BatchList
from dnm.model.config import Config
from dnm.model.errors import DnmError
from dnm.model.registry import Registry

_CHECK = "accounting"
_PAGE = "docs/accounting.md"


def check_charges(
    config: Config, registry: Registry, listed: BatchList, environ: Mapping[str, str]
) -> Iterator[Finding]:
    """Nothing where Slurm keeps no accounts and nobody is to be charged."""
    named = _accounts(config, registry)
    if not named and listed.charges:
        yield fine(
            _CHECK,
            "sreport has the hours of lent nodes as Down; with charge_account = - they are planned "
            f"({_PAGE})",
        )
    elif named and not listed.charges:
        yield doubtful(
            _CHECK,
            f"{named[0]} is to be charged, and the converter can't: sreport has lent nodes as Down",
            "it needs a slurmdbd and Slurm's commands (slurmrestd has no words for it); a site's "
            f"own converter says --account in its list ({_PAGE})",
        )
    elif named:
        yield fine(_CHECK, "sreport has lent nodes as planned, charged to " + ", ".join(named))
        yield from _unknown(named, environ)
        yield from _uncharged(registry, listed)


def _accounts(config: Config, registry: Registry) -> list[str]:
    """All that are named, each once."""
    places = (config, *config.namespaces.values(), *list_events(config, registry))
    told = [one.charge_account for one in places]  # type: ignore[attr-defined]
    return list(dict.fromkeys(filter(None, (*told, *(one.account for one in registry.orders)))))


def _unknown(named: list[str], environ: Mapping[str, str]) -> Iterator[Finding]:
    """Where Slurm's programs are."""
    if not (find_spec("dnm.converters") and shutil.which("sacctmgr", path=environ.get("PATH"))):
        return
    from dnm.converters.sreport import knows_account

    for name in named:
        try:
            is_known = name == "-" or knows_account(environ, name)
        except DnmError as error:
            yield doubtful(_CHECK, f"whether Slurm has the account {name} can't be told: {error}")
            return
        if not is_known:
            yield doubtful(
                _CHECK,
                f"Slurm has no account {name}: what it is to be charged is lent, and Down",
                f"sacctmgr add account {name}, or correct the name",
            )


def _uncharged(registry: Registry, listed: BatchList) -> Iterator[Finding]:
    for name, entry in sorted(registry.nodes.items()):
        row = listed.nodes.get(name)
        there = row.claim.account if row is not None and row.claim is not None else ""
        if entry.account and there != entry.account.lower():
            yield doubtful(
                _CHECK,
                f"{name} is lent for {entry.account}, and Slurm charges {there or 'nobody'}",
                "the log has why (the converter's lines of that lend); it is charged when it is "
                "lent again",
            )
