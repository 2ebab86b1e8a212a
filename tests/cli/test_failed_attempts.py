"""Failed attempts to lend or return a node: dnm counts them, and every command shows them."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from pathlib import Path

from dnm.cli.look.status import status_document
from dnm.lab.sandbox.cluster import Sandbox
from dnm.model.lent import Phase
from dnm.run.health import judge_health
from tests.site import QUEUE, Site, set_up_workshop


def lend_idle_node(sandbox: Sandbox, directory: Path) -> Site:
    """Builds a site with a lent node, on which the pod has ended."""
    sandbox.clock.set(time.time())
    set_up_workshop(sandbox, 2)
    sandbox.add_pods(1, "dev", queue=QUEUE, cpu="100", memory="200G", run_seconds=90)
    site = Site(sandbox, directory / "site")
    for _ in range(3):
        site.run()
        sandbox.tick(60)
    assert [entry.phase for entry in site.registry.nodes.values()] == [Phase.SERVING]
    return site


def run_until_attempts(site: Site, count: int) -> None:
    for _ in range(30):
        site.run()
        (entry,) = site.registry.nodes.values()
        attempts = getattr(entry.state, "attempts", 0)
        if attempts == count or entry.phase is Phase.FAILED:
            return
        site.sandbox.tick(60)
    raise AssertionError("no attempt")


def health(site: Site) -> tuple[str, str, int]:
    """Returns the health of the site now; the age of its last run is in real time."""
    return judge_health(site.config, site.registry, datetime.now(UTC))


def explanation(site: Site) -> str:
    (verdict,) = site.plan().plan.nodes
    return verdict.sentence


def test_failed_attempts_to_return_a_node_are_shown_everywhere(
    sandbox: Sandbox, tmp_path: Path
) -> None:
    site = lend_idle_node(sandbox, tmp_path)
    sandbox.behave(direction="batch", act=False, exit_code=3, stderr="no power\n", times=-1)
    for count in (1, 2):
        run_until_attempts(site, count)
        sandbox.tick(1)
        failed = f"{count} of 3 attempts failed: "
        assert failed in explanation(site) and "no power" in explanation(site)
        site.run()  # this run fails at nothing and does nothing
        word, why, exit_code = health(site)
        assert (word, exit_code) == ("warning", 1) and failed in why
        (row,) = status_document(site.config, site.registry, site.now())["nodes"]
        assert row["error"].startswith(failed)
    run_until_attempts(site, 3)
    sandbox.tick(1)
    site.run()
    word, why, exit_code = health(site)
    assert (word, exit_code) == ("person", 2) and "3 of 3 attempts failed: " in why
    assert "3 of 3 attempts failed: " in explanation(site) and "no power" in explanation(site)


def test_type_in_back_off_after_a_failed_conversion_is_a_warning(
    sandbox: Sandbox, tmp_path: Path
) -> None:
    sandbox.clock.set(time.time())
    set_up_workshop(sandbox, 2)
    sandbox.add_pods(1, "dev", queue=QUEUE, cpu="100", memory="200G")
    sandbox.behave(act=False, exit_code=3, stderr="no such image\n", times=-1)
    site = Site(sandbox, tmp_path / "site")
    for _ in range(2):  # the first failure alone causes no back-off
        assert site.run().exit_code == 1
        sandbox.tick(1)
    assert site.run().exit_code == 0
    word, why, exit_code = health(site)
    assert (word, exit_code) == ("warning", 1)
    assert "2 attempts failed: " in why and "no such image" in why
