"""The chapter on bandwidth control: it says what the models say, as a page and as Markdown."""

import json
import re
from fractions import Fraction
from itertools import pairwise
from pathlib import Path

import pytest
import vl_convert
from typer.testing import CliRunner

from uncia.bandwidth.simulate import Probe, Setting, simulate
from uncia.cli import build
from uncia.errors import UnciaError
from uncia.report.cpu import explain, explain_bills, explain_ticks
from uncia.report.page import Chart
from uncia.report.vega import MAX_POINTS

MS = 1_000_000
DOCS = Path(__file__).parents[2] / "docs"


def drawn() -> list[Chart]:
    return [block for part in explain.parts() for block in part.blocks if isinstance(block, Chart)]


def data(spec: object) -> list[list[dict[str, object]]]:
    """Rows of every mark."""
    result = []
    if isinstance(spec, dict):
        for key, value in spec.items():
            if key == "values" and isinstance(value, list) and value and isinstance(value[0], dict):
                result.append(value)
            result += data(value)
    elif isinstance(spec, list):
        for value in spec:
            result += data(value)
    return result


def test_the_published_example_is_what_the_simulator_gives():
    # 1.447 ms in 20 ms at 250 Hz: runs of 4 ms, throttles of 36 and 56 ms (cost paper, 4.2).
    trace = explain_ticks.aligned([(1_447_000, 250, 0.0)], 1_000 * MS)[0]
    assert trace.runs[0] == (0, 4 * MS)
    assert [round((b - a) / MS) for a, b in trace.runs[1:-1]] == [4] * (len(trace.runs) - 2)
    lengths = [(b - a) // MS for a, b in trace.throttles]
    assert lengths[:2] == [36, 56]
    assert set(lengths) == {36, 56}


@pytest.mark.parametrize("quota", [1_447_000, 3 * MS, 5 * MS, 8 * MS])
@pytest.mark.parametrize("hz", [100, 250, 1000])
@pytest.mark.parametrize("part", [0.0, 0.6])
def test_the_balance_is_spent_when_a_throttle_begins_and_there_when_it_ends(quota, hz, part):
    trace = explain_ticks.aligned([(quota, hz, part)], 500 * MS)[0]
    left: dict[int, int] = {}
    for at, value in explain_ticks.balanced(trace, quota):
        left[at] = value  # the last one of a time: after a refill
    for start, end in trace.throttles[:-1]:
        assert left[start] <= 0, "runtime was left"
        assert end % (20 * MS) == 0, "a throttle ends with a refill"
        assert 0 < left[end] <= quota
    # What the words of the chapter say: nothing but the tick makes a run longer than its runtime.
    for start, end in trace.runs[:-1]:
        assert end - start <= quota + 1_000_000_000 // hz


def test_scheduler_and_way_of_throttling_make_no_difference_to_a_lone_task():
    result = [
        simulate(
            [
                Setting(
                    period_ns=20 * MS,
                    quota_ns=1_447_000,
                    scheduler=scheduler,
                    throttling=throttling,
                    timer={"offset": 700_000},
                    work=Probe(duration_ns=1_000 * MS),
                )
            ],
            1,
        ).spans
        for scheduler in ("cfs", "eevdf")
        for throttling in ("group", "task")
    ]
    assert result[0].num_rows > 10
    assert all(spans.equals(result[0]) for spans in result[1:])


def test_every_chart_is_small_and_has_words():
    charts = drawn()
    assert len(charts) >= 10
    assert len({chart.name for chart in charts}) == len(charts)
    for chart in charts:
        assert chart.label
        assert chart.title
        rows = data(chart.spec)
        assert rows
        assert max(map(len, rows)) <= MAX_POINTS, chart.name


def test_every_setting_that_can_be_chosen_has_data():
    for chart in drawn():
        named = {}
        for param in re.findall(r"datum\.(\w+) == (\w+)", json.dumps(chart.spec)):
            named[param[1]] = param[0]
        for param in chart.spec.get("params", []):
            if not isinstance(param.get("bind"), dict) or "options" not in param["bind"]:
                continue
            options = param["bind"]["options"]
            field = named[param["name"]]
            for rows in data(chart.spec):
                if field in rows[0]:
                    assert {row[field] for row in rows} == set(options), (chart.name, field)


def test_longer_runs_are_due_to_the_tick():
    spec = next(chart for chart in drawn() if chart.name == "overrun").spec
    rows = [row for mark in data(spec) for row in mark]
    by_name: dict[str, list[tuple[float, float]]] = {}
    for row in rows:
        by_name.setdefault(str(row["name"]), []).append((row["quota"], row["value"]))
    ticks = {"100": 10, "250": 4, "1000": 1}
    for name, points in by_name.items():
        tick = ticks.get(name.split()[0], 0)
        assert all(quota <= value <= quota + tick for quota, value in points), name


def test_the_page_stands_for_itself(tmp_path: Path):
    out = tmp_path / "cpu.html"
    done = CliRunner().invoke(build(), ["cpu", "explain", "--html", str(out)])
    assert done.exit_code == 0, done.output
    page = out.read_text(encoding="utf-8")
    assert page.count("data-chart=") == len(drawn())
    assert "<code>account_cfs_rq_runtime</code>" in page
    assert not re.search("[\ue000-\uf8ff]", page.split('<script id="vega-runtime">')[0])
    shown = re.sub(r"<(script|style)\b[^>]*>.*?</\1>", "", page, flags=re.DOTALL)
    assert "{" not in shown
    assert not re.search(r"\bsrc=|<link", shown)
    assert [path.name for path in tmp_path.iterdir()] == ["cpu.html"]


def test_the_markdown_chapter_is_up_to_date_and_has_its_pictures():
    text = (DOCS / "explanation" / "cpu-bandwidth-control.md").read_text(encoding="utf-8")
    assert text == explain.markdown("../images"), (
        "cd docs; uncia cpu explain --markdown explanation/cpu-bandwidth-control.md --images images"
    )
    names = re.findall(r"\(\.\./images/([\w.-]+)\)", text)
    assert names == [explain.picture(chart) for chart in drawn()]
    for name in names:
        content = (DOCS / "images" / name).read_bytes()
        assert content.startswith(b"<svg")
        assert len(content) < 60_000


def test_markdown_and_pictures_go_where_they_are_told(tmp_path: Path):
    path = tmp_path / "new" / "chapter.md"
    done = CliRunner().invoke(build(), ["cpu", "explain", "--markdown", str(path)])
    assert done.exit_code == 0, done.output
    pictures = sorted(item.name for item in (tmp_path / "new" / "images").iterdir())
    assert pictures == sorted(explain.picture(chart) for chart in drawn())
    assert "(images/cpu-ticks.svg)" in path.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "no file to write was named"),
        (["--html", "page.txt"], "not named *.html"),
        (["--html", "x.html", "--images", "y"], "--images is for --markdown"),
        (["--html", "/dev/null/x.html"], "cannot write"),
        (["--markdown", "/dev/null/x.md"], "cannot write"),
    ],
)
def test_bad_options_are_told_in_words(arguments: list[str], words: str):
    with pytest.raises(UnciaError) as caught:
        CliRunner().invoke(build(), ["cpu", "explain", *arguments], catch_exceptions=False)
    assert words in str(caught.value)


