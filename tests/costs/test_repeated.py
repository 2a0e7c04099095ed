"""Rows that are there more than once: files named twice are refused, copies of rows are told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from cost_rows import MS, instance, instances, row, table
from typer.testing import CliRunner

from uncia.cli import build
from uncia.costs import billed_rows, repeated
from uncia.errors import UnciaError
from uncia.tariffs import yaml_text

LAMBDA = "aws-lambda-x86"
SAYS = (
    "note: 2 invocations are there more than once, in 5 rows of the same platform, function,"
    " invocation and attempt, and each row is billed.\n"
)


def invoke(*arguments: object) -> Any:
    return CliRunner().invoke(build(), [str(word) for word in arguments])


def attempts(*names: tuple[str | None, int | None]) -> pa.Table:
    """Invocations of these names and attempts, which differ in how long they ran."""
    rows = table(
        [row(invocation=name, execution=(index + 1) * MS) for index, (name, _) in enumerate(names)]
    )
    return rows.append_column("attempt", pa.array([number for _, number in names], pa.int64()))


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    """Two invocations with copies, one with two attempts, and some without a name."""
    names = [("a", 1), ("a", 1), ("b", 1), ("b", 2), ("b", 2), ("b", 2), ("c", 1)]
    nameless: list[tuple[str | None, int | None]] = [(None, 1), (None, 1), ("d", None), ("d", None)]
    path = tmp_path / "rows.parquet"
    pq.write_table(attempts(*names, *nameless), path)
    return path


@pytest.mark.parametrize("command", [("bill",), ("cost", "decompose"), ("cost", "rounding")])
@pytest.mark.parametrize("options", [(), ("--json",)])
def test_copies_of_rows_are_told(
    rows: Path, command: tuple[str, ...], options: tuple[str, ...]
) -> None:
    result = invoke(*command, rows, "-t", LAMBDA, *options)
    assert result.exit_code == 0, result.output
    assert SAYS in result.stderr


def test_rows_of_other_places_are_no_copies(tmp_path: Path) -> None:
    paths = []
    for name in ("x", "y"):
        some = attempts(("a", 1), ("a", 2))
        some = some.append_column("run", pa.array([name] * 2))
        paths.append(tmp_path / f"{name}.parquet")
        pq.write_table(some, paths[-1])
    result = invoke("bill", *paths, "-t", LAMBDA)
    assert (result.exit_code, result.stderr) == (0, "")


@pytest.mark.parametrize("run", [None, "r"])
def test_names_are_unique_within_a_run_alone(tmp_path: Path, run: str | None) -> None:
    """Importers number the requests of each trace, so that two of them share numbers."""
    some = attempts(("1", 1), ("1", 1)).append_column("run", pa.array([run] * 2, pa.utf8()))
    started = pa.array([5, 6])
    path = tmp_path / "rows.parquet"
    pq.write_table(some.set_column(some.column_names.index("started"), "started", started), path)
    result = invoke("bill", path, "-t", LAMBDA)
    assert ("1 invocation is there more than once" in result.stderr) == (run is not None)


def test_large_tables_are_not_searched(rows: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (repeated, billed_rows):
        monkeypatch.setattr(module, "MAX_ROWS", 10)
    result = invoke("bill", rows, "-t", LAMBDA)
    assert (result.exit_code, result.stderr) == (0, "")


@pytest.mark.parametrize("again", ["rows.parquet", "link.parquet", "../{folder}/rows.parquet"])
def test_a_file_is_named_once(rows: Path, again: str) -> None:
    (rows.parent / "link.parquet").symlink_to(rows)
    other = rows.parent / again.format(folder=rows.parent.name)
    result = invoke("bill", rows, other, "-t", LAMBDA)
    assert isinstance(result.exception, UnciaError)
    assert result.exception.message == (
        f"{rows.resolve()} is named more than once, and its rows would count each time"
    )


def test_a_folder_stands_for_its_files(tmp_path: Path) -> None:
    file = tmp_path / "invocations.parquet"
    pq.write_table(attempts(("a", 1)), file)
    for again in (tmp_path, file):
        result = invoke("bill", tmp_path, again, "-t", LAMBDA)
        assert isinstance(result.exception, UnciaError)
        assert f"{file.resolve()} is named more than once" in result.exception.message


def test_a_stream_is_named_once(tmp_path: Path) -> None:
    file = tmp_path / "invocations.arrows"
    some = attempts(("a", 1))
    with pa.ipc.new_stream(file, some.schema) as writer:
        writer.write_table(some)
    result = invoke("bill", tmp_path, file, "-t", LAMBDA)
    assert isinstance(result.exception, UnciaError)
    assert f"{file.resolve()} is named more than once" in result.exception.message


def test_copies_of_instances_are_told(tmp_path: Path) -> None:
    """They are paid for twice, and so is what they idled on the account of hints."""
    some = instances([instance(ended=9), instance(ended=9), instance(started=1, ended=9)])
    idle = some.append_column("hint_idle", pa.array([1, 1, 1]))
    pq.write_table(idle, tmp_path / "instances.parquet")
    pq.write_table(attempts(("a", 1)), tmp_path / "invocations.parquet")
    says = (
        "note: 1 instance is there more than once, in 2 rows of the same run, platform, function,"
        " instance and started, and each row is billed.\n"
    )
    result = invoke("cost", "instances", tmp_path, "-t", "aws-ec2-c6g-medium", "--json")
    assert (result.exit_code, result.stderr) == (0, says)
    mine = tmp_path / "mine.yaml"
    priced = '\nidle: {price: "0.25", source: pricing}\n\nsizes:'
    mine.write_text(yaml_text(LAMBDA).replace("\nsizes:", priced, 1))
    assert says in invoke("bill", tmp_path, "-t", mine).stderr
    assert says not in invoke("bill", tmp_path, "-t", LAMBDA).stderr
