"""Histories that are made up: a suite and folders of times, as a repeat leaves them."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import suite_rows
from suite_rows import MS, row

from uncia.suites import catalogue, perform
from uncia.suites.history import folders
from uncia.suites.history.folders import Repeat

CONDITIONS = ("p50>10%", "p99>20%", "failed>1%")


def rows(latency_ms: float, count: int = 320) -> list[dict[str, Any]]:
    """Requests of one experiment with about this latency; a few are slower."""
    return [
        row(
            "slow",
            number,
            received=number * 100 * MS
            + round((latency_ms + number % 7 / 10 + 5 * (number % 50 == 0)) * MS),
        )
        for number in range(count)
    ]


def make(tmp_path: Path) -> tuple[Path, Path]:
    """A suite, and an empty history of it."""
    mine = suite_rows.suite(tmp_path / "mine", {"slow": suite_rows.claim("slow.p50 > 1ms")})
    history = tmp_path / "history"
    folders.open_history(history, catalogue.find(str(mine)).source)
    return mine, history


def add(
    history: Path,
    content: Sequence[dict[str, Any]],
    *,
    conditions: Sequence[str] = CONDITIONS,
    **run: Any,
) -> Path:
    """Add a time whose run has these rows."""
    now = folders.utc_now()
    suite = folders.suite_of(history)
    begun = folders.written(now)
    repeat = Repeat(suite, begun, False, ["fig1/only"], list(conditions), begun)
    folder = folders.begin(history, repeat, now)
    perform.State(folder, suite, files={"fig1/only": "digest"}).write()
    suite_rows.write_run(folder / "fig1" / "only", content, **run)
    return folder
