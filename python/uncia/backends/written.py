"""Files that appear under their name only when they are complete."""

import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from uncia.errors import UnciaError


@contextmanager
def appearing(path: Path, *, folder: bool) -> Iterator[Path]:
    """A path beside ``path`` to write to, which becomes it at the end; if that fails, it is gone.

    A file that was there is replaced; a folder that holds something is not.

    Args:
        path: the name to appear under.
        folder: whether a folder is to appear.

    Raises:
        UnciaError: the name cannot be had, or the file system refused.
    """
    if not path.parent.is_dir():
        raise UnciaError(f"cannot write {path}: {path.parent} is no folder", exit_code=1)
    if folder and path.exists() and not (path.is_dir() and not any(path.iterdir())):
        raise UnciaError(f"cannot write {path}: it exists already", exit_code=1)
    if not folder and path.is_dir():
        raise UnciaError(f"cannot write {path}: it is a folder", exit_code=1)
    partial = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}.partial")
    try:
        yield partial
        partial.replace(path)
    except OSError as error:
        raise UnciaError(f"cannot write {path}: {error.strerror or error}", exit_code=1) from error
    finally:
        if partial.is_dir():
            shutil.rmtree(partial, ignore_errors=True)
        else:
            partial.unlink(missing_ok=True)


def no_empty_key(folder: Path) -> None:
    """Refuse a partitioned folder with a key of empty text, which is null to some readers.

    Raises:
        UnciaError: there is one.
    """
    for path in folder.rglob("*="):
        empty_key(path.name[:-1])


def empty_key(column: str) -> None:
    """Say that a partition column holds an empty text.

    Raises:
        UnciaError: always.
    """
    raise UnciaError(
        f"the column {column} holds an empty text, which no partition folder can be named after",
        exit_code=1,
    )
