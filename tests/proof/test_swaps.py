"""The time between check and use: another user exchanges the converter, or a folder above it, as
fast as he can, while real runs want to call it. His program is never run."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.proof import story
from tests.proof.harness import World, note_figures

RUNS = 15
SOMEBODY = 65534


@contextmanager
def swapping(one: Path, other: Path, between: Path) -> Iterator[None]:
    """Exchanges two names again and again, with a moment in which each is in place."""
    stop = threading.Event()

    def swap() -> None:
        while not stop.is_set():
            for source, target in ((one, between), (other, one), (one, other), (between, one)):
                os.rename(source, target)
            stop.wait(0.0005)

    thread = threading.Thread(target=swap)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


@pytest.mark.skipif(os.geteuid() != 0, reason="files of another user need root")
@pytest.mark.parametrize("what", ["converter", "folder"])
def test_a_swap_between_look_and_start_runs_nobody_s_program(world: World, what: str) -> None:
    """What he can exchange lies in a folder that he may write, and that is seen each time; once the
    way is ours again, the story goes on to its right end."""
    story.build(world)
    shared = world.directory / "shared"
    tools = shared / "tools"
    his_folder, was_run = shared / "his", world.directory / "his-was-run"
    for folder in (tools, his_folder):
        folder.mkdir(parents=True)
    ours = tools / "node-convert"
    ours.write_text(f'#!/bin/sh\nexec {world.sandbox.node_convert_path} "$@"\n')
    his = (his_folder if what == "folder" else tools) / (
        "node-convert" if what == "folder" else "h"
    )
    his.write_text(f"#!/bin/sh\ntouch {was_run}\n")
    ours.chmod(0o755)
    his.chmod(0o755)
    os.chown(his, SOMEBODY, SOMEBODY)
    open_folder = shared if what == "folder" else tools
    text = world.site.path.read_text()
    line = next(line for line in text.splitlines() if line.startswith("node_convert_path"))
    world.site.write(world.site.path, text.replace(line, f"node_convert_path = {ours}"))
    open_folder.chmod(0o777)
    pair = (tools, his_folder) if what == "folder" else (ours, his)
    said: list[str] = []
    with swapping(*pair, open_folder / "between"):
        for _ in range(RUNS):
            ended = world.run()
            world.settle()
            assert ended.code in (1, 2), ended
            said.append(ended.err + ended.out)
            assert not was_run.exists()
            story.check_always(world)
            world.tick(story.MINUTE)
    assert "node-convert" in said[0]  # what lasts is said once
    assert story.calls(world, "--set") == 0
    open_folder.chmod(0o755)
    assert not was_run.exists()
    story.play_on(world, longest=60 + story.LONGEST)
    note_figures(f"swaps of the {what}", runs=world.runs)
