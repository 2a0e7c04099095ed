"""What bills with a free tier say of tables that are no month's."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from cost_rows import row, table
from typer.testing import CliRunner

from uncia import record
from uncia.backends import Backend, connect
from uncia.cli import build
from uncia.costs.span import span_note

S = 10**9
HOUR = 3600 * S
DAY = 24 * HOUR
EPOCH = 1_700_000_000 * S


@pytest.fixture(scope="module")
def backend() -> Iterator[Backend]:
    with connect() as opened:
        yield opened


def save(path: Path, *started: int, epoch: int | str | None = None, warmup: bool = False) -> Path:
    """A table whose rows start then, ns since its epoch; as a stream, if it is to be one."""
    names = ["warm.warmup" if warmup and not index else "warm" for index in range(len(started))]
    data = table([row(started=it) for it in started])
    data = data.append_column("experiment", pa.array(names, pa.utf8()))
    if path.suffix == ".arrows":
        assert isinstance(epoch, int)
        data = data.append_column("attempt", pa.array([1] * len(started), pa.int64()))
        data = record.conform(data, "invocations", epoch=epoch)
        with pa.ipc.new_stream(path, data.schema) as stream:
            stream.write_table(data)
    else:
        data = data.replace_schema_metadata({} if epoch is None else {record.EPOCH_KEY: str(epoch)})
        pq.write_table(data, path)
    return path


def note(backend: Backend, *paths: Path) -> str | None:
    return span_note(list(paths), backend.table(list(paths)), backend)


@pytest.mark.parametrize(
    ("started", "words"),
    [
        ((0, 28 * DAY - 1), None),
        (tuple(range(HOUR // 2, 28 * DAY, HOUR)), None),  # a February, once an hour
        ((0, 31 * DAY), None),
        ((0, 27 * DAY), "27 days"),
        ((0, 31 * DAY + 1), "31.01 days"),
        ((0, 4000 * DAY), "4,000 days"),
        ((0, 123_456 * DAY // 10), "12,345.6 days"),
        ((0, DAY - S), "86,399 s"),
        ((0, S // 4), "0.25 s"),
        ((7,), "0 s"),
    ],
)
def test_the_month_of_a_free_tier(
    started: tuple[int, ...], words: str | None, backend: Backend, tmp_path: Path
) -> None:
    said = note(backend, save(tmp_path / "a.parquet", *started))
    if words is None:
        assert said is None
    else:
        assert said is not None
        assert said.startswith(f"The rows began within {words}, and")


def test_runs_are_in_order_by_their_epochs(backend: Backend, tmp_path: Path) -> None:
    first = save(tmp_path / "a.parquet", 0, 60 * S, epoch=EPOCH)
    second = save(tmp_path / "b.parquet", -DAY, 0, 60 * S, epoch=EPOCH + 9 * DAY, warmup=True)
    said = note(backend, first, second)
    assert said is not None
    assert "began within 9.01 days" in said  # without the warm-up, which is no row of a bill
    third = save(tmp_path / "c.arrows", 5 * S, epoch=EPOCH + 29 * DAY)
    assert note(backend, first, third) is None  # a month from one to the other
    folder = tmp_path / "parts.parquet"
    folder.mkdir()
    save(folder / "a.parquet", 0, epoch=EPOCH)
    save(folder / "b.parquet", 0, epoch=EPOCH + 2 * DAY)
    said = note(backend, folder)
    assert said is not None
    assert "began within 2 days" in said


@pytest.mark.parametrize("epoch", [None, 0, "soon"])
def test_an_epoch_that_is_not_known(
    epoch: int | str | None, backend: Backend, tmp_path: Path
) -> None:
    known = save(tmp_path / "a.parquet", 0, 60 * S, epoch=EPOCH)
    unknown = save(tmp_path / "b.parquet", 0, 90 * S, epoch=epoch)
    assert note(backend, known, unknown) is None
    said = note(backend, unknown)
    assert said is not None
    assert "began within 90 s" in said


def test_a_bill_of_two_runs(tmp_path: Path) -> None:
    paths = [
        str(save(tmp_path / f"{days}.parquet", 0, 60 * S, epoch=EPOCH + days * DAY))
        for days in (0, 2)
    ]
    command = ["bill", *paths, "-t", "aws-lambda-x86", "--free-tier", "--json"]
    done = CliRunner().invoke(build(), command)
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)
    assert "note: The rows began within 2.01 days" in done.stderr
