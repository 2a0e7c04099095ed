"""Which files a source is made of."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from uncia.errors import UnciaError

_STREAM: Final = ".arrows"
_PARQUET: Final = ".parquet"


@dataclass(frozen=True)
class Files:
    """The files of a source.

    Attributes:
        parquet: Parquet files, and patterns (``*``) of the files of a partitioned table.
        streams: Arrow IPC streams, and run folders that hold them; read into memory.
    """

    parquet: tuple[str, ...]
    streams: tuple[Path, ...]


def files(source: str | Path | Sequence[str | Path], name: str) -> Files:
    """The files that hold a table.

    A folder holds ``NAME.parquet`` (a file, or a folder of parts, as engines write it), or streams,
    or is itself a folder of parts. A path with ``://`` is left to the engine's own file systems.

    Raises:
        UnciaError: a path does not exist, or no path was given.
    """
    paths = [source] if isinstance(source, (str, Path)) else list(source)
    if not paths:
        raise UnciaError("no table was named")
    parquet: list[str] = []
    streams: list[Path] = []
    for one in paths:
        if "://" in str(one):
            parquet.append(str(one))
            continue
        path = Path(one)
        if not path.exists():
            raise UnciaError(f"{path} does not exist")
        inside = path / f"{name}{_PARQUET}"
        if path.is_dir() and inside.exists():
            path = inside
        if path.is_dir() and (path.suffix == _PARQUET or _is_parts(path)):
            parquet.append(str(path / "**" / f"*{_PARQUET}"))
        elif path.is_file() and path.suffix == _PARQUET:
            parquet.append(str(path))
        else:
            streams.append(path)
    return Files(tuple(parquet), tuple(streams))


def _is_parts(path: Path) -> bool:
    from uncia.record import TABLES

    run = any((path / f"{table}{_PARQUET}").exists() for table in TABLES)
    return not run and not any(path.glob(f"*{_STREAM}")) and any(path.rglob(f"*{_PARQUET}"))
