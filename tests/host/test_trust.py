"""Tests that dnm hides secrets from other users and never prints their control characters.

They play a whole lend and return by the real command. No secret may be in a log, in the registry or
on a command line, and no control character of the cluster or a converter in any output."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from dnm.lab.sandbox.cluster import Sandbox
from tests.processes import PATIENCE
from tests.site import QUEUE, WORKSHOP_QUEUES, Site, set_up_workshop

pytestmark = pytest.mark.xdist_group("trust")  # one worker builds the fixture once

SECRETS = {
    "token": "tok-5f1c9e",
    "PASSWORD": "pass-77d0a2",
    "SITE_TOKEN": "site-30be41",
    "SITE_PIN": "pin-9b2e",  # passed by pass_environment only
    "SITE_CERT": "cert-begin-4d\nMIIEvQ7f30\ncert-end-91",
    "SITE_LONG": "0123456789abcdefghij",
    "NOT_PASSED": "lib-5521",
}
PASSED = "PASSWORD, SITE_TOKEN, SITE_PIN, SITE_CERT, SITE_LONG, SITE_UNSET"

# Reports every running process, prints its arguments and environment, and then does its work.
SPY = """#!/bin/sh
cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' ' ' >>@CALLS@
set -x
: "racadm -p $PASSWORD"
echo "as $SITE_TOKEN"
echo "$SITE_PIN"
echo "$SITE_CERT"
echo "$SITE_LONG" | fold -w 7
echo "given $(env | cut -d= -f1 | sort | tr '\\n' ' ')"
printf '\\033]0;owned\\007 one\\rtwo \\302\\2332J\\n' >&2
exec @CONVERTER@ "$@"
"""
ESCAPE = "\x1b[2J\x1b]0;owned\x07\r\x9b31m\u202e"  # the last one reverses the writing direction


class Story(NamedTuple):
    """The output of a whole lend and return, and the files that it has left."""

    site: Site
    text: str
    calls: str  # command lines of all processes meanwhile


@pytest.fixture(scope="module")
def full_story(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Story]:
    directory = tmp_path_factory.mktemp("trust")
    sandbox = Sandbox(directory / "sandbox").start()
    site = a_site(sandbox, directory)
    inject_control_characters(sandbox)
    yield Story(site, a_story(site), (directory / "calls").read_text())
    sandbox.stop()


def a_site(sandbox: Sandbox, directory: Path) -> Site:
    set_up_workshop(sandbox, 2)
    sandbox.add_pods(10, "dev", queue=QUEUE, cpu="4", memory="16G", run_seconds=30)
    sandbox.access.token = SECRETS["token"]
    kubeconfig = json.loads(sandbox.kubeconfig.read_text())
    kubeconfig["users"][0]["user"]["token"] = SECRETS["token"]
    path = directory / "kubeconfig"
    path.write_text(json.dumps(kubeconfig))
    path.chmod(0o600)
    script = directory / "node-convert"
    text = SPY.replace("@CALLS@", str(directory / "calls"))
    script.write_text(text.replace("@CONVERTER@", str(sandbox.node_convert_path)))
    script.chmod(0o755)
    return Site(
        sandbox, directory / "site", kubeconfig_path=path, node_convert_path=script,
        reversion_idle_seconds=1, pass_environment=PASSED,
    )  # fmt: skip


def printed(site: Site, *arguments: str, is_process: bool = False) -> str:
    """Returns the output of a command; `is_process` starts it as a shell would."""
    environment = {name: value for name, value in SECRETS.items() if name.isupper()}
    if is_process:
        answer = site.process(*arguments, seconds=PATIENCE, **environment)
    else:
        answer = site.command(*arguments, **environment)
    assert "Traceback" not in answer.stderr, answer.stderr
    return answer.stdout + answer.stderr


def a_story(site: Site) -> str:
    """Plays a lend and a return; the API refuses one run. Returns all output of the commands.

    The converter works in real time, so a busy machine needs more runs."""
    text = ""
    for minute in range(40):
        if minute >= 8 and "action=return" in text:
            break
        if minute == 3:
            message = f"Unauthorized: {ESCAPE} line one\nline two"
            site.sandbox.fault("status", path="nodes", code=401, message=message, times=1)
        text += printed(site, "run", "--log-console", is_process=minute in (0, 5))
        text += "".join(printed(site, verb) for verb in ("status", "plan"))
        site.sandbox.tick(60)
    for verb in (("check",), ("nodes",), ("queues", "show"), ("queues", "check")):
        text += printed(site, *verb)
    return text


def test_no_secret_is_logged_stored_or_on_a_command_line(full_story: Story) -> None:
    site, text, calls = full_story
    assert "action=convert" in text and "action=return" in text  # both did happen
    assert "racadm -p ***" in text and "as ***" in text  # it was printed, without the secrets
    assert "dnm.cli run" in calls and "--num-nodes" in calls
    kept = {
        path: path.read_text(errors="replace")
        for path in (site.directory / "state").glob("*")
        if path.is_file()
    }
    assert len(kept) >= 2
    events = text + "".join(kept.values())
    for secret in (*SECRETS["SITE_CERT"].splitlines(), *("0123456", "789abcd")):
        assert secret not in events, secret
    settings = set(
        next(line for line in text.splitlines() if "given " in line).split("given ")[1].split()
    )
    assert {
        "PASSWORD",
        "SITE_CERT",
        "DNM_INSTANCE",
        "PATH",
    } <= settings and "NOT_PASSED" not in settings
    assert "pass_environment names SITE_UNSET" in text
    assert not [path for path in kept if path.stat().st_mode & 0o077]
    for name, secret in SECRETS.items():
        assert secret not in text, name
        assert secret not in calls, name
        assert not [path for path, content in kept.items() if secret in content], name
    outputs = list((site.directory / "state" / "converter").glob("*"))
    assert all(path.stat().st_mode & 0o077 == 0 for path in outputs)
    assert not site.sandbox.violations


def inject_control_characters(sandbox: Sandbox) -> None:
    """Puts control characters into every free field of the objects that a run reads."""

    def in_pod(item: dict[str, Any]) -> None:
        item["metadata"]["labels"]["applicationId"] = f"app{ESCAPE}"
        item["spec"]["nodeSelector"] = {"zone": f"{ESCAPE}\nz"}
        item["spec"]["schedulerName"] = "yunikorn"

    def in_node(item: dict[str, Any]) -> None:
        item["metadata"].setdefault("labels", {})["pool"] = f"{ESCAPE}\np"
        item["spec"].setdefault("taints", []).append(
            {"key": f"evil{ESCAPE}", "value": "\n\x1bc", "effect": "NoSchedule"}
        )
        for condition in item.get("status", {}).get("conditions") or ():
            condition["message"] = f"{ESCAPE}\nkubelet stopped"

    names = sandbox.add_pods(3, "dev", queue=QUEUE, cpu="4", memory="16G", name="liar")
    sandbox.add_pods(
        1, "dev", cpu="4", memory="16G", name="lost", spec={"schedulerName": "yunikorn"},
        annotations={"yunikorn.apache.org/queue": f"root.anvil{ESCAPE}\n.dev"},
    )  # fmt: skip
    for name in names:
        sandbox.edit("pods", name, in_pod, "dev")
    sandbox.add_node("k1", cpu="4", memory="16G")
    sandbox.edit("nodes", "k1", in_node)


def test_no_control_character_of_the_cluster_is_printed(full_story: Story) -> None:
    site, text, _ = full_story
    for events in ("zone=", "Unauthorized", "owned", "two ?2J"):
        assert events in text, events  # each was printed, without the dangerous characters
    site.sandbox.set_queues(f"{WORKSHOP_QUEUES}  # {ESCAPE}\n")
    text += "".join(printed(site, verb) for verb in ("run", "status", "plan", "check"))
    text += printed(site, "queues", "check")
    lines = sorted({char for char in text if not char.isprintable() and char != "\n"})
    assert not lines, [line for line in text.splitlines() if not line.isprintable()][:3]
