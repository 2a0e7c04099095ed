"""Entries that read a trace: judged of its own files, shown only of synthetic ones."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from uncia.cli import build
from uncia.suites.claims import DIFFERS, REPRODUCED, UNCHECKED

HEADER = (
    "HashOwner,HashApp,HashFunction,Average,Count,Minimum,Maximum,percentile_Average_0,"
    "percentile_Average_1,percentile_Average_25,percentile_Average_50,percentile_Average_75,"
    "percentile_Average_99,percentile_Average_100"
)


def write_day(folder: Path, day: int, functions: list[tuple[int, int, int]]) -> None:
    """The durations of a day: median and 99th percentile in ms, and invocations of each."""
    lines = [
        f"o,a,f{number},{median},{count},{median},{tail},{median},{median},{median},{median},"
        f"{median},{tail},{tail}"
        for number, (median, tail, count) in enumerate(functions)
    ]
    path = folder / f"function_durations_percentiles.anon.d{day:02d}.csv"
    path.write_text("\n".join([HEADER, *lines, ""]))


def share_of(total: int, percent: int, median: int) -> list[tuple[int, int, int]]:
    """Functions of which so many percent have a tail of 9 medians, the others of 11."""
    few = total * percent // 100
    return [(median, median * (9 if number < few else 11), 100) for number in range(total)]


def run(*words: object) -> Any:
    return CliRunner().invoke(build(), ["suite", "run", "stellar", *map(str, words)])


def findings(out: Path) -> dict[str, dict[str, Any]]:
    return {
        it["id"].removeprefix("fig10."): it
        for it in json.loads((out / "claims.json").read_text())
        if it["entry"] == "fig10"
    }


def test_a_trace_is_judged_and_doctored_ones_flip(tmp_path: Path) -> None:
    trace, out = tmp_path / "azure", tmp_path / "out"
    trace.mkdir()
    # As printed: 60 % of those below 1 s, 90 % of those above 10 s, and 70 % of all.
    functions = [
        *share_of(3_000, 60, 100),
        *share_of(1_000, 73, 5_000),
        *share_of(1_500, 90, 20_000),
    ]
    write_day(trace, 1, functions)
    # A day with a hundredth of the invocations counts a hundredth.
    write_day(trace, 2, [(median, tail + median, 1) for median, tail, _ in functions])
    words = ("--only", "fig10", "--trace", trace, "--out", out)
    assert run(*words).exit_code == 0
    claims = findings(out)
    assert {it["verdict"] for it in claims.values()} == {REPRODUCED}, claims
    assert claims["functions-below-10"]["ours"] == pytest.approx(100 * 3_880 / 5_500)
    assert claims["short-vary-more"]["ours"] == pytest.approx(30)
    assert not list((out / "fig10" / "only").glob("uncia-trace-*"))

    # Another trace in another folder is read anew.
    other = tmp_path / "other"
    other.mkdir()
    write_day(other, 1, [*share_of(3_000, 40, 100), *share_of(1_500, 50, 20_000)])
    again = ("--only", "fig10", "--resume", "--trace", other, "--out", out)
    assert run(*again).exit_code == 0
    assert findings(out)["functions-below-10"]["verdict"] == DIFFERS
    assert findings(out)["short-vary-more"]["verdict"] == DIFFERS


def test_synthetic_functions_are_shown_and_not_judged(tmp_path: Path) -> None:
    assert run("--only", "fig10", "--quick", "--out", tmp_path / "out").exit_code == 0
    for finding in findings(tmp_path / "out").values():
        assert finding["verdict"] == UNCHECKED
        assert finding["ours"] is not None
        assert "of a synthetic trace" in finding["why"]
    page = (tmp_path / "out" / "report.html").read_text()
    assert "of a synthetic trace" in page


def test_what_is_no_trace_platform_or_profile_is_refused(tmp_path: Path) -> None:
    out = ("--only", "fig10", "--out", tmp_path / "out")
    assert "there is no such folder" in str(run("--trace", tmp_path / "none", *out).exception)
    assert "moon" in str(run("--platform", "moon", *out).exception)
    assert "moon" in str(run("--like", "moon", *out).exception)
    (tmp_path / "empty").mkdir()
    result = run("--trace", tmp_path / "empty", *out)
    assert result.exit_code == 1
    assert str(tmp_path / "empty") in findings(tmp_path / "out")["functions-below-10"]["why"]