def test_intervals_of_the_example_are_whole_periods():
    trace = explain_ticks.aligned([(3 * MS, 250, 0.6)], 500 * MS)[0]
    ends = [end for _, end in trace.throttles[:-1]]
    assert all((after - before) % (20 * MS) == 0 for before, after in pairwise(ends))


def test_bursts_are_priced_as_by_hand():
    # 0.25 vCPU on AWS Lambda: 5 ms in 20 ms, 442 MB. 2 s are 400 quotas: 399 periods and 5 ms.
    result = explain_bills.fees_that_pay("aws-lambda-x86", "aws", [250_000, 1_000_000])
    assert result[0] is not None
    assert result[0].count == 400
    assert result[0].saved == 1 - Fraction(400 * 5, 399 * 20 + 5)
    per_ms = Fraction("0.0000166667") * 442 / 1024 / 1000
    assert result[0].fee == per_ms * (399 * 20 + 5 - 400 * 5) / 399
    assert result[1] is not None
    assert result[1].fee == 0, "a whole vCPU is never throttled"


def test_a_request_is_priced_as_by_hand():
    # 17.263 ms at 1769 MB: 18 ms are billed, and the fee.
    cost = explain_bills.memory_bill("aws-lambda-x86", 1769, 17_263_000)
    assert cost == Fraction("0.0000166667") * 1769 / 1024 * 18 / 1000 + Fraction("0.0000002")
    assert explain_bills.billed_ns("gcp-run-request", 50 * MS) == 100 * MS


def test_choosing_changes_the_picture():
    chosen = 0
    for chart in drawn():
        before = vl_convert.vegalite_to_svg({**chart.spec, "width": 400})
        for index, param in enumerate(chart.spec.get("params", [])):
            if "value" not in param:
                continue
            bind = param["bind"]
            other = bind["options"][-1] if "options" in bind else bind["max"]
            if other == param["value"]:
                other = bind["options"][0]
            params = list(chart.spec["params"])
            params[index] = {**param, "value": other}
            after = vl_convert.vegalite_to_svg({**chart.spec, "width": 400, "params": params})
            assert after != before, (chart.name, param["name"])
            chosen += 1
    assert chosen == 8
