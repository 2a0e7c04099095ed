"""Atomic writes: a file or folder gets its name only once it is complete."""

import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from uncia.errors import UnciaError


@contextmanager
def atomic_path(path: Path, *, directory: bool) -> Iterator[Path]:
    """Yield a temporary path next to `path`; rename it to `path` on success, delete it on error.

    An existing file is replaced; a folder that is not empty is an error.

    Args:
        path: the final path.
        directory: whether a folder is written, not a file.

    Raises:
        UnciaError: `path` is taken, or the file system refused.
    """
    if not path.parent.is_dir():
        raise UnciaError(f"cannot write {path}: {path.parent} is no folder", exit_code=1)
    if directory and path.exists() and not (path.is_dir() and not any(path.iterdir())):
        raise UnciaError(f"cannot write {path}: it exists already", exit_code=1)
    if not directory and path.is_dir():
        raise UnciaError(f"cannot write {path}: it is a folder", exit_code=1)
    partial = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}.partial")
    try:
        yield partial
        partial.replace(path)
    except OSError as error:
        raise UnciaError(f"cannot write {path}: {error.strerror or error}", exit_code=1) from error
    except UnciaError as error:
        # Who reads it knows the final name, and the temporary one is gone by then.
        error.message = error.message.replace(str(partial), str(path))
        error.args = (error.message,)
        raise
    finally:
        if partial.is_dir():
            shutil.rmtree(partial, ignore_errors=True)
        else:
            partial.unlink(missing_ok=True)


def check_no_empty_key(folder: Path) -> None:
    """Refuse a partition key of empty text, which some readers take for null.

    Raises:
        UnciaError: a partition folder has such a key.
    """
    for path in folder.rglob("*="):
        raise empty_key_error(path.name[:-1])


def empty_key_error(column: str) -> UnciaError:
    """Return the error of a partition column that holds an empty text."""
    return UnciaError(
        f"the column {column} holds an empty text, which no partition folder can be named after",
        exit_code=1,
    )
