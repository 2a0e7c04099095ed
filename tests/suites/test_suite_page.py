"""The page of a suite: charts follow the schema, and what failed has no number."""

import math
from pathlib import Path

import pytest
from suite_rows import ENTRY, MS, claim, judged, row, suite, times, write_run

from uncia.report import page as pages
from uncia.report import vega
from uncia.report.checks import CHECK
from uncia.suites import page
from uncia.suites.claims import Measured
from uncia.suites.results import EntryResults

FIGURES = """\
figures:
  - name: course
    title: The course
    x: {title: "time, s"}
    y: {title: "mean execution, ms"}
    course: {subject: slow}
  - name: numbers
    title: Over a number
    x: {title: requests a second, log: true}
    y: {title: "mean execution, ms", log: true}
    series:
      - {name: ours, x: [1, 20], subjects: [fast, slow], y: "*.execution_mean"}
      - name: relative
        x: [1, 20]
        subjects: [fast, slow]
        y: "*.execution_p50 / fast.execution_p50"
    printed:
      - {name: A cloud, x: 20, y: 12, place: page 1}
"""


@pytest.fixture
def results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of results; charts are checked against the schema of Vega-Lite."""
    monkeypatch.setenv(CHECK, "1")
    return tmp_path / "out"


def made_suite(tmp_path: Path) -> Path:
    entry = ENTRY.replace("figures:\n", FIGURES).replace(
        'section: "1"\n',
        'section: "1"\nscale: [{factor: time by 120, means: half a second a minute}]\n',
    )
    return suite(tmp_path / "mine", {"faster": claim("slow.mean > fast.mean")}, entry)


def test_every_kind_of_figure_is_drawn_with_its_scale(tmp_path: Path, results: Path) -> None:
    instances = [
        {"function": "hello", "instance": f"i{number}", "started": number * 900 * MS, "run": "r"}
        for number in range(3)
    ]
    rows = [row("slow", number, instance=f"i{number % 3}") for number in range(30)]
    write_run(results / "fig1" / "only", rows + times("fast", [5.0] * 20), instances=instances)
    made = page.page(judged(made_suite(tmp_path), results))
    charts = pages.charts(made)
    assert [chart.name for chart in charts] == ["fig1-course", "fig1-numbers", "fig1-speed"]
    assert all("time by 120" in chart.title for chart in charts)
    html = pages.html(made)
    for text in ("printed: A cloud", "fig1.faster", "cannot be checked here", "made-up paper"):
        assert text in html


def test_intervals_that_have_no_end_or_are_none_are_said_to_be_so(
    tmp_path: Path, results: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = {
        "fast.execution_mean": Measured(5.0, (4.0, math.inf)),
        "slow.execution_mean": Measured(9.0, why="4 rows are too few"),
        "fast.execution_p50 / fast.execution_p50": Measured(1.0, (0.5, 2.0)),
        "slow.execution_p50 / fast.execution_p50": Measured(1.5, (1.0, 3.0)),
    }
    rows = times("slow", [9.0] * 20) + times("fast", [5.0] * 20)
    write_run(results / "fig1" / "only", rows)
    judgement = judged(made_suite(tmp_path), results)
    monkeypatch.setattr(EntryResults, "measure", lambda self, text: found[text])
    chart = next(it for it in pages.charts(page.page(judgement)) if it.name == "fig1-numbers")
    _, rules, filled, hollow, _ = chart.spec["layer"]
    drawn = {row["value"]: row for row in rules["data"]["values"]}
    assert set(drawn) == {5.0, 1.0, 1.5}, "none for a value without an interval"
    # The printed value is the largest that is shown.
    assert (drawn[5.0]["high"], drawn[5.0]["interval"]) == (12, "4.000, no upper bound")
    assert drawn[1.5]["interval"] == "1.000 to 3.000"
    assert filled["mark"]["filled"]
    assert not hollow["mark"]["filled"]
    (point,) = hollow["data"]["values"]
    assert (point["value"], point["low"]) == (9.0, None)
    assert point["interval"] == "4 rows are too few"
    assert "interval" in [tip["field"] for tip in hollow["encoding"]["tooltip"]]
    assert max(hollow["encoding"]["y"]["axis"]["values"]) <= 12


def drawn_instances(made: pages.Page) -> list[tuple[float, int]]:
    """The steps of the chart ``fig1-course``."""
    chart = next(it for it in pages.charts(made) if it.name == "fig1-course")
    below = chart.spec["layer"][1]["data"]["values"]
    return [(step["time"], step["value"]) for step in below]


def test_instances_that_ended_are_in_a_course_no_longer(tmp_path: Path, results: Path) -> None:
    rows = [row("slow", number, instance=f"i{number % 3}") for number in range(30)]
    instances = [
        {"function": "hello", "instance": f"i{number}", "started": MS, "run": "r", "ended": ended}
        for number, ended in enumerate((1_001 * MS, 9_000 * MS, None))
    ]
    write_run(results / "fig1" / "only", rows, instances=instances)
    made = page.page(judged(made_suite(tmp_path), results))
    assert drawn_instances(made) == [(0, 0), (0, 3), (1, 2), (2.9, 2)]


def test_the_instances_of_a_course_are_few_points(tmp_path: Path, results: Path) -> None:
    rows = [row("slow", number, instance=f"i{number}") for number in range(1_500)]
    instances = [
        {
            "function": "hello",
            "instance": f"i{number}",
            "started": number * 100 * MS,
            "ended": (number * 100 + 50) * MS,
            "run": "r",
        }
        for number in range(1_500)
    ]
    write_run(results / "fig1" / "only", rows, instances=instances)
    steps = drawn_instances(page.page(judged(made_suite(tmp_path), results)))
    assert 1_000 < len(steps) <= vega.MAX_POINTS
    assert {alive for _, alive in steps} == {0, 1}


ABSENT = """\
figures:
  - name: boxes
    title: Boxes
    x: {title: box}
    y: {title: ms}
    series:
      - {name: ours, x: [process, crun], subjects: [fast, slow], y: "*.execution_mean"}
    absent: {Firecracker: it needs a virtual machine}
