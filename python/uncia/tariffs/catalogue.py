"""The catalogue of tariffs: those that ship with Uncia, one YAML file each, and files of users."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path

from uncia.errors import UnciaError
from uncia.tariffs.model import Tariff
from uncia.text import nearest
from uncia.yamlio import load, validate

_FOLDER = Path(__file__).resolve().parent


def read(path: Path) -> Tariff:
    """Read and check one tariff file.

    Raises:
        UnciaError: the file cannot be read or is not a tariff; with file, line and key.
    """
    document = load(path)
    tariff = validate(Tariff, document)
    for where, source in tariff.cited():
        if source not in tariff.sources:
            raise document.error(
                where, f"the source {source!r} is not listed under sources", sorted(tariff.sources)
            )
    return tariff


def ids() -> tuple[str, ...]:
    """The ids of all tariffs that ship with Uncia, sorted."""
    return tuple(sorted(path.stem for path in _FOLDER.glob("*.yaml")))


def path(name: str) -> Path:
    """Return the file of the tariff with this id, which ships with Uncia."""
    return _FOLDER / f"{name}.yaml"


@cache
def get(name: str) -> Tariff:
    """Return the tariff with this id.

    Raises:
        UnciaError: there is none, or its file is broken.
    """
    if name not in ids():
        close = nearest(name, ids())
        hint = f"Did you mean {close}?" if close else f"Known tariffs: {', '.join(ids())}."
        raise UnciaError(f"there is no tariff {name!r}", hint)
    tariff = read(path(name))
    if tariff.id != name:
        raise UnciaError(f"the file {name}.yaml holds the tariff {tariff.id!r}; they must agree")
    return tariff


def is_model(name: str) -> bool:
    """Whether an id is of a tariff in the catalogue that nobody sells by."""
    return name in ids() and not get(name).sold


def billable() -> tuple[str, ...]:
    """The ids of the tariffs that can price an invocation table: by request, all prices known."""
    return tuple(
        name for name in ids() if not get(name).by_instance and not get(name).unpriced_figures
    )


def resolve(names: Sequence[str | Path | Tariff] | None) -> list[Tariff]:
    """Look up the tariffs of a bill, by id or by path of a file; by default all that can bill.

    Raises:
        UnciaError: an id or a file is unknown or wrong, or a tariff is named twice, bills instance
            time, or lacks a price.
    """
    if names is None:
        return [get(name) for name in billable()]
    tariffs = [find(name) for name in names]
    seen: set[str] = set()
    for name, tariff in zip(names, tariffs, strict=True):
        if tariff.id in seen:
            raise UnciaError(f"the tariff {tariff.id} is named twice")
        seen.add(tariff.id)
        if tariff.by_instance:
            raise UnciaError(
                f"the tariff {tariff.id} bills the time that instances exist, whatever they do; "
                "that is in the instances table, not in the invocation table",
                f"Choose among the tariffs that bill by request: {', '.join(billable())}.",
            )
        if tariff.unpriced_figures:
            raise UnciaError(
                f"the tariff {tariff.id} cannot price anything: no public price is known for "
                f"{' and '.join(tariff.unpriced_figures)}",
                how_to_price(tariff, None if isinstance(name, Tariff) else name) + ".",
            )
    return tariffs


def how_to_price(tariff: Tariff, name: str | Path | None = None) -> str:
    """Say how a tariff without public prices gets some, without a full stop.

    Args:
        tariff: lacks a price.
        name: its id or file, if that is known.
    """
    if name is not None and _is_path(name):
        return f"Fill in your prices in {name}"
    if tariff.id in ids() and get(tariff.id) == tariff:
        return (
            f"Copy the tariff (uncia tariffs show {tariff.id} --yaml), fill in your prices and name"
            " the file: --tariff ./my-tariff.yaml"
        )
    return "Fill in your prices in its file"


def find(name: str | Path | Tariff) -> Tariff:
    """Look up a tariff by its id, or by the path of its file (with a ``/``, .yaml or .yml).

    Raises:
        UnciaError: there is none, or its file is broken.
    """
    if isinstance(name, Tariff):
        return name
    return read(Path(name)) if _is_path(name) else get(str(name))


def yaml_text(name: str) -> str:
    """Return the text of a tariff's file, by id or path, after checking it.

    Raises:
        UnciaError: there is no such tariff, or its file is broken.
    """
    find(name)
    path = Path(name) if _is_path(name) else _FOLDER / f"{name}.yaml"
    return path.read_text(encoding="utf-8")


def _is_path(name: str | Path) -> bool:
    return isinstance(name, Path) or name.endswith((".yaml", ".yml")) or "/" in name
