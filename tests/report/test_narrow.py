"""Pages on a telephone, in a browser: nothing is wider than the screen, and no text is cut."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import browser
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from browser import Browser
from typer.testing import CliRunner

from uncia import report
from uncia.cli import build
from uncia.report import plots
from uncia.report.page import Chart, Page, Section, write
from uncia.report.table import Column, Table

WIDTH: Final = 390
MB, MS = 1 << 20, 10**6

MEASURE: Final = r"""(() => {
  const width = document.documentElement.clientWidth, found = [];
  const shown = (element) => {
    const style = getComputedStyle(element), box = element.getBoundingClientRect();
    return style.visibility !== "hidden" && box.width > 0 && box.height > 0;
  };
  // What is inside a table's or the navigation's own scrolling area may be wider than the page.
  for (const element of document.querySelectorAll("body *:not(svg *)")) {
    if (!shown(element) || element.parentElement.closest(".scroll, nav")) continue;
    const box = element.getBoundingClientRect();
    if (box.left < -1 || box.right > width + 1) {
      found.push(`wide: ${element.tagName} ${element.className}`);
    }
  }
  for (const svg of document.querySelectorAll(".chart svg")) {
    const frame = svg.getBoundingClientRect(), name = svg.closest("[data-chart]").dataset.chart;
    for (const text of [...svg.querySelectorAll("text")].filter(shown)) {
      const box = text.getBoundingClientRect(), words = text.textContent;
      const outside = box.left < frame.left - 1 || box.right > frame.right + 1
        || box.top < frame.top - 1 || box.bottom > frame.bottom + 1;
      if (outside || words.endsWith("…")) found.push(`cut: ${name}: ${words}`);
    }
  }
  for (const area of document.querySelectorAll(".scroll")) {
    const head = area.querySelector("tbody th");
    if (!head || !shown(head)) continue;
    area.scrollLeft = 1e6;
    const frame = area.getBoundingClientRect(), box = head.getBoundingClientRect();
    if (box.left < frame.left - 1 || box.width > 0.6 * frame.width)
      found.push(`first column: ${head.textContent.trim()}`);
    area.scrollLeft = 0;
  }
  return found;
})()"""

pytestmark = pytest.mark.skipif(browser.find() is None, reason="needs Chromium")


@pytest.fixture(scope="module")
def telephone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with browser.started(tmp_path_factory.mktemp("browser")) as result:
        result.screen = {
            "width": WIDTH,
            "height": 844,
            "deviceScaleFactor": 1,
            "mobile": True,
        }
        yield result


def problems(telephone: Browser, page: Path) -> list[str]:
    telephone.open(page)
    telephone.run(
        "document.querySelectorAll('details').forEach((element) => (element.open = true))"
    )
    result: list[str] = telephone.run(MEASURE)
    return result


def invoke(*arguments: Any) -> None:
    done = CliRunner().invoke(build(), [str(word) for word in arguments])
    assert done.exit_code in (0, 1), done.output


def test_a_run(telephone: Browser, demo_run: Path) -> None:
    assert problems(telephone, report.render(demo_run)) == []


def test_advice(telephone: Browser, tmp_path: Path) -> None:
    rows = [
        {
            "platform": "aws",
            "function": "thumbnails-of-uploaded-pictures",
            "invocation": f"{memory}-{index}",
            "outcome": "ok",
            "execution": (100_000 // memory + index % 7) * MS,
            "cpu_user": 40 * MS,
            "allocated_memory": memory * MB,
            "allocated_cpu": memory * 10**6 // 1769,
            "memory_avg": 50 * MB,
            "memory_peak": 60 * MB,
        }
        for memory in (512, 1024, 1769)
        for index in range(60)
    ]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "rows.parquet")
    page = tmp_path / "advice.html"
    tariffs = ["-t", "aws-lambda-x86", "-t", "gcp-run-request", "-t", "huawei-functiongraph"]
    invoke("cost", "advice", tmp_path / "rows.parquet", "--p95", "150ms", *tariffs, "--html", page)
    assert problems(telephone, page) == []


def test_costs(telephone: Browser, tmp_path: Path) -> None:
    page = tmp_path / "prices.html"
    invoke("cost", "prices", "--html", page)
    assert problems(telephone, page) == []


def test_a_comparison(
    telephone: Browser, demo_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # runs are called by what was typed
    page = tmp_path / "comparison.html"
    for name in ("before", "after"):
        shutil.copytree(demo_run, tmp_path / name)
    invoke("compare", "before", "after", "--html", page)
    assert problems(telephone, page) == []


def test_bandwidth_control(telephone: Browser, tmp_path: Path) -> None:
    page = tmp_path / "duration.html"
    invoke("cpu", "duration", "--cpu-time", "50ms", "--period", "20ms", "--html", page)
    assert problems(telephone, page) == []


def test_what_is_wrong_is_found(telephone: Browser, tmp_path: Path) -> None:
    rows = [{"name": "n" * 60, "kind": "a", "value": value} for value in (1.0,)]
    chart = Chart("long", plots.bars(rows, "x", ["a"]), "A name that has no room.")
    wide = Page("Wide", "Test", [Section("one", "One", [chart])], style="h2 { width: 600px; }")
    result = problems(telephone, write(wide, tmp_path / "wide.html"))
    assert any(text.startswith("cut: long: n") for text in result)
    assert any(text.startswith("wide: H2") for text in result)


def test_names_are_not_broken_where_there_is_room(telephone: Browser, tmp_path: Path) -> None:
    rows = [("warm", *range(9)), ("pyaes-128", *range(9)), ("n" * 90, *range(9))]
    table = Table(
        [
            Column("experiment", 0),
            *(Column("milliseconds", at, "{:.3f} ms".format) for at in range(1, 10)),
        ],
        rows,
        "Wider than the screen.",
    )
    page = Page("Wide", "Test", [Section("one", "One", [table])])
    assert problems(telephone, write(page, tmp_path / "wide.html")) == []
    heights = telephone.run(
        "[...document.querySelectorAll('tbody th .name')].map((one) => one.getClientRects().length"
        " && Math.round(one.offsetHeight / parseFloat(getComputedStyle(one).lineHeight)))"
    )
    assert heights[:2] == [1, 1]
    assert 2 < heights[2] < 20


def test_legends_wrap(telephone: Browser, tmp_path: Path) -> None:
    names = [f"experiment-number-{index}" for index in range(9)]
    rows = [
        {"name": name, "time": second, "value": second} for name in names for second in range(3)
    ]
    chart = Chart("legend", plots.series(rows, names, "requests"), "Nine names.")
    page = Page("Legend", "Test", [Section("one", "One", [chart])])
    assert problems(telephone, write(page, tmp_path / "legend.html")) == []
