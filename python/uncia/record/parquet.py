"""Parquet files with checksums, so that damage is detected before they are read.

Every page that Uncia writes carries a CRC-32, which any reader may check. It does not cover the
page's header or the footer, whose counts, offsets and extrema decide what is read at all, and
DuckDB checks none. So the footer also holds a CRC-32 of the whole file, under
:data:`CHECKSUM_KEY`, computed with zeros in place of its own digits. Checking it decodes nothing
and takes one pass over the bytes, about 0.3 s per GiB and core; no damaged byte reaches a decoder.
"""

import os
import re
import zlib
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event
from typing import Any, BinaryIO, Final

import pyarrow as pa
import pyarrow.parquet as pq

from uncia.errors import UnciaError

_MAGIC: Final = b"PAR1"
_STREAM_MAGIC: Final = b"\xff\xff\xff\xff"

CHECKSUM_KEY: Final = "uncia.checksum"
UNSEALED: Final = "crc32:00000000"
"""The checksum of a file that is still being written."""

_DIGITS: Final = 8
_BLOCK_BYTES: Final = 4 << 20
# Key-value metadata is among the last things in a footer, behind the list of row groups.
_TAIL_BYTES: Final = 1 << 20
# A key and a value as Thrift's compact protocol writes them: a field's header, a length, the text.
_MARK: Final = CHECKSUM_KEY.encode() + bytes([0x18, len(UNSEALED)])
_VALUE: Final = re.compile(rb"crc32:([0-9a-f]{8})")

# What has been verified, by path: a file's identity, size and time of change.
_Identity = tuple[int, int, int, int]
_verified: dict[Path, _Identity] = {}


def unreadable(path: Path | str, error: Exception, what: str = "a table") -> UnciaError:
    """The error of a file that cannot be read, which says so if it never was a table.

    Args:
        path: of the file.
        error: why it cannot be read.
        what: what it cannot be read as.
    """
    start = f"{path} cannot be read as {what}"
    try:
        with Path(path).open("rb") as file:
            begin = file.read(len(_MAGIC))
    except OSError:
        begin = _MAGIC
    if begin in (_MAGIC, _STREAM_MAGIC):
        return UnciaError(f"{start}: {error}")
    return UnciaError(
        f"{start}: it is neither a Parquet file nor an Arrow IPC stream",
        "Convert CSV with any tool that writes Parquet, such as DuckDB:"
        " COPY (FROM 'rows.csv') TO 'rows.parquet'.",
    )


class Writer:
    """Writes a Parquet file part by part; its checksum is added when it is closed."""

    def __init__(self, path: Path, schema: pa.Schema, **settings: Any) -> None:
        """Create the file.

        Args:
            path: of the file; an existing one is replaced.
            schema: of the rows.
            settings: of :class:`pyarrow.parquet.ParquetWriter`; compression is zstd by default.
        """
        self._path = path
        self._writer = pq.ParquetWriter(
            path, schema, write_page_checksum=True, **{"compression": "zstd", **settings}
        )

    def write(self, rows: pa.Table, row_group_size: int | None = None) -> None:
        """Append rows."""
        self._writer.write_table(rows, row_group_size=row_group_size)

    def close(self) -> None:
        """Complete the file and wait until it is on the disk."""
        if self._writer.is_open:
            self._writer.add_key_value_metadata({CHECKSUM_KEY: UNSEALED})
            self._writer.close()
            seal(self._path)

    def abandon(self) -> None:
        """Close the file without a checksum."""
        self._writer.close()

    def __enter__(self) -> "Writer":
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            self.close()
        else:
            self.abandon()


def seal(path: Path) -> None:
    """Write the checksum into a file whose metadata holds :data:`UNSEALED`; wait for the disk."""
    with path.open("r+b") as file:
        position = _digits_position(file)
        if position is None:
            raise ValueError(f"{path} has no place for a checksum")
        digits = f"{_checksum(file, position):0{_DIGITS}x}".encode()
        file.seek(position)
        file.write(digits)
        file.flush()
        os.fsync(file.fileno())


