"""`dnm report`: reads the history, and prints what it adds up to or writes the page."""

from __future__ import annotations

import csv
import sys
from datetime import UTC, datetime
from pathlib import Path

from dnm.cli.bill import bill_table, make_bill
from dnm.cli.books import make_accounts
from dnm.cli.history import QuestionError, parse_moment
from dnm.cli.lending_report import csv_rows, print_report, report_document
from dnm.cli.output import print_document, print_line, print_table
from dnm.model.config import Config
from dnm.model.errors import ExitCode
from dnm.model.printable import count_of


def show_report(
    config: Config, since: str, html: Path | None, jobs: Path | None, output: str
) -> int:
    """Prints it, or writes the page; returns the exit code. `jobs`: what sacct printed of the same
    time, for what they paid."""
    now = datetime.now(UTC)
    if html is not None and jobs is not None:
        raise QuestionError("--jobs goes with the tables, not with --html")
    accounts = make_accounts(config, parse_moment(since, now, "--since", config.events_zone), now)
    price = None
    if jobs is not None:
        from dnm.cli.simulation import price_of_lending  # which loads the planner

        price = price_of_lending(config, since, jobs)
    if html is not None:
        from dnm.cli.report_page import make_page  # which loads the library for charts
        from dnm.run.publish import write_textfile

        try:
            write_textfile(html, make_page(config, accounts))
        except OSError as error:
            raise QuestionError(
                f"--html {html} can't be written ({error.strerror or error}): name a file in a "
                "directory where this user may write"
            ) from error
        print(f"{html}: {count_of(len(accounts.stays), 'stay')} of lent nodes")
    elif output in ("json", "yaml"):
        print_document(report_document(accounts, price), output)
    elif output == "csv":
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow(["table", "queue", "of", "measure", "value"])
        writer.writerows(csv_rows(report_document(accounts, price)))
    else:
        print_report(config, report_document(accounts, price))
        if charged := [one for one in make_bill(config, accounts.since, now) if one.account]:
            print_line()
            print_table(*bill_table(charged))
    return ExitCode.OK
