"""`sick_when` over HTTP with the real client: from the sign on the Node to the converter's call."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from dnm.cli.check_batch import check_sick
from dnm.lab.sandbox.cluster import Sandbox
from dnm.model.batch import BatchList
from dnm.model.lent import Leaving
from tests.site import QUEUE, WORKSHOP_QUEUES, Site


def test_a_sick_node_is_emptied_and_not_returned_by_a_converter_that_would_resume_it(
    sandbox: Sandbox, tmp_path: Path
) -> None:
    sandbox.set_queues(WORKSHOP_QUEUES)
    sandbox.add_node("k1", cpu="4", memory="16G")
    sandbox.add_machines(1)
    site = Site(sandbox, tmp_path / "site", sick_when="condition GpuOk=False")
    sandbox.add_pods(30, "dev", queue=QUEUE, cpu="4", memory="16G")
    site.run_until_rest()
    assert site.registry.nodes["a001"].leaves is None

    def fail(node: Any) -> None:
        node["status"]["conditions"].append({"type": "GpuOk", "status": "False"})

    sandbox.edit("nodes", "a001", fail)
    said = ""
    for _ in range(8):
        result = site.run()
        said += "; ".join(result.outcome.errors if result.outcome else ())
        sandbox.tick(60)
    entry = site.registry.nodes["a001"]
    assert (entry.sick, entry.leaves) == ("GpuOk:False", Leaving.SICK)
    assert not [one for one in sandbox.objects("pods") if one["spec"].get("nodeName") == "a001"]
    assert "is sick (GpuOk:False), and its converter can't leave it drained" in said
    assert sandbox.get("nodes", "a001") is not None and not sandbox.violations
    (found,) = check_sick(site.config, BatchList(nodes={}))
    assert found.text.startswith("the converter does not name --leave-drained")
    assert not list(check_sick(site.config, BatchList(nodes={}, leaves_drained=True)))
