"""`make report-page`: the page of `dnm report --html` in a real browser.

Debian's Chromium, headless, opens it at three widths, light and dark, without JavaScript and with
the page's own policy: nothing may be asked for from anywhere, nothing be written to the console.
Then axe-core (npm) looks for what a screen reader or weak eyes would stumble over, and the page is
not to be wider than a telephone. Screenshots are left in .venv/report-page to be looked at.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec

from dnm.cli.look.history import make_accounts
from dnm.cli.look.report_page import make_page
from tests.builders import a_config
from tests.record.year import write_year

PLACE = Path(sys.prefix) / "report-page"
AXE = PLACE / "node_modules" / "axe-core" / "axe.min.js"
CHROMIUM = "/usr/bin/chromium"
WIDTHS = {"telephone": 375, "tablet": 768, "desk": 1280}
SERIOUS = ("serious", "critical")


def main() -> int:
    """Returns 0 where the page passes, else 1; prints what is wrong."""
    PLACE.mkdir(exist_ok=True)
    if not AXE.exists():
        command = ["npm", "install", "--silent", "--no-audit", "--prefix", str(PLACE), "axe-core@4"]
        subprocess.run(command, check=True)
    wrong = list(look_at(_write_page(datetime.now(UTC))))
    print("\n".join(wrong) or f"the page: nothing wrong; screenshots in {PLACE}")
    return 1 if wrong else 0


def _write_page(now: datetime) -> Path:
    state = PLACE / "state"
    state.mkdir(exist_ok=True)
    config = a_config(state)
    for old in state.glob("history*"):
        old.unlink()
    write_year(config.converted_nodes_path, now, days=14)
    path = PLACE / "report.html"
    path.write_text(make_page(config, make_accounts(config, now - timedelta(days=10), now)))
    return path


def look_at(path: Path) -> Iterator[str]:
    """Yields what is wrong with the page, a sentence each."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"]
        )
        for device, width in WIDTHS.items():
            for scheme in ("light", "dark"):
                where = f"report, {device}, {scheme}"
                yield from _shows(browser, path, width, scheme, where)
                yield from _is_accessible(browser, path, width, scheme, where)
        browser.close()


def _shows(browser: Any, path: Path, width: int, scheme: Any, where: str) -> Iterator[str]:
    """Without JavaScript, as it is sent."""
    context = browser.new_context(
        viewport={"width": width, "height": 900}, color_scheme=scheme, java_script_enabled=False
    )
    page = context.new_page()
    asked, said = [], []
    page.on("request", lambda request: asked.append(request.url))
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.goto(path.as_uri())
    page.screenshot(path=PLACE / f"{where.replace(', ', '-')}.png", full_page=True)
    context.close()
    yield from (f"{where}: asks for {url}" for url in asked if url != path.as_uri())
    yield from (f"{where}: the console says {text}" for text in said)


def _is_accessible(browser: Any, path: Path, width: int, scheme: Any, where: str) -> Iterator[str]:
    context = browser.new_context(
        viewport={"width": width, "height": 900}, color_scheme=scheme, bypass_csp=True
    )
    page = context.new_page()
    page.goto(path.as_uri())
    broad = page.evaluate("document.documentElement.scrollWidth")
    if broad > width:
        yield f"{where}: is {broad} wide, and the screen {width}"
    page.evaluate("for (const one of document.querySelectorAll('details')) one.open = true")
    page.evaluate(AXE.read_text())
    found = page.evaluate("axe.run().then(result => JSON.stringify(result.violations))")
    context.close()
    for violation in msgspec.json.decode(found):
        if violation["impact"] in SERIOUS:
            first = violation["nodes"][0]["html"][:200]
            yield f"{where}: {violation['id']}: {violation['help']}: {first}"


if __name__ == "__main__":
    sys.exit(main())
