"""The buttons of a page, in a browser: charts become SVG and PNG, tables CSV, without a network."""

import csv
import io
import struct
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final
from xml.etree import ElementTree

import browser
import pytest
from browser import Browser

from uncia import report
from uncia.report import vega
from uncia.report.numbers import figure
from uncia.report.page import Chart, Page, Section, write
from uncia.report.table import Column, Table

_PAUSE_S: Final = 0.15
"""Between clicks: Chromium drops the eleventh file that a page saves within a second."""

pytestmark = pytest.mark.skipif(browser.find() is None, reason="needs Chromium")


@pytest.fixture(scope="module")
def page(demo_run: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """The report of a run, open."""
    with browser.started(tmp_path_factory.mktemp("browser")) as result:
        result.open(report.render(demo_run))
        yield result


def test_every_chart_is_saved_as_svg_and_as_png(page: Browser) -> None:
    names = page.run(
        "[...document.querySelectorAll('[data-chart]')].map((chart) => chart.dataset.chart)"
    )
    assert len(names) > 10
    for name in names:
        for form in ("svg", "png"):
            index = f"document.querySelector('[data-chart={name}]')"
            page.run(f"{index}.parentElement.querySelector('[data-save={form}]').click()")
            time.sleep(_PAUSE_S)
        root = ElementTree.fromstring(page.saved(f"{name}.svg"))
        assert root.tag == "{http://www.w3.org/2000/svg}svg"
        assert len(list(root.iter())) > 20
        (background,) = [
            item for item in root if item.tag.endswith("rect") and item.get("fill") == "#fff"
        ]
        assert background.get("width") == root.get("width")
        image = page.saved(f"{name}.png")
        assert image.startswith(b"\x89PNG\r\n\x1a\n")
        width, height = struct.unpack(">II", image[16:24])
        assert width == 2 * int(float(root.get("width", "0")))
        assert height > 150


def test_every_table_is_copied_as_csv(page: Browser) -> None:
    page.run(
        "window.copied = [];"
        "navigator.clipboard.writeText = async (text) => { copied.push(text); };"
        "document.querySelectorAll('[data-copy]').forEach((button) => button.click());"
    )
    page.wait("copied.length === document.querySelectorAll('table').length")
    tables = [list(csv.reader(io.StringIO(text))) for text in page.run("copied")]
    assert all(len(row) == len(table[0]) for table in tables for row in table)
    latency = next(table for table in tables if "p95, ms" in table[0])
    assert latency[0][:4] == ["experiment", "n", "p50, ms", "p50, ms (note)"]


def test_the_clipboard_has_what_was_copied(page: Browser) -> None:
    for without in ("", "navigator.clipboard.writeText = () => Promise.reject(new Error('no'));"):
        page.wait("document.querySelector('[data-copy]').textContent === 'Copy as CSV'")
        heard = "document.addEventListener('copy', () => (heard = document.activeElement.value))"
        page.run(f"delete navigator.clipboard.writeText; {without} var heard = null; {heard}")
        page.run("document.querySelector('[data-copy]').click()")
        page.wait("document.querySelector('[data-copy]').textContent === 'Copied'")
        assert bool(page.run("heard")) == bool(without)


def test_nothing_was_asked_of_the_network(page: Browser) -> None:
    assert all(url.startswith(("file:", "data:", "blob:")) for url in page.requests)


def test_a_saved_chart_has_the_settings_of_the_page_and_its_title(
    page: Browser, tmp_path: Path
) -> None:
    rows = [{"name": f"only {group}", "group": group} for group in ("a", "b")]
    spec = vega.chart(
        vega.layer(
            "text",
            rows,
            where="datum.group == group",
            text={"field": "name", "type": "nominal"},
        ),
        height=99,
        params=[vega.choice("group", "a", "group ", ["a", "b"])],
    )
    section = Section("s", "S", [Chart("chosen", spec, "a chart", "Its title & more")])
    page.open(write(Page("t", "k", [section]), tmp_path / "page.html"))
    page.run(
        "var select = document.querySelector('select'); select.value = 'b';"
        "for (const name of ['input', 'change']) select.dispatchEvent(new Event(name))"
    )
    page.wait("document.querySelector('.chart svg').textContent.includes('only b')")
    page.call(
        "Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark"}]
    )
    page.wait("document.querySelector('[data-chart]').dataset.drawn === 'dark'")
    page.run("document.querySelector('[data-save=svg]').click()")
    root = ElementTree.fromstring(page.saved("chosen.svg"))
    words = "".join(root.itertext())
    assert "Its title & more" in words
    assert "only b" in words
    assert root[0].get("fill") == "#fff"


def test_a_page_without_charts_copies_its_tables_too(page: Browser, tmp_path: Path) -> None:
    size = Column(
        "size", lambda row: "several", parts=[Column("x", 1), Column("y", 3, figure, "MB")]
    )
    columns = [Column("name", 0), Column("value", 1, figure, "s", note=lambda row: row[2]), size]
    rows = [('a "b", c', 1 / 3, "0.1 to 0.5", 1 / 8), ("d\ne", None, "", None)]
    section = Section("s", "S", [Table(columns, rows, "from somewhere")])
    page.open(write(Page("t", "k", [section]), tmp_path / "page.html"))
    page.run(
        "var copied; navigator.clipboard.writeText = async (text) => { copied = text; };"
        "document.querySelector('[data-copy]').click()"
    )
    page.wait("copied !== undefined")
    assert list(csv.reader(io.StringIO(page.run("copied")))) == [
        ["name", "value, s", "value, s (note)", "x", "y, MB"],
        ['a "b", c', "0.3333333333333333", "0.1 to 0.5", "0.3333333333333333", "0.125"],
        ["d\ne", "", "", "", ""],
    ]
