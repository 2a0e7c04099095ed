"""Modes of loads: over-invoked, under-invoked, balanced."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from uncia.stats import modes

SECONDS, RATE = 12, 50
ROWS = SECONDS * RATE


def load(
    latency_s: Any = 0.01, starts: Any = None, outcome: str = "ok", *, open_loop: bool = True
) -> modes.Load | None:
    scheduled = np.arange(ROWS, dtype=np.int64) * (10**9 // RATE)
    latency = np.broadcast_to(np.asarray(latency_s), ROWS)
    return modes.of_rows(
        pa.table(
            {
                "outcome": ["ok"] * (ROWS - 1) + [outcome],
                "open_loop": [open_loop] * ROWS,
                "parent": pa.nulls(ROWS, pa.string()),
                "start": pa.array(starts or ["warm"] * ROWS, pa.string()),
                "scheduled": scheduled,
                "received": scheduled + (latency * 1e9).astype(np.int64),
            }
        )
    )


def test_latency_that_grows_is_too_much() -> None:
    mode = load(np.arange(ROWS) / RATE * 0.1)
    assert mode is not None
    assert (mode.mode, mode.verdict) == ("over-invoked", "not")
    assert mode.slope is not None
    assert mode.slope.value == pytest.approx(0.1, rel=1e-3)
    assert mode.data()["slope_low"] == pytest.approx(0.1, rel=1e-3)


def test_what_the_platform_fails_is_too_much_and_what_the_function_fails_is_not() -> None:
    for outcome, mode in (("throttled", "over-invoked"), ("function_error", "balanced")):
        judged = load(outcome=outcome)
        assert judged is not None
        assert judged.mode == mode


@pytest.mark.parametrize(
    ("share", "mode"), [(0.0, "balanced"), (0.04, "balanced"), (0.08, "under-invoked")]
)
@pytest.mark.parametrize("start", ["cold", "thawed", "restored"])
def test_instances_that_do_not_run_are_too_little(share: float, mode: str, start: str) -> None:
    every = ROWS + 1 if share == 0 else round(1 / share)
    # The first starts are those of every load.
    starts = [start if i < 5 or i % every == every - 1 else "warm" for i in range(ROWS)]
    judged = load(starts=starts)
    assert judged is not None
    assert judged.mode == mode


@pytest.mark.parametrize("open_loop", [True, False])
def test_first_starts_are_of_every_load(*, open_loop: bool) -> None:
    scheduled = np.arange(ROWS, dtype=np.int64) * (10**9 // RATE)
    never = pa.nulls(ROWS, pa.int64())
    rows = pa.table(
        {
            "outcome": ["ok"] * ROWS,
            "open_loop": [open_loop] * ROWS,
            "start": pa.array(["cold"] * 60 + ["warm"] * (ROWS - 61) + ["thawed"]),
            "scheduled": scheduled if open_loop else never,
            "sent": scheduled,
            "received": scheduled + 10**7,
        }
    )
    met, known = modes.waking(rows.take(np.arange(ROWS)[::-1]))
    # The last of the first sixty ends before the request that follows is due.
    assert (met, known) == (1, ROWS - 60)
    assert modes.waking(rows.slice(0, 0)) == (0, 0)
    judged = modes.of_rows(rows)
    assert judged is None or judged.start_share == met / known
    assert (judged is None) != open_loop


def test_an_attempt_that_was_preempted_is_no_request() -> None:
    scheduled = np.arange(ROWS, dtype=np.int64) * (10**9 // RATE)
    received = pa.array(scheduled + 10**7)
    rows = pa.table(
        {
            "outcome": ["ok"] * ROWS,
            "open_loop": [True] * ROWS,
            "start": ["warm"] * ROWS,
            "scheduled": scheduled,
            "received": received,
        }
    )
    attempt = rows.slice(20, 1).set_column(0, "outcome", pa.array(["preempted"]))
    attempt = attempt.set_column(4, "received", pa.nulls(1, pa.int64()))
    mode = modes.of_rows(pa.concat_tables([rows, attempt]))
    assert mode == modes.of_rows(rows)
    assert mode is not None
    assert mode.mode == "balanced"
    assert mode.rate == pytest.approx(RATE)


def test_what_is_not_known_is_no_mode() -> None:
    assert load(open_loop=False) is None
    judged = load(starts=[None] * ROWS)
    assert judged is not None
    assert (judged.mode, judged.verdict, judged.start_share) == (None, "sustained", None)
