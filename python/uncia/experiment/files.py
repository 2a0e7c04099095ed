"""Experiment files: found by path or by name, and read; every error names file, line and key."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

from uncia import yamlio
from uncia.errors import UnciaError
from uncia.experiment.checks import check
from uncia.experiment.model import ExperimentFile
from uncia.paths import data
from uncia.platforms import adapter

_FOLDER_TEMPLATE: Final = Path(__file__).parent.parent / "templates" / "folder.yaml.template"


def find(text: str) -> Path:
    """The experiment file that ``text`` names: a path, or the name of one that ships with Uncia.

    Raises:
        UnciaError: there is neither.
    """
    path = Path(text)
    if path.exists() or path.suffix in (".yaml", ".yml"):
        return path
    shipped = data("experiments") / f"{text}.yaml"
    if shipped.exists():
        return shipped
    known = sorted(file.stem for file in data("experiments").glob("*.yaml"))
    raise UnciaError(
        f"there is no experiment file {text!r}",
        hint=f"Give a path, or one of the experiments that ship with uncia: {', '.join(known)}.",
    )


def load(path: Path, *, platform: str | None = None) -> tuple[ExperimentFile, yamlio.Document]:
    """Read and check an experiment file.

    Args:
        path: the YAML file; or a function's folder, whose warm and cold starts are measured.
        platform: a kind of platform to use instead of the file's, with that kind's defaults.

    Raises:
        UnciaError: the file cannot be read or is not right; with file, line and key.
    """
    document = _of_function(path) if path.is_dir() else yamlio.load(path)
    if platform is not None and isinstance(document.data, dict):
        adapter(platform)
        document.data["platform"] = {"kind": platform}
    return check(document), document


def _of_function(folder: Path) -> yamlio.Document:
    """The experiment of a function's folder that no file describes."""
    from uncia import functions

    function = functions.load(folder)
    text = _FOLDER_TEMPLATE.read_text(encoding="utf-8")
    for key, value in (
        ("NAME", function.name),
        ("FOLDER", json.dumps(f"./{folder.resolve().name}")),
    ):
        text = text.replace(f"@{key}@", value)
    return yamlio.load(text, name=str(folder))
