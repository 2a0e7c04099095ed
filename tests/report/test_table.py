"""Tables as data: what a column shows of a row, and what of it goes into CSV."""

from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd
import pytest
from markupsafe import Markup
from page_reader import Page as Reader

from uncia.report import page
from uncia.report.numbers import ABSENT, count, fact, figure, percent, relative, text, usd, whole
from uncia.report.table import Column, Fact, Table, fact_columns, records


@dataclass
class Thing:
    size: int


def test_a_column_reads_a_key_an_index_an_attribute_or_what_a_function_makes() -> None:
    row: Any
    for row, value in (
        ({"size": 3}, "size"),
        (("x", 3), 1),
        (Thing(3), "size"),
        (Thing(2), lambda row: row.size + 1),
    ):
        assert Column("size", value, count).cell(row).text == "3"


def test_headings_have_units_and_explanations() -> None:
    column = Column("p50", "p50", figure, "ms", "half of the requests took no longer")
    assert (column.heading, column.kind) == ("p50, ms", "number")
    assert Column("name", "name").kind == "text"
    result = page.html(page.Page("t", "k", [page.Section("s", "S", [Table([column], [], "t")])]))
    assert 'title="half of the requests took no longer"' in result


@pytest.mark.parametrize(
    ("value", "form", "shown", "exact"),
    [
        (1234567, count, "1,234,567", "1234567"),
        (12, count, "12", None),
        (np.int64(1234), count, "1,234", "1234"),
        (0.123456789, figure, "0.123", "0.123456789"),
        (np.float64(0.25), percent, "25.0 %", "0.25"),
        (Fraction(1, 3), figure, "0.333", "0.3333333333333333"),
        (Decimal("0.00000001"), usd, "$0.0000000100", "0.00000001"),
        (None, figure, ABSENT, ""),
        (float("nan"), figure, ABSENT, ""),
        (np.float64("nan"), percent, ABSENT, ""),
        (Decimal("NaN"), usd, ABSENT, ""),
        ("f", text, "f", None),
        (True, text, "True", None),
    ],
)
def test_numbers_keep_their_digits_beside_what_is_shown(
    value: Any, form: Any, shown: str, exact: str | None
) -> None:
    cell = Column("x", 0, form).cell((value,))
    assert (cell.text, cell.value) == (shown, exact)


def test_notes_and_marks_are_of_the_row() -> None:
    column = Column("x", 0, figure, note=lambda row: f"of {row[1]}", mark=lambda row: "bad")
    cell = column.cell((1.0, 7))
    assert (cell.text, cell.note, cell.mark) == ("1.00", "of 7", "bad")


def test_a_column_of_several_numbers_is_several_columns_in_csv() -> None:
    parts = [Column("vCPU", 0, figure), Column("memory", 1, whole, "MB")]
    column = Column("size", lambda row: f"{row[0]:g} vCPU, {row[1]:g} MB", parts=parts)
    cell = column.cell((1 / 3, 1769))
    assert (cell.text, cell.parts) == (
        "0.333333 vCPU, 1769 MB",
        ["0.3333333333333333", "1769"],
    )
    section = page.Section("s", "S", [Table([column], [(0.5, 128)], "t")])
    result = page.html(page.Page("t", "k", [section]))
    assert 'data-parts="[&#34;vCPU&#34;,&#34;memory, MB&#34;]"' in result
    assert 'data-parts="[&#34;0.5&#34;,&#34;128&#34;]"' in result


def test_rows_of_different_quantities_have_formats_and_units_of_their_own() -> None:
    rows = [
        Fact("starts", 1234, count),
        Fact("share", Fraction(1, 3), percent, "of the starts", "start"),
        Fact("throttled", None, figure, "ms"),
    ]
    table = Table(fact_columns("quantity", "source"), rows, "t")
    assert [column.kind for column in table.columns] == ["text", "number", "text", "text"]
    assert [[cell.csv for cell in row] for row in table.cells] == [
        ["starts", "1234", "", ""],
        ["share", "0.3333333333333333", "of the starts", "start"],
        ["throttled", "", "ms", ""],
    ]
    assert [row[1].text for row in table.cells] == ["1,234", "33.3 %", ABSENT]
    assert len(fact_columns("quantity")) == 3


def test_facts_of_any_type_are_written_for_readers() -> None:
    assert [fact(value) for value in (True, 16384, ["a", 1], 0.5, "x", None)] == [
        "yes",
        "16,384",
        "a, 1",
        "0.5",
        "x",
        ABSENT,
    ]
    assert [relative(value) for value in (Fraction(-2, 3), 0.0, None)] == [
        "-66.7 %",
        "±0 %",
        ABSENT,
    ]


def test_a_page_shows_cells_and_carries_their_digits() -> None:
    columns = [Column("name", 0), Column("value", 1, figure, "ms", mark="bad")]
    table = Table(columns, [("<b>", 0.123456), (Markup("<i>x</i>"), None)], "where & why")
    result = page.html(page.Page("<t>", "k", [page.Section("s", "S", [table])]))
    assert Reader(result).tables == [[["name", "value, ms"], ["<b>", "0.123"], ["x", ABSENT]]]
    assert '<th scope="row" class="text"><span class="name">&lt;b&gt;</span></th>' in result
    assert '<td class="number bad" data-value="0.123456">0.123</td>' in result
    assert "<i>x</i>" in result
    assert "where &amp; why" in result
    assert "vega-runtime" not in result


def test_long_tables_are_folded_unless_they_say_otherwise() -> None:
    def table(rows: int, **more: Any) -> Table:
        return Table([Column("x", 0)], [(1,)] * rows, "t", **more)

    assert [table(16).folded, table(17).folded] == [False, True]
    assert [table(1, fold=True).folded, table(99, fold=False).folded] == [True, False]


def test_records_keep_what_a_frame_holds() -> None:
    frame = pd.DataFrame({"a": [1, 2], "b": [None, "x"], "c": [Decimal("0.1"), None]}, dtype=object)
    assert records(frame) == [
        {"a": 1, "b": None, "c": Decimal("0.1")},
        {"a": 2, "b": "x", "c": None},
    ]
