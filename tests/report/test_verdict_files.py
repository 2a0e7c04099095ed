"""What a gate writes for others to read, and what it makes of the machine's noise."""

import dataclasses
import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import synthetic_run
from hypothesis import given
from hypothesis import strategies as st

from uncia import record
from uncia.errors import UnciaError
from uncia.report import compare, compare_markdown, data, junit, run_sets
from uncia.stats import gates
from uncia.stats.verdicts import Finding, Verdict

GATE = gates.parse("p50>10%")


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four runs a side, in turn; the second side is slower by half."""
    folder = tmp_path_factory.mktemp("sets")
    for index in range(8):
        side, slow = (("base", 1.0), ("change", 1.5))[index % 2]
        rows = synthetic_run.experiment("warm", np.random.default_rng(index), slow=slow)
        run = synthetic_run.write(folder / side / f"{index // 2}", [rows], with_bill=False)
        meta = (run / "run.yaml").read_text()
        epoch = synthetic_run.EPOCH
        text = meta.replace(f"epoch_unix_ns: {epoch}", f"epoch_unix_ns: {epoch + index}")
        (run / "run.yaml").write_text(text)
    return folder


def finding(verdict: Verdict, reason: str, *, missing: bool = False) -> Finding:
    return Finding(GATE, "change", "warm.p50", verdict, reason, missing=missing)


def test_sets_of_runs_are_compared(folders: Path) -> None:
    sides = [run_sets.find(folders / name) for name in ("base", "change")]
    assert [len(side.folders) for side in sides] == [4, 4]
    result = compare.build(sides, [])
    (candidate,) = result.candidates
    assert candidate.paired
    change = candidate.find("warm", "p50")
    assert change is not None
    assert change.repeats == 4
    # A part of each request is not slower.
    assert change.change == pytest.approx(1.19, rel=0.03)
    assert (result.tariffs, candidate.find("", "cost", "slim")) == ([], None)
    assert candidate.measured["warm"].latency.size == 4 * 400
    (verdict,) = compare.verdicts(result, [GATE])
    assert verdict.verdict == "violated"
    text = compare_markdown.markdown(result, [verdict])
    assert "### 1 condition: 1 violated." in text
    assert "| `p50>10%` | warm.p50 | ❌ violated | " in text
    assert "Runs: base (4 runs): 4; change (4 runs): 4." in text


def test_runs_in_the_order_of_sides_are_not_pairs(folders: Path) -> None:
    runs = [data.load(folder) for folder in sorted(folders.glob("*/*"))]
    assert run_sets.pairs(runs[:4], runs[4:]) == ([0, 1, 2, 3], [0, 1, 2, 3])
    assert run_sets.pairs(runs[3::-1], runs[4:]) == ([3, 2, 1, 0], [0, 1, 2, 3])
    assert run_sets.pairs(runs[:3], runs[4:]) is None
    assert run_sets.pairs(runs[:2] + runs[4:6], runs[2:4] + runs[6:]) is None


def test_a_folder_whose_runs_all_ended_early_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "set" / "1").mkdir(parents=True)
    (tmp_path / "set" / "1" / "run.yaml").write_text("run: a\nstatus: crashed\n")
    with pytest.raises(UnciaError, match="1: left out, as it is crashed"):
        run_sets.find(tmp_path / "set")


@pytest.mark.parametrize(
    ("steal", "background", "worse", "words"),
    [
        ((0, 0), (2, 5), None, ""),
        ((0, 0), (30, 35), None, "other processes used 30.0 % (baseline) and 35.0 % (candidate)"),
        ((0, 0), (5, 35), "candidate", "other processes used"),
        ((0, 0), (35, 5), "baseline", "other processes used"),
        ((0, 4), (0, 0), "candidate", "the host kept 0.0 % (baseline) and 4.0 % (candidate)"),
        ((3.5, 4), (35, 5), "baseline", "(steal) and other processes used"),
    ],
)
def test_noise_is_worse_where_more_cpu_time_was_lost(
    folders: Path,
    steal: tuple[float, float],
    background: tuple[float, float],
    worse: str | None,
    words: str,
) -> None:
    sides = []
    for side in (0, 1):
        rows = [
            {"run": "r", "time": t, "counter": counter, "value": value}
            for counter, values in (
                ("cpu.steal_percent", steal),
                ("cpu.background_percent", background),
            )
            # The mean over a run counts, not a moment.
            for t, value in enumerate((values[side] * 0.5, values[side] * 1.5))
        ]
        run = data.load(folders / "base" / "0")
        machine = record.conform(pa.Table.from_pylist(rows), "machine", 0)
        sides.append([dataclasses.replace(run, machine=machine)])
    noise = run_sets.noise(*sides)
    assert noise.worse == worse
    assert words in noise.sentence
    assert bool(words) == bool(noise.sentence)


def test_other_hosts_and_monitors_are_not_the_noise_of_this_one(folders: Path) -> None:
    run = data.load(folders / "base" / "0")
    samples = [
        {
            "run": "r",
            "time": second * 10**9,
            "counter": "cpu.background_percent",
            "value": value,
            "monitor": monitor,
            "host": host,
        }
        for second in range(10)
        for value, monitor, host in (
            (0.5, "noise", None),
            (80.0, "machine", "node1"),
            (60.0, "machine", None),
        )
    ]
    machine = record.conform(pa.Table.from_pylist(samples), "machine", synthetic_run.EPOCH)
    watched = dataclasses.replace(run, machine=machine)
    assert run_sets.taken([watched]) == {"cpu.background_percent": 0.5}
    assert run_sets.disturbance([watched]) == ""


def test_noise_that_was_not_recorded_is_not_a_verdict(folders: Path) -> None:
    run = data.load(folders / "base" / "0")
    blind = dataclasses.replace(run, machine=record.empty("machine"))
    assert run_sets.noise([blind], [blind]).worse is None


def test_junit_counts_what_it_holds() -> None:
    findings = [
        finding("holds", "fine"),
        finding("violated", "1 < 2 & so on"),
        finding("not judged", "too few"),
        finding("not judged", "nothing there", missing=True),
    ]
    for allowed, counts in ((False, ("1", "2", "0")), (True, ("1", "1", "1"))):
        root = ElementTree.fromstring(junit.junit(findings, allow_not_judged=allowed).encode())
        (suite,) = root
        assert suite.get("tests") == "4"
        assert tuple(suite.get(key) for key in ("failures", "errors", "skipped")) == counts
        assert len(list(suite.iter("failure"))) == int(counts[0])
        assert len(list(suite.iter("error"))) == int(counts[1])
        (failure,) = suite.iter("failure")
        assert failure.get("message") == "violated: 1 < 2 & so on"


def test_the_summary_tells_verdicts_from_conditions() -> None:
    result = [finding("not judged", "too few")]
    assert compare.summarize(result) == "1 condition: 1 not judged."
    assert compare.summarize(result * 4) == "1 condition, 4 verdicts: 4 not judged."


@given(st.text())
def test_junit_is_xml_whatever_a_run_says(text: str) -> None:
    root = ElementTree.fromstring(junit.junit([finding("violated", text)]).encode())
    assert root.find("testsuite/testcase/failure") is not None


@given(st.text())
def test_nothing_from_a_run_becomes_markdown(text: str) -> None:
    empty = compare.Comparison(compare.Side("base", [], {}), [], [], [], [])
    written = compare_markdown.markdown(empty, [finding("violated", text)])
    row = next(line for line in written.splitlines() if line.startswith("| `p50"))
    assert len(re.findall(r"(?<!\\)\|", row)) == 5
    assert "<" not in row


def test_exit_codes() -> None:
    holds, violated = finding("holds", ""), finding("violated", "")
    unsure, missing = finding("not judged", ""), finding("not judged", "", missing=True)
    for findings, code, lenient in (
        ([], 0, 0),
        ([holds], 0, 0),
        ([unsure, violated, holds], 1, 1),
        ([holds, unsure], 3, 0),
        ([holds, unsure, missing], 3, 3),
    ):
        assert compare.exit_code(findings) == code
        assert compare.exit_code(findings, allow_not_judged=True) == lenient
