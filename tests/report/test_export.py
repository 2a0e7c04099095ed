import csv
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from uncia import record
from uncia.errors import UnciaError
from uncia.report import export

Run = Callable[..., tuple[int, str, str]]


def test_every_table_becomes_a_csv_file(demo_run: Path, tmp_path: Path) -> None:
    paths = [path for path, _ in export.tables(demo_run, tmp_path / "out")]
    assert [path.name for path in paths] == [f"{name}.csv" for name in record.TABLES]
    assert sorted(tmp_path.glob("out/*")) == sorted(paths)


def test_cells_are_exact_and_nulls_are_empty(demo_run: Path, tmp_path: Path) -> None:
    list(export.tables(demo_run, tmp_path))
    table = record.read(demo_run)
    with (tmp_path / "invocations.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == table.num_rows
    assert list(rows[0]) == table.column_names
    for name in ("scheduled", "received", "initialization", "error", "outcome", "experiment"):
        expected = ["" if v is None else str(v) for v in table.column(name).to_pylist()]
        assert [row[name] for row in rows] == expected
    assert {row["connection_reused"] for row in rows} == {"true", "false"}
    with (tmp_path / "bill.csv").open(newline="", encoding="utf-8") as file:
        bills = list(csv.DictReader(file))
    costs = record.read(demo_run, "bill").column("cost_usd").to_pylist()
    assert [row["cost_usd"] for row in bills] == [f"{cost:f}" for cost in costs]
    assert not any("E" in row["cost_usd"] for row in bills)


def test_lists_are_json(demo_run: Path, tmp_path: Path) -> None:
    import pyarrow as pa

    instances = record.conform(
        pa.table(
            {
                "function": ["f", "f"],
                "instance": ["a", "b"],
                "started": [1, 2],
                "idle": [[{"start": 3, "end": 4}], None],
            }
        ),
        "instances",
    )
    record.write(instances, tmp_path / "instances.parquet", "instances")
    list(export.tables(tmp_path, tmp_path / "csv"))
    with (tmp_path / "csv" / "instances.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert json.loads(rows[0]["idle"]) == [{"start": 3, "end": 4}]
    assert rows[1]["idle"] == ""


def test_phases_are_json(tmp_path: Path) -> None:
    import pyarrow as pa

    phases = [[{"duration": 3, "threads": 1, "memory": 64}], [], None]
    plain = {"function": ["f"] * 3, "invocation": ["a", "b", "c"], "attempt": [1] * 3}
    data = pa.table({**plain, "outcome": ["ok"] * 3, "phases": phases})
    record.write(record.conform(data, "invocations"), tmp_path / "invocations.parquet")
    list(export.tables(tmp_path, tmp_path / "csv"))
    with (tmp_path / "csv" / "invocations.csv").open(newline="", encoding="utf-8") as file:
        written = [row["phases"] for row in csv.DictReader(file)]
    assert [text and json.loads(text) for text in written] == [*phases[:2], ""]


@pytest.mark.parametrize(
    ("form", "magic"), [("svg", b"<svg"), ("png", b"\x89PNG"), ("pdf", b"%PDF")]
)
def test_charts_become_pictures(demo_run: Path, tmp_path: Path, form: str, magic: bytes) -> None:
    paths = list(export.charts(demo_run, tmp_path, form))
    assert len(paths) >= 12
    assert {path.suffix for path in paths} == {f".{form}"}
    for path in paths:
        assert path.read_bytes().startswith(magic)


def test_what_cannot_be_exported_is_told(demo_run: Path, tmp_path: Path) -> None:
    with pytest.raises(UnciaError, match="svg, png, pdf"):
        list(export.charts(demo_run, tmp_path, "gif"))
    with pytest.raises(UnciaError, match="neither the folder"):
        list(export.tables(tmp_path / "nothing", tmp_path))
    blocked = tmp_path / "file"
    blocked.write_text("")
    with pytest.raises(UnciaError, match="cannot write"):
        list(export.tables(demo_run, blocked))


def test_the_command(command: Run, demo_run: Path, tmp_path: Path) -> None:
    code, out, err = command("export", demo_run, "--csv", "--out", tmp_path / "x")
    assert code == 0
    assert str(tmp_path / "x" / "invocations.csv") in out
    # What is empty is told, and has a header all the same.
    empty = [name for name in record.TABLES if not record.read(demo_run, name).num_rows]
    assert empty
    assert err == f"Without rows, a header alone: {', '.join(empty)}\n"
    (header,) = (tmp_path / "x" / f"{empty[0]}.csv").read_text().splitlines()
    assert header.startswith('"')
    code, _, err = command("export", demo_run)
    assert code == 2
    assert "--csv" in err


def test_the_report_command(command: Run, demo_run: Path, tmp_path: Path) -> None:
    (demo_run / "report.html").unlink(missing_ok=True)
    code, out, _ = command("report", demo_run)
    assert code == 0
    assert Path(out.strip()) == demo_run / "report.html"
    assert (demo_run / "report.html").exists()
    code, _, err = command("report", tmp_path / "nothing")
    assert code == 2
    assert "does not exist" in err
