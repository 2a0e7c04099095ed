import json
import shutil
import sys
from pathlib import Path
from typing import Any

import altair
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
import synthetic_run
from page_reader import Page, addresses, marks

from uncia import record, report
from uncia.errors import UnciaError
from uncia.report import data, run, sections, vega
from uncia.report import page as page_module
from uncia.report.sections import bills, seconds

SECTIONS = [
    "errors",
    "latency",
    "load",
    "distributions",
    "seconds",
    "ratios",
    "bursts",
    "chains",
    "hops",
    "chain_parts",
    "services",
    "breakdown",
    "startup",
    "memory",
    "bills",
    "matrix",
    "instances",
    "lag",
    "round_trips",
    "outcomes",
    "machine",
    "monitored",
]
# Of a run without chains and monitors, whose failures are declared.
WITHOUT = (
    "seconds",
    "chains",
    "hops",
    "chain_parts",
    "services",
    "errors",
    "round_trips",
    "monitored",
)
SHOWN = [name for name in SECTIONS if name not in WITHOUT]


@pytest.fixture(scope="module")
def page(demo_run: Path) -> Page:
    return Page(report.render(demo_run).read_text(encoding="utf-8"))


def test_every_section_is_there_in_order(page: Page) -> None:
    assert [name for name in page.sections if name != "warnings"] == SHOWN


def test_rows_of_a_misspelt_column_are_an_error(demo_run: Path) -> None:
    rows = sections.Rows("invocations", {"outcme": "ok"})
    with pytest.raises(TypeError, match="rows of invocations have no column outcme"):
        rows.select(data.load(demo_run))


def test_the_file_is_complete_or_not_there(demo_run: Path) -> None:
    path = report.render(demo_run)
    assert path == demo_run / "report.html"
    assert path.read_text(encoding="utf-8").endswith("</html>\n")
    assert not list(demo_run.glob("*.partial"))


def test_nothing_is_loaded_from_anywhere(page: Page, demo_run: Path) -> None:
    assert all(link.startswith("#") for link in page.links)
    text = (demo_run / "report.html").read_text(encoding="utf-8")
    assert "connect-src" not in text
    assert "default-src 'none'" in text
    # The runtime names XML namespaces and documentation; nothing else names any address.
    for name, content in page.scripts:
        if name != "vega-runtime":
            assert addresses(content) == []
    assert "@import" not in text
    assert "url(" not in text.split("<body>")[0]


def test_the_runtime_is_there_once(page: Page) -> None:
    assert [name for name, _ in page.scripts] == ["specs", "configs", "vega-runtime", ""]
    assert "vegaEmbed" in page.script("vega-runtime")
    assert len(page.script("vega-runtime")) > 500_000


def test_every_chart_has_a_place_and_a_valid_specification(page: Page) -> None:
    specs = page.specs
    assert sorted(page.places) == sorted(specs)
    assert len(specs) >= 12
    for spec in specs.values():
        plain = {key: value for key, value in spec.items() if key != "usermeta"}
        altair.Chart.from_dict(plain, validate=True)


def test_no_mark_has_more_than_two_thousand_points(page: Page) -> None:
    for name, spec in page.specs.items():
        for mark, rows in marks(spec):
            assert 0 < len(rows) <= vega.MAX_POINTS, (name, mark["mark"])


