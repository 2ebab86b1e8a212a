"""Test that the end of a conversion starts a run, and of the seconds until YuniKorn's new limit. A
shell script acts as cron/dnm.path and cron/dnm.service, since no systemd runs."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.real.conftest import MakeSite
from tests.real.rig import Rig
from tests.real.site import DEV, Site, add_pods

UNIT = Path(__file__).parents[2] / "cron" / "dnm.service"
Record = Callable[[str, object], None]


@contextmanager
def path_unit(site: Site) -> Iterator[Path]:
    """Acts as dnm.path: starts dnm.service whenever the trigger file exists."""
    wakeup = site.directory / "state" / "converted_nodes.wake"
    runs = site.directory / "runs"
    runs.touch()
    before = re.findall("^ExecStartPre=(.*)$", UNIT.read_text(), re.M)
    service = "; ".join([*before, f"date +%s >> {runs}", "dnm run"])
    service = re.sub(r"\S+/converted_nodes\.wake", str(wakeup), service)
    script = f"while sleep 0.1; do if [ -e {wakeup} ]; then {service}; fi; done"
    unit = subprocess.Popen(
        ["sh", "-c", script], env=site.environment, start_new_session=True,
        stdout=(site.directory / "unit.log").open("w"), stderr=subprocess.STDOUT,
    )  # fmt: skip
    try:
        yield runs
    finally:
        os.killpg(unit.pid, signal.SIGKILL)  # also a run that it may have started
        unit.wait()


def test_join_starts_the_next_run_at_once(
    rig: Rig, make_site: MakeSite, record_property: Record
) -> None:
    """No timer runs. After the first run, only the ends of conversions start runs."""
    site = make_site(check_interval_seconds=2)
    site.seconds(6)
    with path_unit(site) as runs:
        add_pods(rig, 2, "128", "16Gi")
        site.dnm("run")
        assert rig.queue(DEV)["maxResource"]["vcore"] == 100_000, "it has not joined yet"
        ended = site.directory / "state" / "converted_nodes.wake"
        rig.wait_for(lambda: ended.exists(), "the converter has ended")
        at = ended.stat().st_mtime
        rig.wait_for(lambda: rig.queue(DEV)["maxResource"]["vcore"] > 100_000, "the limit grows")
        seconds = time.time() - at
        rig.wait_for(lambda: rig.running("dev") == 2, "the pods run")
    started = len(runs.read_text().splitlines())
    record_property("figures", f"from a converter's end to the limit {seconds:.1f} s")
    assert 1 <= started <= len([call for call in site.calls if "--set" in call]) + 1
    rig.remove_work()
