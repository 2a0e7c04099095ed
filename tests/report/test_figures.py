"""Figures for papers: of the width that was asked for, legible there, in every form."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import pytest

from uncia.errors import UnciaError
from uncia.report import data, figures, plots, run, vega
from uncia.report.page import Chart, Page, Section, charts, write

Run = Callable[..., tuple[int, str, str]]
SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def drawn(demo_run: Path) -> list[Chart]:
    return charts(run.page(data.load(demo_run)))


def sizes_of(root: ElementTree.Element) -> list[float]:
    """Sizes of the texts of an SVG, in its own units."""
    sizes = [
        float(item.get("font-size", "0px").removesuffix("px")) for item in root.iter(f"{SVG}text")
    ]
    return [size for size in sizes if size]


@pytest.mark.parametrize("width", ["84mm", "17.4cm"])
def test_figures_have_their_width_and_their_texts_are_legible(
    drawn: list[Chart], width: str
) -> None:
    style = figures.style("svg", width)
    assert len(drawn) > 10
    for chart in drawn:
        root = ElementTree.fromstring(figures.draw(chart.spec, style))
        assert root.get("width") == f"{style.width_mm:g}mm"
        box = [float(number) for number in root.get("viewBox", "").split()]
        # A unit of the drawing is a point, up to 15 % less where a legend has a wide entry.
        scale = style.width / box[2]
        assert 0.85 <= scale <= 1.01, chart.name
        assert min(sizes_of(root)) * scale >= 6.0, chart.name


def test_labels_of_large_values_have_no_exponents() -> None:
    rows = [{"name": f"n{value}", "kind": "fee", "value": value} for value in (2.5, 123_456)]
    svg = figures.draw(plots.bars(rows, "ms", ["fee"]), figures.style("svg")).decode()
    assert ">123,000<" in svg
    rows = [
        {**row, "part": "all"} for row in [*rows, *({**rows[0], "name": f"m{i}"} for i in range(9))]
    ]
    spec = plots.stacked(rows, ["all"], "USD", form="$,.4~r", cut=True)
    assert "» $123,500" in figures.draw(spec, figures.style("svg")).decode()


def test_what_a_reader_chooses_stands_in_a_figure_at_its_first_value() -> None:
    rows = [{"name": name, "a": 1.0} for name in ("one", "two")]
    choice = vega.choice("shown", "one", "shown", ["one", "two"])
    layer = vega.layer(
        "text", rows, where="datum.name == shown", params=[vega.PICK], text=vega.names("name")
    )
    svg = figures.draw(vega.chart(layer, height=99, params=[choice]), figures.style("svg"))
    assert b">one<" in svg
    assert b">two<" not in svg


def test_a_pdf_is_as_wide_as_asked_in_points(drawn: list[Chart]) -> None:
    style = figures.style("pdf", "3.5in")
    image = figures.draw(drawn[0].spec, style)
    match = re.search(rb"MediaBox ?\[0 0 ([\d.]+) ([\d.]+)\]", image)
    assert match is not None
    assert float(match[1]) == pytest.approx(3.5 * 72, abs=1)


def test_a_png_has_300_dots_an_inch(drawn: list[Chart]) -> None:
    image = figures.draw(drawn[0].spec, figures.style("png", "84mm"))
    width, _ = struct.unpack(">II", image[16:24])
    assert width == pytest.approx(84 / 25.4 * 300, abs=4)


def test_a_font_that_is_installed_is_used_and_another_refused(drawn: list[Chart]) -> None:
    svg = figures.draw(drawn[0].spec, figures.style("svg", font="Libertinus Serif")).decode()
    assert "Libertinus Serif" in svg
    with pytest.raises(UnciaError, match="no font 'Of No Machine'"):
        figures.style("pdf", font="Of No Machine")


@pytest.mark.parametrize(
    ("width", "message"),
    [
        ("1mm", "cannot be read or printed"),
        ("2000cm", "cannot be read or printed"),
        ("1km", "is not the width of a figure"),
        ("84", "is not the width of a figure"),
        ("-84mm", "is not the width of a figure"),
    ],
)
def test_widths_that_are_none_are_refused(width: str, message: str) -> None:
    with pytest.raises(UnciaError, match=message):
        figures.style("pdf", width)


def test_nothing_to_export_is_an_error(tmp_path: Path) -> None:
    empty = Page("Empty", "Test", [Section("one", "One", [])])
    with (
        figures.requested(figures.style("svg")),
        pytest.raises(UnciaError, match="no chart"),
    ):
        write(empty, tmp_path / "empty.html")


def test_the_command_writes_figures_beside_the_page(command: Run, tmp_path: Path) -> None:
    file = tmp_path / "prices.html"
    code, _, err = command("cost", "prices", "--html", file, "--figures", "svg", "--width", "90mm")
    assert code == 0, err
    written = sorted((tmp_path / "prices-figures").glob("*.svg"))
    assert written
    assert all(str(path) in err for path in written)
    code, _, err = command("cost", "prices", "--figures", "svg")
    assert code == 2
    assert "--html FILE" in err
    code, _, err = command("cost", "prices", "--html", file, "--width", "90mm")
    assert code == 2
    assert "--figures" in err


def test_a_run_is_exported(command: Run, demo_run: Path, tmp_path: Path) -> None:
    code, out, _ = command("export", demo_run, "--figures", "pdf", "--out", tmp_path / "f")
    assert code == 0
    assert len(out.splitlines()) == len(list((tmp_path / "f").glob("*.pdf"))) > 10
    code, _, err = command("export", demo_run, "--figures", "pdf", "--width", "1mm")
    assert code == 2
    assert "1mm" in err
    assert not (demo_run / "figures").exists()


def test_one_dear_bar_does_not_squash_the_others() -> None:
    costs = {"dear": 52.0, **{f"tariff-{index}": 0.3 + index / 10 for index in range(9)}}
    rows = [{"name": name, "part": "fee", "value": value} for name, value in costs.items()]
    spec = plots.stacked(rows, ["fee"], "USD", cut=True)
    bars, marks = spec["layer"]
    assert bars["encoding"]["x"]["scale"]["domain"] == [0, pytest.approx(1.1 * 1.2)]
    assert [row["name"] for row in marks["data"]["values"]] == ["dear"]
    even = plots.stacked(rows[1:], ["fee"], "USD", cut=True)
    assert "layer" not in even


def test_logarithmic_axes_have_plain_numbers() -> None:
    rows = [{"name": f"x{index}", "p50": 10.0**index, "p90": 2e6, "p99": 3e6} for index in range(6)]
    svg = figures.draw(plots.ranges(rows, "ms"), figures.style("svg")).decode()
    labels = re.findall(r">([\d,.e+]+)</text>", svg)
    assert {"1", "10", "100", "1,000"} <= set(labels)
    assert not any("e" in label for label in labels)
