"""The platform killed at random moments, on one state folder, under load."""

from pathlib import Path

import pytest

from .driver import soak

SHOWN = 10
# Generous: on a quiet machine it is well below one second.
SERVING_AGAIN_S = 10.0


@pytest.mark.timeout(3600)
def test_kills_lose_nothing(engine_binary: Path, state: Path, seed: int, long: bool) -> None:
    with soak(engine_binary, state, seed) as run:
        wrong = run.run(100 if long else 10)
    assert not wrong, f"seed {seed}: {len(wrong)}: " + "\n".join(wrong[:SHOWN])
    assert not long or max(run.start_s) < SERVING_AGAIN_S


@pytest.mark.timeout(3600)
def test_torn_journals_lose_only_what_was_torn(
    engine_binary: Path, state: Path, seed: int, long: bool
) -> None:
    with soak(engine_binary, state, seed, tears=True) as run:
        wrong = run.run(40 if long else 5)
    assert not wrong, f"seed {seed}: {len(wrong)}: " + "\n".join(wrong[:SHOWN])