def test_a_large_run_makes_no_larger_charts(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    rows = [
        synthetic_run.experiment(name, rng, n=30_000, cold=name == "cold")
        for name in ("warm", "cold", "burst")
    ]
    folder = synthetic_run.write(tmp_path / "large", rows, with_bill=False)
    path = report.render(folder)
    for spec in Page(path.read_text(encoding="utf-8")).specs.values():
        for _, values in marks(spec):
            assert len(values) <= vega.MAX_POINTS
    assert path.stat().st_size < 2_000_000


def test_the_verdict_counts_requests(page: Page) -> None:
    verdict = "All 1,589 requests were sent and ended as expected, 3 throttled as declared."
    assert verdict in page.text


def test_tables_hold_the_numbers_of_the_summary(page: Page, demo_run: Path) -> None:
    stored = json.loads((demo_run / "summary.json").read_text())["experiments"]
    rows = {row["experiment"]: row for row in page.table_with("experiment", "p50, ms", "max, ms")}
    assert list(rows) == list(stored)
    for name, row in rows.items():
        assert row["n"] == f"{stored[name]['latency_rows']:,}"
        shown = float(row["max, ms"].replace(",", ""))
        assert shown == pytest.approx(stored[name]["latency_ms"]["max"], rel=5e-3)
    ratios = {row["experiment"]: row for row in page.table_with("experiment", "MR", "TR", "TMR")}
    for name, row in ratios.items():
        shown = float(row["MR"].split()[0].replace(",", ""))
        assert shown == pytest.approx(stored[name]["mr"], rel=5e-3)
        assert row["base"] == "warm"


def test_every_table_says_where_it_comes_from(page: Page, demo_run: Path) -> None:
    text = (demo_run / "report.html").read_text(encoding="utf-8")
    assert len(page.tables) >= 12
    assert text.count('<p class="trace">') == len(page.tables)


def test_every_chart_and_every_table_has_its_buttons(page: Page, demo_run: Path) -> None:
    text = (demo_run / "report.html").read_text(encoding="utf-8")
    for button in ('data-save="svg"', 'data-save="png"'):
        assert text.count(f'<button type="button" {button}>') == len(page.places)
    assert text.count('<button type="button" data-copy>') == len(page.tables)
    # Without scripts there is nothing to press.
    assert text.count('<div class="tools" hidden>') == len(page.places) + len(page.tables)


def test_tables_carry_all_digits(demo_run: Path) -> None:
    text = (demo_run / "report.html").read_text(encoding="utf-8")
    stored = json.loads((demo_run / "summary.json").read_text())["experiments"]
    for item in stored.values():
        assert f'data-value="{item["latency_ms"]["p99"]!r}"' in text


def test_each_section_is_a_file_that_says_which_rows_it_needs() -> None:
    makers = sections._makers()
    assert [maker.section.__module__.rpartition(".")[2] for maker in makers] == SECTIONS
    assert len({maker.POSITION for maker in makers}) == len(makers)
    assert {maker.ROWS.table for maker in makers} <= set(record.TABLES)


def test_the_section_of_the_guide_is_found_by_its_place(
    demo_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    guide = Path(__file__).parents[2] / "docs" / "how-to" / "add-a-section.md"
    code = guide.read_text(encoding="utf-8").split("```python\n")[1].split("```")[0]
    (tmp_path / "sizes.py").write_text(code, encoding="utf-8")
    shutil.copytree(demo_run, tmp_path / "r")
    rows = record.read(demo_run)
    at = rows.schema.get_field_index("response_bytes")
    rows = rows.set_column(at, "response_bytes", pa.array(range(rows.num_rows), pa.int64()))
    path = tmp_path / "r" / "invocations.parquet"
    record.write(record.conform(rows, "invocations"), path, "invocations")
    monkeypatch.setattr(sections, "__path__", [*sections.__path__, str(tmp_path)])
    sections._makers.cache_clear()
    try:
        result = Page(page_module.html(run.page(data.load(tmp_path / "r"))))
    finally:
        sections._makers.cache_clear()
        del sys.modules[f"{sections.__name__}.sizes"]
    names = [name for name in result.sections if name != "warnings"]
    assert names == [*SHOWN[:9], "sizes", *SHOWN[9:]]
    table = result.table_with("experiment", "n", "mean, bytes")
    assert "warm" in [row["experiment"] for row in table]
    assert "sizes" in result.specs


def test_parts_of_a_bar_add_up_to_the_mean(page: Page) -> None:
    rows = page.table_with("experiment", "mean latency, ms", "execution, ms")
    for row in rows:
        parts = [
            float(value.replace(",", ""))
            for name, value in row.items()
            if name not in ("experiment", "n", "mean latency, ms") and value != "–"
        ]
        mean = float(row["mean latency, ms"].replace(",", ""))
        assert sum(parts) == pytest.approx(mean, rel=2e-2)


def test_the_ideal_is_the_reciprocal_of_the_cpu_share(page: Page) -> None:
    rows = page.table_with("memory, MB", "ideal, ms")
    assert [row["experiment"] for row in rows] == [
        f"pyaes-{mb}" for mb in (128, 256, 512, 1024, 1769)
    ]
    ideal = [float(row["ideal, ms"]) for row in rows]
    assert ideal[0] / ideal[-1] == pytest.approx(1769 / 128, rel=1e-2)
    assert float(rows[-1]["ideal, ms"]) == float(rows[-1]["median, ms"])


def test_bills_are_split_into_parts_that_add_up(page: Page) -> None:
    rows = page.table_with("tariff", "per million, USD", "rounding, USD")
    assert {row["tariff"] for row in rows} == set(synthetic_run.TARIFFS)
    for row in rows:
        total = float(row["per million, USD"].lstrip("$").replace(",", ""))
        parts = [
            float(row[name].split()[0].lstrip("$").replace(",", ""))
            for name in row
            if name.removesuffix(", USD")
            in ("used", "over-allocation", "resources", "rounding", "invocation fee")
            and row[name] != "–"
        ]
        assert sum(parts) == pytest.approx(total, rel=2e-2)


def test_a_bar_is_as_long_as_its_bill_where_more_was_used_than_is_billed(tmp_path: Path) -> None:
    run = synthetic_run.write(tmp_path / "r", synthetic_run.demo())
    file = run / "summary.json"
    summary = json.loads(file.read_text(encoding="utf-8"))
    for tariff in summary["tariffs"].values():
        tariff |= {"used_vcpu_s": 1e4, "used_vcpu_rows": tariff["rows"]}
        tariff |= {"used_gb_s": 1e4, "used_memory_rows": tariff["rows"]}
    file.write_text(json.dumps(summary), encoding="utf-8")
    page = Page(report.render(run).read_text(encoding="utf-8"))
    bars: dict[str, float] = {}
    for _, rows in marks(page.specs["bills"]):
        for row in rows:
            bars[row["name"]] = bars.get(row["name"], 0.0) + row["value"]
    assert set(bars) == set(summary["tariffs"])
    for name, length in bars.items():
        bill = summary["tariffs"][name]["cost_usd_per_million"]
        assert length == pytest.approx(bill, rel=1e-9), name


def test_use_of_exactly_what_is_billed_leaves_no_over_allocation() -> None:
    tariff = {"cost_usd_per_million": 0.7, "fee_share": 0.2, "rounding_share": 0.1}
    cost_of_use = 0.7 - 0.7 * 0.1 - 0.7 * 0.2
    assert cost_of_use != 0.7 - 0.7 * 0.2 - 0.7 * 0.1  # doubles differ in the last digit
    parts = bills._parts(tariff, cost_of_use)
    assert parts["over-allocation"] == 0
    assert bills._parts(tariff, cost_of_use - 1e-9)["over-allocation"] > 0


def test_warmups_are_counted_and_are_no_result(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    rows = [synthetic_run.experiment(name, rng, n=50) for name in ("warm", "warm.warmup", "cold")]
    html = report.render(synthetic_run.write(tmp_path / "r", rows)).read_text(encoding="utf-8")
    assert "are in no total, and have their own lines by experiment" in html
    page = Page(html)
    latency = page.table_with("experiment", "p50, ms", "max, ms")
    assert [row["experiment"] for row in latency] == ["warm", "cold"]
    outcomes = page.table_with("experiment", "requests", "failed")
    assert [row["experiment"] for row in outcomes] == ["warm", "warm.warmup", "cold"]


def test_phases_of_a_start_are_those_before_the_function_is_called(
    page: Page, demo_run: Path, tmp_path: Path
) -> None:
    rows = page.table_with("phase", "from, ms")
    assert [row["phase"] for row in rows] == ["cgroup", "namespaces", "runtime", "handler import"]
    assert [row["n"] for row in rows] == ["304"] * 4
    assert [float(row["mean, ms"]) for row in rows] == [1.0, 2.0, 60.0, 27.0]
    # Spans of an instance alone, and one that begins long after it was ready.
    shutil.copytree(demo_run, tmp_path / "r")
    instances = record.read(demo_run, "instances").slice(0, 1).to_pylist()[0]
    spans = [
        {"instance": instances["instance"], "name": name, "start": start, "end": start + 10}
        for name, start in (
            ("boot", instances["started"]),
            ("thaw", instances["initialized"] + 1),
        )
    ]
    data = pa.table({key: [span[key] for span in spans] for key in spans[0]})
    data = data.append_column("clock", pa.array(["platform"] * 2))
    record.write(record.conform(data, "spans"), tmp_path / "r" / "spans.parquet", "spans")
    result = rendered(tmp_path / "r").table_with("phase", "from, ms")
    assert [row["phase"] for row in result] == ["boot"]


def test_kinds_of_start_are_told_apart(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    fresh = synthetic_run.experiment("cold", rng, n=20, cold=True, function="f")
    copied = synthetic_run.experiment("copied", rng, n=30, cold=True, function="f")
    stream = {"function": "f", "settings": {"start_from": "zygote"}}
    copied.meta["streams"] = [stream]
    run = synthetic_run.write(tmp_path / "r", [fresh, copied])
    for name in ("invocations", "instances"):
        rows = record.read(run, name)
        mine = pc.starts_with(rows.column("instance").cast(pa.utf8()), "copied-")
        kinds = pc.if_else(
            mine,
            pc.replace_substring(rows.column("start").cast(pa.utf8()), "cold", "restored"),
            rows.column("start").cast(pa.utf8()),
        )
        at = rows.schema.get_field_index("start")
        rows = record.conform(rows.set_column(at, "start", kinds), name)
        record.write(rows, run / f"{name}.parquet", name)
    page = rendered(run)
    phases = page.table_with("function", "start", "phase", "n")
    assert {(row["function"], row["start"], row["n"]) for row in phases} == {
        ("f", "cold", "20"),
        ("f", "restored", "30"),
    }
    assert "What a start does" in page.text
    assert {"startup-0", "startup-1"} <= set(page.specs)
    outcomes = page.table_with("experiment", "cold", "restored", "starts from")
    message = {
        name: [row[name] for row in outcomes] for name in ("cold", "restored", "starts from")
    }
    assert message == {"cold": ["20", "0"], "restored": ["0", "30"], "starts from": ["–", "zygote"]}


def rendered(folder: Path) -> Page:
    return Page(report.render(folder).read_text(encoding="utf-8"))


def test_an_experiment_in_which_everything_failed(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    rows = [
        synthetic_run.experiment("warm", rng, n=40),
        synthetic_run.experiment("broken", rng, n=20, outcomes={"timeout": 20}),
    ]
    result = rendered(synthetic_run.write(tmp_path / "r", rows))
    assert "20 of 60 requests failed." in result.text
    assert "broken: no request succeeded, so it has no latency." in result.text
    broken = result.table_with("experiment", "p50, ms", "max, ms")[1]
    assert broken["n"] == "0"
    assert broken["p50, ms"] == "–"
    assert broken["mean, ms"] == "–"


def test_errors_that_an_experiment_declares_are_not_counted_with_those_of_others(
    tmp_path: Path,
) -> None:
    rng = np.random.default_rng(1)
    outcomes = {"throttled": 5}
    rows = [
        synthetic_run.experiment("warm", rng, n=40, outcomes=outcomes, expect=["throttled"]),
        synthetic_run.experiment("other", rng, n=40, outcomes={"throttled": 2}),
    ]
    for part in rows:
        part.columns["error"] = [
            "Rate exceeded" if it != "ok" else None for it in part.columns["outcome"]
        ]
    result = rendered(synthetic_run.write(tmp_path / "r", rows))
    (error,) = result.table_with("type", "message", "requests", "experiments")
    assert (error["message"], error["requests"]) == ("Rate exceeded", "2")
    assert error["experiments"] == "other"


def test_the_most_frequent_errors_of_all_experiments_come_first(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    rows = [
        synthetic_run.experiment(name, rng, n=40, outcomes={"timeout": failed})
        for name, failed in (("warm", 14), ("other", 20))
    ]
    rows[0].columns["error"] = [f"warm {number}" for number in range(14)] + [None] * 26
    rows[1].columns["error"] = ["frequent"] * 20 + [None] * 20
    result = rendered(synthetic_run.write(tmp_path / "r", rows))
    table = result.table_with("experiment", "error", "rows")
    assert len(table) == 12
    assert list(table[0].values()) == ["other", "frequent", "20"]
    assert "3 more rows are not shown." in result.text


def tiles(folder: Path) -> dict[str, page_module.Tile]:
    return {tile.label: tile for tile in run.page(data.load(folder)).tiles}


def test_tiles_say_what_they_are_relative_to_and_what_was_subtracted(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    rows = [synthetic_run.experiment(name, rng, n=400, wait_ms=20) for name in ("idle", "cold")]
    rows[1].meta["base"] = "idle"
    shown = tiles(synthetic_run.write(tmp_path / "r", rows))
    assert shown["cold request"].note.endswith(" that of idle, both less the wait")
    assert shown["longest tail"].note.endswith(", less the wait")
    rows = [synthetic_run.experiment(name, rng, n=400) for name in ("warm", "cold")]
    shown = tiles(synthetic_run.write(tmp_path / "s", rows))
    assert shown["cold request"].note.endswith(" that of warm")


def test_the_longest_tail_is_of_enough_rows(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    few = synthetic_run.experiment("cold", rng, n=20, cold=True)
    few.columns["received"][3] += synthetic_run.S
    shown = tiles(
        synthetic_run.write(tmp_path / "r", [synthetic_run.experiment("warm", rng, n=400), few])
    )
    assert shown["longest tail"].note == "p99 / p50 in warm"
    assert "(too few rows for an interval)" in shown["cold request"].note
    assert "too few" not in shown["warm request"].note
    shown = tiles(synthetic_run.write(tmp_path / "s", [few]))
    assert shown["longest tail"].note == "p99 / p50 in cold (too few rows for an interval)"


def test_hops_are_no_requests(tmp_path: Path) -> None:
    rows = synthetic_run.experiment("warm", np.random.default_rng(1), n=40)
    rows.columns["parent"] = [None] * 30 + ["warm-0"] * 10
    rows.columns["open_loop"] = [True] * 30 + [None] * 10
    facts = dict(run.page(data.load(synthetic_run.write(tmp_path / "r", [rows]))).facts)
    assert facts["Requests"] == "30"


def test_experiments_whose_names_are_alike_have_charts_of_their_own(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    names = ("A-1", "A-2", "a-1", "a-2", "暖-1", "暖-2", "冷-1", "冷-2")
    rows = [synthetic_run.experiment(name, rng, n=20) for name in names]
    page = rendered(synthetic_run.write(tmp_path / "r", rows))
    assert {name for name in page.specs if name.startswith("cdf-")} == {
        "cdf-a",
        "cdf-a-2",
        "cdf-other",
        "cdf-other-2",
    }


def test_seconds_that_stand_out_are_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    part = synthetic_run.experiment("warm", np.random.default_rng(1), n=2_500)
    part.meta["streams"] = [{"closed": {"clients": 1}}]
    part.columns["open_loop"] = [False] * 2_500
    # A second with less than its hundred answers, and another with a slow one.
    for number in range(320, 390):
        part.columns["outcome"][number] = "timeout"
    part.columns["sent"][1_150] -= 5 * synthetic_run.S
    part.columns["scheduled"][1_150] = part.columns["sent"][1_150]
    monkeypatch.setattr(vega, "MAX_POINTS", 8)
    loaded = data.load(synthetic_run.write(tmp_path / "r", [part]))
    section = seconds.section(loaded, seconds.ROWS.select(loaded))
    assert section is not None
    answers, latency, note, _ = section.blocks
    assert isinstance(answers, page_module.Chart)
    assert isinstance(latency, page_module.Chart)
    assert isinstance(note, page_module.Note)
    assert min(row["value"] for row in marks(answers.spec)[0][1]) < 40
    assert max(row["value"] for row in marks(latency.spec)[0][1]) > 50
    assert "fewest answers" in note.text


def test_counters_that_are_not_drawn_are_said_to_be_in_the_table(tmp_path: Path) -> None:
    folder = synthetic_run.write(
        tmp_path / "r", [synthetic_run.experiment("warm", np.random.default_rng(1), n=20)]
    )
    rows = [
        {"run": "r", "time": second, "counter": f"cpu.part{number}_percent", "value": 1.0}
        for number in range(8)
        for second in range(3)
    ]
    counters = record.conform(pa.Table.from_pylist(rows), "machine", synthetic_run.EPOCH)
    record.write(counters, folder / "machine.parquet", "machine")
    assert "Drawn: the first 6 of 8 counters in %" in rendered(folder).text


def test_a_run_in_which_everything_failed(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    rows = [synthetic_run.experiment("warm", rng, n=20, outcomes={"transport_error": 20})]
    result = rendered(synthetic_run.write(tmp_path / "r", rows))
    assert "20 of 20 requests failed." in result.text
    assert "No request succeeded." in result.text


def test_a_platform_that_tells_nothing_of_itself(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    rows = [
        synthetic_run.experiment(name, rng, n=60, platform_columns=False)
        for name in ("warm", "other")
    ]
    result = rendered(synthetic_run.write(tmp_path / "r", rows))
    assert "waiting for the answer" in result.text
    assert "No tariff could price" in result.text or "not priced yet" in result.text
    assert "memory" not in result.sections
    assert "startup" not in result.sections
    outcomes = result.table_with("experiment", "requests", "cold")
    assert [row["cold"] for row in outcomes] == ["–", "–"]


def test_a_run_without_rows(tmp_path: Path) -> None:
    folder = synthetic_run.write(
        tmp_path / "r", [synthetic_run.Rows("warm", {}, {}), synthetic_run.Rows("cold", {}, {})]
    )
    result = rendered(folder)
    assert "No request was made." in result.text
    assert "warm: no request was made." in result.text


def test_only_the_rows_are_left(tmp_path: Path, demo_run: Path) -> None:
    shutil.copy(demo_run / "invocations.parquet", tmp_path / "invocations.parquet")
    result = rendered(tmp_path)
    assert "run.yaml is missing" in result.text
    assert "not priced yet" not in result.text
    assert result.table_with("tariff", "per million, USD")
    assert len(result.table_with("experiment", "p50, ms", "max, ms")) == 11


def test_a_run_that_a_crash_left(tmp_path: Path, demo_run: Path) -> None:
    table = record.read(demo_run)
    with (
        pa.OSFile(str(tmp_path / "invocations.arrows"), "wb") as sink,
        pa.ipc.new_stream(sink, table.schema) as stream,
    ):
        stream.write_table(table)
    assert "This run was not closed" in rendered(tmp_path).text


def test_a_run_that_did_not_complete_is_marked(tmp_path: Path, demo_run: Path) -> None:
    shutil.copytree(demo_run, tmp_path / "r")
    description = tmp_path / "r" / "run.yaml"
    text = description.read_text().replace("status: complete", "status: interrupted")
    description.write_text(text)
    assert "The run is marked as interrupted." in rendered(tmp_path / "r").text


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (lambda folder: shutil.rmtree(folder), "does not exist"),
        (lambda folder: (folder / "invocations.parquet").write_bytes(b"PAR1"), "cannot be read"),
        (lambda folder: (folder / "summary.json").write_text("{"), "not valid JSON"),
        (lambda folder: (folder / "run.yaml").write_text("[1]"), "mapping of keys"),
    ],
)
def test_a_damaged_folder_is_told_of(
    tmp_path: Path, demo_run: Path, damage: Any, says: str
) -> None:
    folder = tmp_path / "r"
    shutil.copytree(demo_run, folder)
    (folder / "report.html").unlink(missing_ok=True)
    damage(folder)
    with pytest.raises(UnciaError, match=says):
        report.render(folder)
    assert not (folder / "report.html").exists()


def test_a_folder_that_is_no_run(tmp_path: Path) -> None:
    with pytest.raises(UnciaError):
        report.render(tmp_path)


def test_names_and_errors_cannot_become_markup(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    evil = "</script><script>alert(1)</script><img src=http://x/>"
    part = synthetic_run.experiment("warm", rng, n=40, outcomes={"function_error": 2})
    part.columns["error"] = [evil] * 2 + [None] * 38
    part.columns["function"] = [evil] * 40
    other = synthetic_run.experiment(evil, rng, n=40)
    folder = synthetic_run.write(tmp_path / "r", [part, other], warnings=[evil])
    result = rendered(folder)
    assert [name for name, _ in result.scripts] == ["specs", "configs", "vega-runtime", ""]
    assert all(link.startswith("#") for link in result.links)
    assert evil in result.text


def test_warnings_of_the_run_are_repeated(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    rows = [synthetic_run.experiment("warm", rng, n=400)]
    folder = synthetic_run.write(tmp_path / "r", rows, warnings=["CPU limits are not enforced."])
    assert rendered(folder).text.count("CPU limits are not enforced.") == 1


def test_data_keeps_the_order_of_the_description(demo_run: Path) -> None:
    names = list(data.load(demo_run).summaries)
    assert names[:3] == ["warm", "cold", "burst-warm"]
    assert names[-1] == "resize"