"""


def test_what_cannot_be_had_stands_in_the_figure_as_such(
    tmp_path: Path, results: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = suite(
        tmp_path / "mine",
        {"slower": claim("slow.mean > fast.mean")},
        ENTRY.replace("figures:\n", ABSENT),
    )
    experiments = folder / "experiments" / "experiment.yaml"
    text = experiments.read_text()
    text = text.replace("  hello: {source: hello}\n", HELLOS).replace(
        "slow: {function: hello", "slow: {function: boxed"
    )
    experiments.write_text(text)
    monkeypatch.setenv("PATH", str(tmp_path))
    write_run(results / "fig1" / "only", times("fast", [5.0] * 20))
    made = page.page(judged(folder, results))
    chart = next(it for it in pages.charts(made) if it.name == "fig1-boxes")
    (marks,) = [layer for layer in chart.spec["layer"] if layer["mark"]["type"] == "text"]
    absent = {row["x"]: row["why"] for row in marks["data"]["values"]}
    assert set(absent) == {"crun", "Firecracker"}
    assert "apt-get install crun" in absent["crun"]
    assert marks["encoding"]["x"]["sort"] == ["process", "crun", "Firecracker"]
    html = pages.html(made)
    assert "Firecracker: it needs a virtual machine." in html
    assert "Not in the figure (ours, crun): crun is not installed" in html
    assert all(
        finding.verdict == "cannot be checked here" for finding in judged(folder, results).findings
    )


HELLOS = """\
  hello: {source: hello}
  boxed: {source: hello, sandbox: crun}
"""


def test_a_run_that_failed_is_drawn_nowhere(tmp_path: Path, results: Path) -> None:
    failed = ["slow: 9 of 40 timeout (declared: none)"]
    write_run(
        results / "fig1" / "only", times("slow", [77.7] * 20), status="failed", failures=failed
    )
    made = page.page(judged(made_suite(tmp_path), results))
    assert pages.charts(made) == []
    assert not made.good
    html = pages.html(made)
    assert failed[0] in html
    assert "77.7" not in html


def test_what_was_not_run_says_so(tmp_path: Path, results: Path) -> None:
    made = page.page(judged(made_suite(tmp_path), results))
    assert made.good
    assert "Not run." in pages.html(made)
