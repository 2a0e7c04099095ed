"""Reports of rows without a client's times, or with times that cannot be."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from record_rows import write_invocations

from uncia.report import data, run
from uncia.report import page as pages

MS = 1_000_000


def text(path: Path, rows: Sequence[dict[str, Any]]) -> tuple[str, str]:
    """The verdict on rows, and the page."""
    write_invocations(path, [{"function": "f", "outcome": "ok", **row} for row in rows])
    page = run.page(data.load(path))
    return page.verdict, pages.html(page)


def test_a_trace_was_not_left_unsent(tmp_path: Path) -> None:
    rows = [{"started": i * MS, "ended": (i + 1) * MS, "execution": MS} for i in range(3)]
    verdict, page = text(tmp_path / "trace.parquet", rows)
    nobody = "rows have no times of a client, as those of a trace."
    assert verdict == f"All 3 requests ended as expected. The {nobody}"
    assert page.count(f"Its {nobody}") == 3  # distributions, where time goes, generator lag
    for false in ("never sent", "No request succeeded", "No request was sent", "was answered,"):
        assert false not in page


def test_part_of_the_rows_may_be_of_a_client(tmp_path: Path) -> None:
    sent = {"scheduled": 0, "sent": 0, "received": MS}
    verdict, _ = text(tmp_path / "rows.parquet", [sent, sent, {"started": 0}])
    assert verdict.endswith("The rows of 1 of them have no times of a client, as those of a trace.")


def test_times_that_cannot_be_are_named(tmp_path: Path) -> None:
    rows = [{"scheduled": i * MS, "sent": i * MS, "received": 0} for i in range(3)]
    verdict, page = text(tmp_path / "rows.parquet", rows)
    assert verdict == "2 of 3 requests have absurd times."
    assert "2 of 3 requests were answered before they were due" in page
