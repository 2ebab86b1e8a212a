"""`status_page`: the page of now, written after a run that changed something."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from dnm.cli.output import waiting_lines
from dnm.cli.page import html_list, html_table, make_html
from dnm.cli.status import status_document
from dnm.cli.status_view import NODE_COLUMNS, brake_lines, node_rows, queue_rows, run_lines
from dnm.model.config import Config
from dnm.model.registry import Registry
from dnm.record.textfile import write_textfile

log = logging.getLogger("dnm")


def write_status_page(config: Config, registry: Registry) -> None:
    """Writes it; what can't be written is logged and stops nothing."""
    assert config.status_page is not None
    now = datetime.now(UTC)
    try:
        write_textfile(config.status_page, make_status_page(config, registry, now))
    except OSError as error:
        log.error(
            "error=%r",
            f"the page {config.status_page} can't be written ({error.strerror or error}): mend its "
            "directory, or unset status_page",
        )


def make_status_page(config: Config, registry: Registry, now: datetime) -> str:
    """Returns the page: what `dnm status` shows."""
    document = status_document(config, registry, now)
    lead = f"Instance {config.instance_id}, {now:%Y-%m-%d %H:%M:%S} UTC"
    return make_html("dnm: now", lead, _sections(document, now))


def _sections(document: dict[str, Any], now: datetime) -> Iterator[tuple[str, str]]:
    rows = [[row.get(name, "") for name in NODE_COLUMNS] for row in node_rows(document, now)]
    yield "Lent nodes", html_table("Lent nodes", NODE_COLUMNS, rows, "no node is lent")
    header = ["queue", "resource", "limit", "baseline", "lent", "used", "pending"]
    rows = [[queue["queue"], *row] for queue in document["queues"] for row in queue_rows(queue)]
    yield "Queues", html_table("Queues", header, rows, "no run has looked at the queues yet")
    rows = [
        [queue["queue"], queue["verdict"] or "?", str(queue["pending_pods"]), queue["reason"]]
        for queue in document["queues"]
    ]
    header = ["queue", "verdict", "pending pods", "reason"]
    yield "Verdicts", html_table("Verdicts", header, rows, "none yet")
    lines = list(waiting_lines(document["waiting_jobs"] or (), now))
    yield "Jobs that wait", html_list(lines, "none that nodes would start, as far as is known")
    yield "Brakes", html_list(list(brake_lines(document["brakes"], now)), "none")
    lines = [line.strip() for line in run_lines(document["last_run"], now)]
    yield "Last run", html_list([*lines, *document["warnings"]], "none yet")