def verify(paths: Iterable[Path | str]) -> None:
    """Verify the checksums of Parquet files, of those that have one.

    A file is read again only if it has changed since.

    Raises:
        UnciaError: a file is damaged, or cannot be read.
    """
    unknown = [path for path in map(Path, paths) if _verified.get(path) != _identify(path)]
    if len(unknown) == 1:
        _verify(unknown[0], Event())
        return
    stop = Event()
    with ThreadPoolExecutor(os.cpu_count()) as threads:
        try:
            for _ in threads.map(lambda path: _verify(path, stop), unknown):
                pass
        except BaseException:
            stop.set()
            threads.shutdown(cancel_futures=True)
            raise


def read_table(path: Path, columns: Sequence[str] | None = None, **options: Any) -> pa.Table:
    """Verify a Parquet file and read it.

    Args:
        path: of the file.
        columns: those that are read; all if it is None.
        options: of :class:`pyarrow.parquet.ParquetFile`.

    Raises:
        UnciaError: it is damaged.
        ArrowInvalid: a column is not there, or there twice.
    """
    # Arrow's own function of this name loads pandas, where that is installed.
    with open_file(path, pre_buffer=True, **options) as file:
        table = file.read(columns=None if columns is None else list(columns))
    if columns is not None and table.column_names != list(columns):
        raise pa.ArrowInvalid(f"{path} does not have each of {', '.join(columns)} once")
    return table


def open_file(path: Path, **options: Any) -> pq.ParquetFile:
    """Verify a Parquet file and open it.

    Args:
        path: of the file.
        options: of :class:`pyarrow.parquet.ParquetFile`.

    Raises:
        UnciaError: it is damaged.
    """
    verify([path])
    return pq.ParquetFile(path, page_checksum_verification=True, **options)


def sync_folder(folder: Path) -> None:
    """Wait until the names of a folder's files are on the disk, where the system supports it."""
    if not hasattr(os, "O_DIRECTORY"):
        return
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _verify(path: Path, stop: Event) -> None:
    try:
        identity = _identify(path)
        with path.open("rb") as file:
            position = _digits_position(file)
            if position is not None and not _is_whole(file, position, stop):
                raise UnciaError(
                    f"{path} is damaged: its bytes do not have the checksum that it was written"
                    " with",
                    hint="Restore it from a copy, or make it again.",
                    exit_code=1,
                )
    except OSError as error:
        raise UnciaError(f"{path} cannot be read: {error.strerror or error}") from error
    if identity is not None and not stop.is_set():
        _verified[path] = identity


def _identify(path: Path) -> _Identity | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)


def _is_whole(file: BinaryIO, position: int, stop: Event) -> bool:
    file.seek(position - len(UNSEALED) + _DIGITS)
    value = _VALUE.fullmatch(file.read(len(UNSEALED)))
    return value is not None and int(value[1], 16) == _checksum(file, position, stop)


def _digits_position(file: BinaryIO) -> int | None:
    """The offset of the checksum's digits in a file; None if it has no checksum."""
    size = file.seek(0, os.SEEK_END)
    start = max(0, size - _TAIL_BYTES)
    file.seek(start)
    mark = file.read().rfind(_MARK)
    if mark < 0:
        return None
    return start + mark + len(_MARK) + len(UNSEALED) - _DIGITS


def _checksum(file: BinaryIO, position: int, stop: Event | None = None) -> int:
    """The CRC-32 of a file with zeros in place of the digits at a position."""
    crc = 0
    for block in _blocks(file, 0, position):
        crc = zlib.crc32(block, crc)
        if stop is not None and stop.is_set():
            return crc
    crc = zlib.crc32(b"0" * _DIGITS, crc)
    for block in _blocks(file, position + _DIGITS, None):
        crc = zlib.crc32(block, crc)
    return crc


def _blocks(file: BinaryIO, start: int, end: int | None) -> Iterator[bytes]:
    file.seek(start)
    while end is None or start < end:
        block = file.read(_BLOCK_BYTES if end is None else min(_BLOCK_BYTES, end - start))
        if not block:
            return
        start += len(block)
        yield block
