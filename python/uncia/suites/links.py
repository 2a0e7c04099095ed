"""Runs of several entries that are of one experiment file: the first has the rows."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from uncia.errors import RunFailedError
from uncia.suites.forms import EntryRun


def is_of_file(form: EntryRun) -> bool:
    """Whether a run is given nothing besides its file."""
    return form.listener is None and form.pilot is None and form.capacity is None


def link(folder: Path, made: Path) -> None:
    """Let a run be another entry's, whatever was in its folder.

    Raises:
        RunFailedError: the folder cannot be written.
    """
    try:
        if folder.exists():
            shutil.rmtree(folder)
        folder.parent.mkdir(parents=True, exist_ok=True)
        folder.symlink_to(os.path.relpath(made, folder.parent), target_is_directory=True)
    except OSError as error:
        raise RunFailedError(f"cannot write {folder}: {error.strerror or error}") from error
