"""Tests of a GitOps controller that resets the queue document: one report, with a count."""

from __future__ import annotations

import logging
from datetime import timedelta
from pathlib import Path

import pytest

from dnm.checks.host import check_last_run
from dnm.lab.sandbox.cluster import Sandbox
from dnm.model.observed import DocumentResets, count_reset
from dnm.model.registry import Registry, RunRecord
from dnm.record.metrics import RunTimes
from dnm.run.health import warn_of_quiet
from dnm.run.publish import metrics_text
from tests.builders import NOW, a_config
from tests.site import WORKSHOP_QUEUES, a_workshop_site


def test_document_reset_in_each_run_is_reported_once_with_a_count(
    sandbox: Sandbox, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Once, each run logged the same four lines, and no command showed that limits were reset."""
    site = a_workshop_site(sandbox, tmp_path)
    site.run_until_rest()
    assert site.registry.last_run.resets is None
    lent = sandbox.queues_text()
    logged = []
    for _ in range(12):
        sandbox.set_queues(WORKSHOP_QUEUES)
        sandbox.tick(60)
        caplog.clear()
        with caplog.at_level(logging.INFO, "dnm"):
            site.run()
        assert sandbox.queues_text() == lent
        logged.append([record.getMessage() for record in caplog.records])
    resets = site.registry.last_run.resets
    assert resets is not None and resets.count == 12
    assert [bool(lines) for lines in logged] == [True] * 3 + [False] * 6 + [True] + [False] * 2
    (third,), (tenth,) = logged[2], logged[9]
    assert f"were reset by {resets.manager} 3 times since" in third
    assert "10 times" in tenth and "exclude them from the manifest" in tenth
    assert warn_of_quiet(site.config, site.registry, site.now()) == [resets.sentence]
    assert "12 times since" in resets.sentence
    result = list(check_last_run(site.config, site.registry, site.now()))
    assert any("12 times" in item.text for item in result)
    sandbox.tick(timedelta(hours=2).total_seconds())
    site.run()
    assert not warn_of_quiet(site.config, site.registry, site.now())


def test_new_limit_is_not_reported_as_a_reset(sandbox: Sandbox, tmp_path: Path) -> None:
    site = a_workshop_site(sandbox, tmp_path)
    site.run_until_rest()
    sandbox.set_queues(WORKSHOP_QUEUES.replace("vcore: 80", "vcore: 90"))
    site.run()
    assert site.registry.last_run.resets is None


def test_resets_are_counted_until_an_hour_passes_without_one() -> None:
    minute, hour = timedelta(minutes=1), timedelta(hours=1)
    first = count_reset(None, "helm", NOW)
    assert first == DocumentResets(manager="helm", count=1, since=NOW, last=NOW)
    third = count_reset(count_reset(first, "helm", NOW + minute), "flux", NOW + 2 * minute)
    assert (third.manager, third.count, third.since) == ("flux", 3, NOW)
    assert not first.is_repeated(NOW) and third.is_repeated(NOW + hour)
    assert not third.is_repeated(NOW + 2 * hour)
    assert count_reset(third, "helm", NOW + 2 * hour).count == 1
    assert [n for n in range(1, 2000) if count_is_news(n)] == [3, 10, 100, 1000]
    registry = Registry(last_run=RunRecord(resets=third))
    for now, value in ((NOW + hour, 3), (NOW + 2 * hour, 0)):
        text = metrics_text(a_config(), registry, now, RunTimes())
        assert f'dnm_queue_document_resets{{instance_id="prod"}} {value}\n' in text


def count_is_news(count: int) -> bool:
    return DocumentResets(manager="helm", count=count, since=NOW, last=NOW).is_news
