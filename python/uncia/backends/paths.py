"""The files of a source: Parquet files, partitioned folders, addresses and Arrow IPC streams."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pyarrow as pa

from uncia.errors import UnciaError

_STREAM: Final = ".arrows"
_PARQUET: Final = ".parquet"


@dataclass(frozen=True)
class Part:
    """Parquet files with the same partition columns, or an address.

    Attributes:
        paths: the files; or one address (``s3://``), which the engine's file systems read.
        keys: the partition columns, from the folders' names (``day=3``).
        root: the folder that holds those folders; None without keys.
    """

    paths: tuple[str, ...]
    keys: tuple[str, ...] = ()
    root: Path | None = None

    @property
    def remote(self) -> bool:
        """Whether it is an address."""
        return "://" in self.paths[0]


@dataclass(frozen=True)
class Files:
    """The files of a source.

    Attributes:
        parts: Parquet files.
        streams: Arrow IPC streams, and run folders that hold them; read into memory.
    """

    parts: tuple[Part, ...]
    streams: tuple[Path, ...]

    def read_streams(self, name: str) -> pa.Table:
        """Read the rows of the streams, which hold the table `name`."""
        from uncia.record import merge, read

        return merge((read(path, name, is_clipped=True) for path in self.streams), name)


def files(source: str | Path | Sequence[str | Path], name: str) -> Files:
    """List the files of a table and verify their checksums.

    A folder holds ``NAME.parquet`` (a file, or a folder of parts, as engines write it), or streams,
    or is itself a folder of parts. In a folder of parts, names that begin with ``_`` or ``.`` are
    unfinished files, by the convention of engines.

    Raises:
        UnciaError: a path does not exist, a folder holds no table, a file is damaged or named more
            than once, or no path was given.
    """
    paths = _several(source)
    if not paths:
        raise UnciaError("no table was named")
    addresses: list[Part] = []
    local: list[Path] = []
    streams: list[Path] = []
    for item in paths:
        if is_address(item):
            addresses.append(Part((str(item),)))
            continue
        path = Path(item)
        if not path.exists():
            raise UnciaError(f"{path} does not exist")
        inside = path / f"{name}{_PARQUET}"
        if path.is_dir() and inside.exists():
            path = inside
        if path.is_dir() and (path.suffix == _PARQUET or _is_parts(path)):
            local += _parts_of(path)
        elif path.is_file() and path.suffix == _PARQUET:
            local.append(path)
        else:
            streams.append(path)
    _check_once(addresses, local, streams, name)
    from uncia.record import check_whole, parquet

    for path in streams:
        if path.is_file():
            check_whole(path)
    parquet.verify(local)
    for path in local:
        check_columns(path, name)
    return Files((*_grouped(local), *addresses), tuple(streams))


def _check_once(
    addresses: Sequence[Part], local: Sequence[Path], streams: Sequence[Path], name: str
) -> None:
    """Refuse a file that two of the paths lead to: its rows would count twice.

    Raises:
        UnciaError: with the file.
    """
    files = [part.paths[0].rstrip("/") for part in addresses]
    files += [str(path.resolve()) for path in local]
    for path in streams:
        inside = (f"{name}{_STREAM}", f"{name}.*{_STREAM}") if path.is_dir() else ()
        parts = [part for pattern in inside for part in path.glob(pattern)]
        files += [str(part.resolve()) for part in parts or [path]]
    twice = [file for file, count in Counter(files).items() if count > 1]
    if twice:
        raise UnciaError(
            f"{twice[0]} is named more than once, and its rows would count each time",
            "Name each table once; a folder stands for all of its files.",
        )


def check_columns(path: Path, name: str) -> None:
    """Refuse a Parquet file whose columns engines would mistake, as `check_schema`.

    What is wrong with a file that cannot be read is the engine's to say.
    """
    import pyarrow.parquet as pq

    try:
        schema = pq.read_schema(path)
    except (OSError, pa.ArrowException):
        return
    check_schema(schema, name, str(path))


def check_schema(schema: pa.Schema, name: str, source: str = "the table") -> None:
    """Refuse columns that engines would mistake.

    Engines read one of two columns with the same name, and footers tell of the other; letters of
    either case are the same to them. They read a duration as its number, whatever its unit is.

    Args:
        schema: the columns.
        name: of the table that they are for.
        source: where they are, for messages.

    Raises:
        UnciaError: a column is there more than once, or holds durations in another unit than ns.
    """
    from uncia.record import TABLES, columns

    _check_names(schema.names, source)
    declared = columns(name) if name in TABLES else ()
    times = {it.name for it in declared if it.unit == "ns"}
    # The importer converts times, and takes only tables that have these.
    lacking = [it.name for it in declared if not it.nullable and it.name not in schema.names]
    needs = f" (add the columns {', '.join(lacking)} first)" if lacking else ""
    for field in schema:
        is_wrong = pa.types.is_duration(field.type) and field.type.unit != "ns"
        if is_wrong and field.name in times:
            raise UnciaError(
                f"{source}: the column {field.name} is {field.type}, and must hold ns",
                "Write it as duration[ns] or whole ns, or convert it: uncia trace import uncia"
                f"{needs}.",
            )


def _check_names(names: Sequence[str], source: str) -> None:
    twice = sorted(name for name, count in Counter(names).items() if count > 1)
    if twice:
        raise UnciaError(f"{source} has the column {', '.join(twice)} more than once")
    counts = Counter(name.casefold() for name in names)
    alike = sorted(name for name in names if counts[name.casefold()] > 1)
    if alike:
        raise UnciaError(
            f"{source} has the columns {' and '.join(alike)}, and engines take letters of either"
            " case for the same",
            "Rename or drop one of them.",
        )


def holds(source: object, name: str) -> bool:
    """Whether every path of a source is a folder that holds a table of that name."""
    if not isinstance(source, (str, Path, list, tuple)):
        return False
    return all(
        not is_address(path) and (Path(path) / f"{name}{_PARQUET}").exists()
        for path in _several(source)
    )


def is_local(source: object) -> bool:
    """Whether a source is paths of files and folders on this machine."""
    if not isinstance(source, (str, Path, list, tuple)):
        return False
    return not any(is_address(path) for path in _several(source))


def is_address(path: str | Path) -> bool:
    """Whether a path is an address, such as ``s3://bucket/table``."""
    return isinstance(path, str) and "://" in path


def keys_of(folders: Iterable[str]) -> tuple[str, ...]:
    """The partition columns in folders' names, from the outermost in."""
    return tuple(folder.split("=", 1)[0] for folder in folders if "=" in folder)


def _several(source: str | Path | Sequence[str | Path]) -> list[str | Path]:
    return [source] if isinstance(source, (str, Path)) else list(source)


def _is_parts(path: Path) -> bool:
    from uncia.record import TABLES

    run = any((path / f"{table}{_PARQUET}").exists() for table in TABLES)
    return not run and not any(path.glob(f"*{_STREAM}")) and any(path.rglob(f"*{_PARQUET}"))


def _parts_of(folder: Path) -> list[Path]:
    parts = [
        path
        for path in sorted(folder.rglob(f"*{_PARQUET}"))
        if path.is_file() and not any(map(_unfinished, path.relative_to(folder).parts))
    ]
    if not parts:
        raise UnciaError(f"{folder} holds no Parquet file")
    return parts


def _unfinished(part: str) -> bool:
    return part.startswith(".") or (part.startswith("_") and "=" not in part)


def _grouped(paths: Sequence[Path]) -> list[Part]:
    """Group files by partitioned folder; all others are one group."""
    groups: dict[tuple[Path | None, tuple[str, ...]], list[str]] = {}
    for path in paths:
        root, folders = path.parent, list[str]()
        while "=" in root.name:
            folders.insert(0, root.name)
            root = root.parent
        if folders and any("=" in part for part in root.parts):
            raise UnciaError(
                f"{path} lies in partition folders (name=value) and plain ones by turns",
                "Partition folders must be the innermost, and nothing else.",
            )
        key = (root if folders else None, keys_of(folders))
        groups.setdefault(key, []).append(str(path))
    return [Part(tuple(group), keys, root) for (root, keys), group in groups.items()]
