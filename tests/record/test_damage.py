"""Damaged Parquet files: none of them gives other rows, whoever reads it."""

import os
import random
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet
import pytest

from uncia import record
from uncia.backends import connect
from uncia.errors import UnciaError
from uncia.record import parquet

ROWS = 400


def rows() -> pa.Table:
    source = random.Random(5)
    data = pa.table(
        {
            "function": [f"f{source.randrange(9)}" for _ in range(ROWS)],
            "invocation": [f"{source.getrandbits(64):016x}" for _ in range(ROWS)],
            "attempt": [1] * ROWS,
            "outcome": ["ok"] * ROWS,
            "received": [source.randrange(10**12) for _ in range(ROWS)],
        }
    )
    return record.conform(data, "invocations", epoch=42)


def flipped(path: Path, position: int, bit: int) -> None:
    """Flip one bit of a file; done twice, it is as before."""
    with path.open("r+b") as file:
        file.seek(position)
        byte = file.read(1)[0]
        file.seek(position)
        file.write(bytes([byte ^ 1 << bit]))
    # The clock of a file system may be too coarse to tell two changes apart.
    parquet._verified.clear()


def _duckdb(path: Path) -> pa.Table:
    with connect("duckdb") as backend:
        return record.conform(backend.collect(backend.table(path)), "invocations", epoch=42)


def _outcome(read: Callable[[Path], pa.Table], path: Path) -> tuple[str, pa.Table | None]:
    try:
        return "", read(path)
    except UnciaError as error:
        return error.message, None


@pytest.mark.parametrize(("read", "step"), [(record.read, 1), (_duckdb, 301)])
def test_a_flipped_bit_anywhere_is_detected_or_harmless(
    tmp_path: Path, read: Callable[[Path], pa.Table], step: int
) -> None:
    path = record.write(rows(), tmp_path / "invocations.parquet")
    expected = rows().to_pylist()
    source = random.Random(7)
    harmless = []
    size, key = path.stat().st_size, path.read_bytes().rindex(parquet.CHECKSUM_KEY.encode())
    # Where the key is damaged there is no checksum, so all of that is tried on every reader.
    for position in sorted({*range(0, size, step), *range(key - 8, key + 40)}):
        bit = source.randrange(8)
        flipped(path, position, bit)
        message, result = _outcome(read, path)
        if result is None:
            assert str(path) in message, position
        else:
            assert result.to_pylist() == expected, position
            harmless.append(position)
        flipped(path, position, bit)
    # Nothing but the key of the checksum.
    assert len(harmless) <= len(parquet.CHECKSUM_KEY) + 2
    assert read(path).to_pylist() == expected


def test_a_damaged_file_is_not_billed(tmp_path: Path) -> None:
    path = record.write(rows(), tmp_path / "invocations.parquet")
    with connect("duckdb") as backend:
        backend.table(path)
    flipped(path, path.stat().st_size // 2, 3)
    for named in (path, tmp_path):
        with connect("duckdb") as backend, pytest.raises(UnciaError, match="is damaged") as raised:
            backend.table([named])
        assert str(path) in raised.value.message


@pytest.mark.parametrize("keys", [(), ("function",)])
def test_what_duckdb_writes_is_sealed(tmp_path: Path, keys: tuple[str, ...]) -> None:
    target = tmp_path / "out.parquet"
    with connect("duckdb") as backend:
        backend.write(backend.table(rows()), target, keys)
    files = [path for path in target.rglob("*.parquet") if path.is_file()] or [target]
    assert len(files) == (9 if keys else 1)
    parquet.verify(files)
    flipped(files[-1], files[-1].stat().st_size // 2, 1)
    with pytest.raises(UnciaError, match="is damaged"):
        parquet.verify(files)


def test_pages_of_a_file_that_others_wrote_are_checked(tmp_path: Path) -> None:
    path = tmp_path / "invocations.parquet"
    pa.parquet.write_table(rows(), path, compression="none", write_page_checksum=True)
    assert record.read(path).num_rows == ROWS
    identifier = rows()["invocation"][7].as_py().encode()
    flipped(path, path.read_bytes().index(identifier), 0)
    with pytest.raises(UnciaError, match=f"{path}.*CRC"):
        record.read(path)


def test_a_stream_is_removed_only_when_its_table_is_on_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = tmp_path / "invocations.arrows"
    with pa.OSFile(str(stream), "wb") as sink, pa.ipc.new_stream(sink, rows().schema) as writer:
        writer.write_table(rows(), max_chunksize=100)
    synced: list[str] = []
    fsync = os.fsync

    def note(descriptor: int) -> None:
        synced.append(Path(f"/proc/self/fd/{descriptor}").readlink().name)
        assert stream.exists()
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", note)
    assert record.recover_folder(tmp_path) == {"invocations.arrows": ROWS}
    assert synced == ["invocations.parquet.partial", tmp_path.name]
    assert [path.name for path in tmp_path.iterdir()] == ["invocations.parquet"]
    assert record.read(tmp_path).equals(rows())
