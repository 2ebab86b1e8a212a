"""Tests of the Events that runs create in the API, over HTTP with the real client."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dnm.kube.events import MOST, send_events
from dnm.lab.sandbox.cluster import Sandbox
from dnm.model.cluster import KubeEvent
from dnm.model.errors import KubeError
from tests.builders import NOW
from tests.site import QUEUE, a_workshop_site


def events(sandbox: Sandbox, namespace: str = "default") -> list[dict[str, Any]]:
    """Returns the core/v1 Events in the sandbox, which `kubectl describe` shows."""
    return [
        entry for entry in sandbox.objects("events", namespace) if entry.get("reportingComponent")
    ]


def test_node_events_show_its_phases_and_pod_events_the_wait_reason(
    sandbox: Sandbox, tmp_path: Path
) -> None:
    site = a_workshop_site(sandbox, tmp_path)
    site.path.write_text(site.path.read_text() + "max_converted_nodes = 1\n")
    sandbox.add_pods(4, "dev", queue=QUEUE, cpu="16", memory="16G", name="big")
    for _ in range(4):
        site.run()
        sandbox.tick(60)
    (lent,) = site.lent()
    uid = (sandbox.get("nodes", lent) or {})["metadata"]["uid"]
    rows = [event for event in events(sandbox) if event["involvedObject"]["name"] == lent]
    assert [item["reason"] for item in rows] == ["NodeLent", "NodeServing"]
    for entry in rows:
        assert entry["involvedObject"] == {
            "apiVersion": "v1", "kind": "Node", "name": lent, "uid": uid,
        }  # fmt: skip
        assert entry["reportingComponent"] == "dynamic-node-manager/dnm"
        assert entry["reportingInstance"] == "prod"
    (pod, *other) = events(sandbox, "dev")
    owner = sandbox.get("pods", pod["involvedObject"]["name"], "dev") or {}
    assert pod["involvedObject"]["uid"] == owner["metadata"]["uid"]
    assert pod["involvedObject"]["namespace"] == "dev" and "a cap is reached" in pod["message"]
    assert len(other) <= 2


def test_missing_event_permission_causes_neither_events_nor_notes(
    sandbox: Sandbox, tmp_path: Path
) -> None:
    site = a_workshop_site(sandbox, tmp_path)
    refused = sandbox.fault("status", path="/events", code=403)
    for _ in range(3):
        before, result = refused.struck, site.run()
        assert result.outcome is not None and not result.outcome.notes
        assert refused.struck <= before + 1
        sandbox.tick(1)
    site.run_until_rest()
    assert refused.struck
    assert site.lent() and not events(sandbox) and not events(sandbox, "dev")


def test_rejected_event_is_a_note_and_no_error(sandbox: Sandbox, tmp_path: Path) -> None:
    site = a_workshop_site(sandbox, tmp_path)
    sandbox.fault("status", path="/events", code=422)
    notes = []
    for _ in range(3):
        result = site.run()
        assert result.outcome is not None and result.exit_code == 0
        assert not result.outcome.errors
        notes.append(result.outcome.notes)
        sandbox.tick(1)
    (lines,) = [note for note in notes if note]
    assert len(lines) == 1 and lines[0].startswith("4 Events not sent to Kubernetes: ")
    assert "(422 " in lines[0]
    assert len(site.lent()) == 2


def test_unanswered_event_delays_a_run_by_seconds_only(
    sandbox: Sandbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = a_workshop_site(sandbox, tmp_path)
    monkeypatch.setattr("dnm.kube.client._EVENT_TIMEOUT", NOW.resolution * 300_000)
    fault = sandbox.fault("slow", path="/events", seconds=600)
    site.run()
    sandbox.tick(1)
    before = fault.struck
    result = site.run()
    assert fault.struck == before + 1  # after the first unanswered Event dnm sends no other
    assert result.exit_code == 0 and result.outcome is not None and result.outcome.notes


class Slow:
    """A client with a clock, by which each call takes `seconds`; it fails after some calls."""

    def __init__(self, seconds: float = 0, refuses_after: int = 10**9) -> None:
        self.seconds, self.refuses_after, self.taken, self.now = seconds, refuses_after, 0, 0.0

    def clock(self) -> float:
        return self.now

    def create_event(self, event: KubeEvent) -> None:
        self.now += self.seconds
        if self.taken >= self.refuses_after:
            raise KubeError("no answer")
        self.taken += 1


def an_event(number: int) -> KubeEvent:
    return KubeEvent(kind="Node", namespace="", name=f"a{number}", uid="u", is_warning=False,
                     reason="NodeLent", action="Lend", note="", time=NOW)  # fmt: skip


BOUNDS = {
    "all": (Slow(), 3, 3, ""),
    "too many": (Slow(), MOST + 2, MOST, f"2 Events not sent to Kubernetes: a run sends {MOST}"),
    "too slow": (Slow(2), 9, 3, "6 Events not sent to Kubernetes: 5 s were over"),
    "refused": (Slow(refuses_after=1), 3, 1, "2 Events not sent to Kubernetes: no answer"),
}


@pytest.mark.parametrize("name", BOUNDS)
def test_number_and_duration_of_events_are_bounded(name: str) -> None:
    writer, asked, taken, note = BOUNDS[name]
    notes = send_events(writer.create_event, [*map(an_event, range(asked))], writer.clock)
    assert writer.taken == taken and note in "".join(notes) and len(notes) == bool(note)
