"""Many runs grouped by a key of their descriptions: rates, means, charts, and what is refused."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from record_rows import table
from typer.testing import CliRunner

from uncia import record
from uncia.cli import build
from uncia.errors import UnciaError
from uncia.report import by_key, data
from uncia.report.by_key import capacity, latency_over_time, misses, parts, throughput
from uncia.report.table import Table
from uncia.runs.capacity import FILE, KnownCapacity

MS = 1_000_000


def run(folder: Path, memory: str, took: int, *, is_open: bool = True) -> Path:
    """A run of 21 requests in 2 s, each of which took so many ms."""
    folder.mkdir(parents=True)
    rows: list[dict[str, Any]] = []
    for number in range(21):
        due = number * 100 * MS
        rows.append(
            {
                "run": folder.name,
                "experiment": "warm",
                "platform": "embedded",
                "function": "f",
                "invocation": f"{folder.name}:warm-0-{number}",
                "attempt": 1,
                "outcome": "ok" if number else "timeout",
                "open_loop": is_open,
                "scheduled": due,
                "sent": due,
                "received": due + took * MS,
                "execution": took * MS // 2,
                "cpu_user": 3 * MS,
                "cpu_system": MS,
                "page_faults": 8,
            }
        )
    record.write(table(rows), folder / "invocations.parquet")
    described = {"streams": [{"function": "f", "settings": {"memory": memory}}]}
    meta = {
        "run": folder.name,
        "platform": {"kind": "embedded"},
        "experiments": {"warm": described},
    }
    (folder / "run.yaml").write_text(yaml.safe_dump(meta))
    return folder


@pytest.fixture
def folders(tmp_path: Path) -> list[Path]:
    large, small = run(tmp_path / "large", "1024MB", 20), run(tmp_path / "small", "256MB", 50)
    return [large, small]


def test_groups_are_what_descriptions_say_and_numbers_are_of_rows(folders: list[Path]) -> None:
    lines = by_key.lines([data.load(it) for it in folders], "streams.0.settings.memory")
    assert [line["group"] for line in lines] == ["256MB", "1024MB"], "by size"
    small = lines[0]
    assert (small["run"], small["requests"], small["failed"]) == ("small", 21, 1)
    assert small["offered_per_s"] == pytest.approx(10)
    assert small["throughput_per_s"] == pytest.approx(10)
    assert (small["p50_ms"], small["execution_ms"], small["user_ms"]) == (50, 25, 3)
    assert small["page_faults"] == 8
    assert small["page_faults_per_cpu_s"] == pytest.approx(2_000)
    assert small["queued_ms"] is None, "it was not measured"


def test_counts_are_printed_whole_and_rates_without_exponents(
    folders: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = by_key.lines([data.load(it) for it in folders], "platform.kind")
    large = {"requests": 123_456, "throughput_per_s": 123_456.7}
    monkeypatch.setattr(by_key, "lines", lambda runs, key: [line | large for line in lines])
    done = CliRunner().invoke(build(), ["compare", *map(str, folders), "--by", "platform.kind"])
    assert done.output.count("123,456 ") == done.output.count("123,457") == 2
    assert "e+05" not in done.output


def test_outcomes_that_are_declared_are_no_failures(folders: list[Path]) -> None:
    description = folders[0] / "run.yaml"
    document = yaml.safe_load(description.read_text())
    document["experiments"]["warm"]["expect"] = ["timeout"]
    description.write_text(yaml.safe_dump(document))
    lines = by_key.lines([data.load(it) for it in folders], "platform.kind")
    assert {line["run"]: line["failed"] for line in lines} == {"large": 0, "small": 1}


def test_quantiles_of_too_few_rows_are_marked(folders: list[Path]) -> None:
    runs = [data.load(it) for it in folders]
    lines = by_key.lines(runs, "platform.kind")
    assert lines[0]["unsupported_quantiles"] == ["p90", "p95", "p99"], "of 20 rows"
    (table,) = by_key.page(lines, runs, "platform.kind", []).sections[-1].blocks
    assert isinstance(table, Table)
    marks = {it.name: it.cell(lines[0]).mark for it in table.columns}
    assert (marks["p50_ms"], marks["p99_ms"]) == ("", "few")
    done = CliRunner().invoke(build(), ["compare", *map(str, folders), "--by", "platform.kind"])
    assert "50.00 †" in done.output
    assert "† too few rows" in done.output


def test_charts_have_the_groups_in_their_order_and_say_how_many_are_drawn(tmp_path: Path) -> None:
    sizes = [2**power for power in range(5, 16)]
    runs = [data.load(run(tmp_path / f"r{size}", f"{size}MB", 20)) for size in sizes]
    lines = by_key.lines(runs, "streams.0.settings.memory")
    chart = throughput.chart(lines, runs)
    assert chart is not None
    assert chart.spec["encoding"]["color"]["sort"] == [f"{size}MB" for size in sizes]
    chart = latency_over_time.chart(lines, runs)
    assert chart is not None
    assert chart.label == "Latency over the time of the first 9 of 11 experiments"
    assert len(set(chart.spec["encoding"]["color"]["scale"]["range"])) == 9
    chart = latency_over_time.chart(lines[:9], runs)
    assert chart is not None
    assert "first" not in chart.label


def test_a_counter_over_cpu_time_is_of_rows_that_have_both(tmp_path: Path) -> None:
    folder = run(tmp_path / "run", "256MB", 50)
    file = folder / "invocations.parquet"
    rows = record.read(file).to_pylist()
    for number, row in enumerate(rows):
        row["cpu_user"] = 100 * row["cpu_user"] if number % 2 else row["cpu_user"]
        row["page_faults"] = None if number % 2 else row["page_faults"]
        row["cpu_system"] = None if number == 2 else row["cpu_system"]
    record.write(table(rows), file)
    (line,) = by_key.lines([data.load(folder)], "platform.kind")
    assert line["page_faults_per_cpu_s"] == pytest.approx(2_000)
    assert line["cycles_per_cpu_s"] is None


def test_capacities_parts_and_misses_are_drawn_by_group(folders: list[Path]) -> None:
    for folder, per_s in zip(folders, (80.0, 20.0), strict=True):
        KnownCapacity(folder.name, per_s, per_s - 1, per_s + 1, True).write(folder)
        file = folder / "invocations.parquet"
        rows = record.read(file).to_pylist()
        for number, row in enumerate(rows):
            row |= {"instructions": 1_000_000, "branch_misses": 4_000, "llc_misses": 500}
            if number == 3:
                row["instructions"] = None
        record.write(table(rows), file)
    runs = [data.load(it) for it in folders]
    lines = by_key.lines(runs, "streams.0.settings.memory")
    small = lines[0]
    assert [small[f"capacity_{it}"] for it in ("per_s", "low_per_s", "high_per_s")] == [20, 19, 21]
    assert (small["branch_mpki"], small["llc_mpki"]) == (4, 0.5)
    chart = capacity.chart(lines, runs)
    assert chart is not None
    drawn = json.dumps(chart.spec)
    assert '"name": "256MB", "capacity": 20.0, "low": 19.0, "high": 21.0}' in drawn
    chart = misses.chart(lines, runs)
    assert chart is not None
    assert '"execution": 25.0, "mpki": 4.0}' in json.dumps(chart.spec)
    chart = parts.chart(lines, runs)
    assert chart is not None
    drawn = json.dumps(chart.spec)
    assert '"name": "256MB", "part": "execution", "value": 25.0' in drawn
    assert '"name": "256MB", "part": "network and platform", "value": 25.0' in drawn


def test_without_a_capacity_or_counters_there_is_no_chart_of_them(folders: list[Path]) -> None:
    runs = [data.load(it) for it in folders]
    lines = by_key.lines(runs, "platform.kind")
    assert lines[0]["capacity_per_s"] is None
    assert lines[0]["branch_mpki"] is None
    assert capacity.chart(lines, runs) is None
    assert misses.chart(lines, runs) is None
    (folders[0] / FILE).write_text('{"per_s": 1}')
    with pytest.raises(UnciaError, match=f"{FILE} is damaged"):
        by_key.lines(runs, "platform.kind")


def test_what_does_not_have_the_key_is_a_group_of_its_own(folders: list[Path]) -> None:
    description = folders[0] / "run.yaml"
    document = yaml.safe_load(description.read_text())
    description.write_text(yaml.safe_dump(document | {"place": "here"}))
    lines = by_key.lines([data.load(it) for it in folders], "place")
    assert sorted((line["group"], line["run"]) for line in lines) == [
        ("here", "large"),
        (by_key.NOT_SAID, "small"),
    ]


def test_a_page_has_charts_and_those_of_ones_own(folders: list[Path], tmp_path: Path) -> None:
    own = tmp_path / "own.py"
    own.write_text(
        "from uncia.report import plots\n"
        "from uncia.report.page import Chart\n\n"
        "def chart(lines, runs):\n"
        "    rows = [{'name': it['group'], 'time': 0.0, 'value': it['p50_ms']} for it in lines]\n"
        "    spec = plots.series(rows, ['256MB', '1024MB'], 'ms')\n"
        "    return Chart('own-chart', spec, f'{len(runs)} runs of mine')\n"
    )
    page = tmp_path / "page.html"
    arguments = ["compare", *map(str, folders), "--by", "platform.kind", "--html", str(page)]
    command = [sys.executable, "-m", "uncia", *arguments, "--chart", str(own), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert {line["group"] for line in json.loads(done.stdout)} == {"embedded"}
    text = page.read_text()
    for name in ("latency-over-time", "throughput", "own-chart", "2 runs of mine"):
        assert name in text


def test_runs_whose_folders_have_the_same_name_are_told_apart(tmp_path: Path) -> None:
    folders = [run(tmp_path / name / "run", "256MB", took) for name, took in (("a", 10), ("b", 50))]
    runs = [data.load(it) for it in folders]
    lines = by_key.lines(runs, "platform.kind")
    assert [(line["run"], line["p50_ms"]) for line in lines] == [
        (str(folders[0]), 10),
        (str(folders[1]), 50),
    ]
    chart = latency_over_time.chart(lines, runs)
    assert chart is not None
    drawn = json.dumps(chart.spec)
    for folder, median in zip(folders, (10.0, 50.0), strict=True):
        assert f'"name": "embedded: {folder}, warm", "time": 0.0, "value": {median}' in drawn


def test_the_chart_is_of_the_requests_that_the_table_is_of(tmp_path: Path) -> None:
    folder = run(tmp_path / "run", "256MB", 10)
    rows = record.read(folder / "invocations.parquet").to_pylist()
    for number, row in enumerate(rows):
        late = row | {"received": row["scheduled"] + 9_000 * MS}
        # The first second has failures alone; the second has as many of them as answers.
        if number < 10:
            rows[number] = late | {"outcome": "timeout"}
        elif number % 2:
            rows[number] = late | {"attempt": 1, "outcome": "preempted"}
    rows[12]["received"] += 30 * MS
    record.write(table(rows), folder / "invocations.parquet")
    runs = [data.load(folder)]
    chart = latency_over_time.chart(by_key.lines(runs, "platform.kind"), runs)
    assert chart is not None
    drawn = json.dumps(chart.spec)
    assert '"time": 0.0' not in drawn
    assert '"time": 1.0, "value": 10.0}' in drawn


def test_of_closed_loops_latency_is_from_when_requests_were_sent(tmp_path: Path) -> None:
    folder = run(tmp_path / "run", "256MB", 10, is_open=False)
    rows = record.read(folder / "invocations.parquet").to_pylist()
    record.write(table([row | {"scheduled": None} for row in rows]), folder / "invocations.parquet")
    runs = [data.load(folder)]
    lines = by_key.lines(runs, "platform.kind")
    assert lines[0]["p50_ms"] == 10
    chart = latency_over_time.chart(lines, runs)
    assert chart is not None
    assert '"time": 0.0, "value": 10.0}' in json.dumps(chart.spec)


def test_closed_loops_have_no_offered_rate(tmp_path: Path) -> None:
    (line,) = by_key.lines(
        [data.load(run(tmp_path / "run", "256MB", 10, is_open=False))], "platform.kind"
    )
    assert (line["offered_per_s"], line["throughput_per_s"]) == (None, pytest.approx(10))


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--chart", "own.py"], "--chart draws on a page"),
        (["--rows-only"], "judges and bills nothing"),
        (["--allow-not-judged"], "judges and bills nothing"),
        (["--seed", "1"], "judges and bills nothing"),
    ],
)
def test_options_that_say_nothing_of_groups_are_refused(
    folders: list[Path], options: list[str], sentence: str
) -> None:
    arguments = ["compare", *map(str, folders), "--by", "platform.kind", *options]
    done = CliRunner().invoke(build(), arguments)
    assert isinstance(done.exception, UnciaError)
    assert sentence in str(done.exception)


def test_what_cannot_be_grouped_is_refused(folders: list[Path], tmp_path: Path) -> None:
    runs = [data.load(it) for it in folders]
    with pytest.raises(UnciaError, match="--by colour: no run's description has it"):
        by_key.lines(runs, "colour")
    # One that is elsewhere, by its last words.
    with pytest.raises(UnciaError, match=r"Perhaps platform\.kind"):
        by_key.lines(runs, "file.kind")
    with pytest.raises(UnciaError, match=r"(?s)--by platform: it is not a value.*platform\.kind"):
        by_key.lines(runs, "platform")
    lines = by_key.lines(runs, "platform.kind")
    own = tmp_path / "own.py"
    own.write_text("x = 1 / 0\n")
    with pytest.raises(UnciaError, match="cannot be run: ZeroDivisionError"):
        by_key.page(lines, runs, "platform.kind", [own])
    own.write_text("def chart(lines, runs):\n    return lines[99]\n")
    with pytest.raises(UnciaError, match=r"own.py: chart\(lines, runs\) raises IndexError"):
        by_key.page(lines, runs, "platform.kind", [own])
    own.write_text("def chart(lines, runs):\n    return 1\n")
    with pytest.raises(UnciaError, match=r"chart\(lines, runs\) returns int"):
        by_key.page(lines, runs, "platform.kind", [own])
    own.write_text("x = 1\n")
    with pytest.raises(UnciaError, match=r"has no function chart\(lines, runs\)"):
        by_key.page(lines, runs, "platform.kind", [own])


def test_groups_are_in_the_order_of_what_they_say() -> None:
    sizes = ["1GB", "256MB", "64KB"]
    assert sorted(sizes, key=by_key._order) == sizes[::-1]
    assert sorted(["1s", "20ms", "3ms"], key=by_key._order) == ["3ms", "20ms", "1s"]
    assert sorted(["b", "10", "9", "100/s"], key=by_key._order) == ["9", "10", "100/s", "b"]
