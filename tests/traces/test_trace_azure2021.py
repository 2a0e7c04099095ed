"""Azure 2021: times exact to the nanosecond, rows in order, compared with plain Python."""

from __future__ import annotations

from pathlib import Path

import pytest
import trace_oracle as oracle
from hypothesis import example, given, settings
from hypothesis import strategies as st
from trace_files import AZURE2021, left_over, write

from uncia import record
from uncia.errors import UnciaError
from uncia.traces import azure2021, lines

NAMES = st.text("0123456789abcdef", min_size=1, max_size=4)
DIGITS = st.text("0123456789", min_size=1, max_size=8)
TIMES = st.one_of(
    st.builds("{}.{}".format, DIGITS, st.text("0123456789", min_size=0, max_size=24)),
    DIGITS,
    st.builds("{}.{}e{}".format, DIGITS, DIGITS, st.integers(-14, 1)),
    st.floats(min_value=0, max_value=1.3e6).map(repr),
)
ENDS = st.one_of(TIMES, TIMES.map("-{}".format))
ROWS = st.lists(st.tuples(NAMES, NAMES, ENDS, TIMES), min_size=1, max_size=25)


def imported(folder: Path, table: str = "invocations") -> list[dict[str, object]]:
    """The rows of the result, of each only what is not null."""
    rows = record.read(folder, table).to_pylist()
    return [{key: value for key, value in row.items() if value is not None} for row in rows]


@settings(deadline=None, max_examples=30)
@given(rows=ROWS, block=st.sampled_from([16, 64, 1 << 24]))
@example(rows=[("a", "b", "5160.142570018768", "0.134")], block=16)
@example(rows=[("a", "b", "0.0000000005", "0.00000000049999999999")], block=16)
def test_the_table_is_what_plain_python_computes(
    rows: list[tuple[str, ...]], block: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("trace")
    file = write(folder / "trace.txt", AZURE2021, rows)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lines, "BLOCK_BYTES", block)
        done = azure2021.convert([file], folder / "out")
    assert imported(folder / "out") == oracle.azure2021([file])
    assert done.rows == {"invocations": len(rows)}


def test_what_is_not_measured_is_null_and_an_early_start_negative(tmp_path: Path) -> None:
    file = write(tmp_path / "t.txt", AZURE2021, [("a", "f", "0.07949090003967285", "0.078")])
    late = write(tmp_path / "u.txt", AZURE2021, [("a", "g", "1.5", "42.356")])
    azure2021.convert([file, late], tmp_path / "all.parquet")
    table = record.read(tmp_path / "all.parquet")
    assert table["started"].to_pylist() == [-40_856_000_000, 1_490_900]
    assert table["ended"].to_pylist() == [1_500_000_000, 79_490_900]
    assert table["function"].to_pylist() == ["a/g", "a/f"]
    filled = {column for column in table.column_names if table[column].null_count == 0}
    assert filled == {
        "platform",
        "function",
        "invocation",
        "attempt",
        "outcome",
        "started",
        "ended",
        "execution",
    }


def test_rows_that_start_together_stay_in_the_order_of_the_files(tmp_path: Path) -> None:
    rows = [("a", f"f{i}", "1", "0.5") for i in range(50)]
    files = [write(tmp_path / f"{i}.csv", AZURE2021, rows[i : i + 10]) for i in range(0, 50, 10)]
    azure2021.convert(files, tmp_path / "out")
    table = record.read(tmp_path / "out")
    expected = [f"a/f{i}" for file in files for i in range(int(file.stem), int(file.stem) + 10)]
    assert table["function"].to_pylist() == expected
    assert table["invocation"].to_pylist() == [str(i) for i in range(1, 51)]


@pytest.mark.parametrize(
    ("cells", "column", "expected"),
    [
        (("", "f", "1", "1"), "app", "name"),
        (("a", "f g", "1", "1"), "func", "name"),
        (("a", "f/g", "1", "1"), "func", "name"),
        (("a", "f", "soon", "1"), "end_timestamp", "seconds"),
        (("a", "f", "nan", "1"), "end_timestamp", "seconds"),
        (("a", "f", "inf", "1"), "end_timestamp", "seconds"),
        (("a", "f", "1_0", "1"), "end_timestamp", "seconds"),
        (("a", "f", "0x10", "1"), "end_timestamp", "seconds"),
        (("a", "f", " 1", "1"), "end_timestamp", "seconds"),
        (("a", "f", "1e300", "1"), "end_timestamp", "seconds"),
        (("a", "f", "1", "-0.1"), "duration", "seconds, 0 or more"),
        (("a", "f", "1", ""), "duration", "seconds, 0 or more"),
        (("a", "f", "1", "1.2.3"), "duration", "seconds, 0 or more"),
    ],
)
def test_a_bad_cell_is_told_with_its_place_and_can_be_skipped(
    cells: tuple[str, ...], column: str, expected: str, tmp_path: Path
) -> None:
    good = [("a", "f", str(i), "0") for i in range(5)]
    file = write(tmp_path / "t.csv", AZURE2021, [*good[:3], cells, *good[3:]])
    with pytest.raises(UnciaError) as raised:
        azure2021.convert([file], tmp_path / "out", strict=True)
    text = cells[AZURE2021.index(column)]
    index = f"{file}, line 5, column {column}: {text!r} is not"
    assert raised.value.message.startswith(index)
    assert expected in raised.value.message
    assert left_over(tmp_path) == []
    done = azure2021.convert([file], tmp_path / "out")
    assert (done.read, done.skipped, done.rows) == (6, 1, {"invocations": 5})
    assert [reason.startswith(f"{column}: not ") for reason in done.rejected] == [True]
    assert index in done.warnings[0]
    assert imported(tmp_path / "out") == oracle.azure2021([file])


def test_of_several_bad_cells_the_first_is_told(tmp_path: Path) -> None:
    rows = [("a", "f", "1", "1"), ("a", "f", "1", "x"), ("a", "f", "y", "z"), ("a", "f", "w")]
    file = write(tmp_path / "t.csv", AZURE2021, rows)
    with pytest.raises(UnciaError, match="line 3, column duration: 'x'"):
        azure2021.convert([file], tmp_path / "out", strict=True)
    file = write(tmp_path / "t.csv", AZURE2021, rows[2:])
    with pytest.raises(UnciaError, match="line 2, column end_timestamp: 'y'"):
        azure2021.convert([file], tmp_path / "out", strict=True)


def test_every_bad_row_is_counted_and_the_first_are_told(tmp_path: Path) -> None:
    rows = [("a", "f", "1", "x" if i % 2 else "1") for i in range(20)] + [("a", "b")]
    done = azure2021.convert([write(tmp_path / "t.csv", AZURE2021, rows)], tmp_path / "out")
    assert (done.skipped, done.rows) == (11, {"invocations": 10})
    assert "11 bad rows were left out" in done.warnings[0]
    assert len(done.warnings) == 3
    assert done.rejected == {
        "duration: not seconds, 0 or more": 10,
        "broken line: 2 cells instead of 4": 1,
    }
