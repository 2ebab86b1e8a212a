"""A short storm, so that the long one (`make storm`) does not rot."""

from __future__ import annotations

from tests.proof.harness import note_figures
from tests.proof.storm.__main__ import OFF, Storm

SEED, RUNS = 4, 30


def test_a_short_storm_breaks_nothing() -> None:
    storm = Storm(SEED, OFF)
    storm.play(RUNS, at_once=2, episode_runs=RUNS // 2)
    assert not storm.broken, "\n\n".join(storm.broken)
    assert storm.counts["runs"] > RUNS
    blows = sum(count for name, count in storm.counts.items() if name.startswith("blow "))
    note_figures(f"storm, seed {SEED}", runs=storm.counts["runs"], blows=blows)
