"""Synthetic traces in the raw formats of the providers', one module a kind, found by place.

A module here that has a ``KIND`` makes one. It defines

* ``KIND``, by which a person names it: that of the reader of such files;
* ``DESCRIPTION``: what it makes, and what it is calibrated to;
* ``make(order)``, which writes the files that a `base.Order` asks for and returns a `base.Made`.

The same order gives the same bytes; more rows begin with the rows of fewer.
"""

import importlib
import pkgutil
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Protocol, cast

from uncia.errors import UnciaError
from uncia.traces.synth.base import Made, Order, checked, write_account

__all__ = ["Made", "Order", "Synthesizer", "find", "known", "make"]


class Synthesizer(Protocol):
    """What a module of a kind defines."""

    KIND: str
    DESCRIPTION: str

    def make(self, order: Order) -> Made:
        """Write the files."""


def known() -> dict[str, Synthesizer]:
    """The kinds, by name."""
    modules = (
        importlib.import_module(f"{__name__}.{info.name}")
        for info in sorted(pkgutil.iter_modules(__path__), key=lambda info: info.name)
    )
    return {module.KIND: cast(Synthesizer, module) for module in modules if hasattr(module, "KIND")}


def find(name: str) -> Synthesizer:
    """The kind of that name, whatever its case, and whether with ``-``, ``_`` or neither.

    Raises:
        UnciaError: there is none.
    """
    kinds = known()
    for kind, module in kinds.items():
        if _plain(kind) == _plain(name):
            return module
    raise UnciaError(
        f"no synthetic trace {name!r} can be made", hint=f"The kinds are: {', '.join(kinds)}."
    )


def _plain(name: str) -> str:
    return name.casefold().replace("-", "").replace("_", "")


def make(
    kind: str,
    rows: int,
    out: Path | str,
    *,
    seed: int = 1,
    files: int | None = None,
    malformed: float = 0,
    gzip: bool = False,
    parquet: bool = False,
    jobs: int | None = None,
) -> Made:
    """Write a synthetic trace, and ``planted.json`` that lists what is in it.

    Args:
        kind: the name of a kind.
        rows: requests (of traces that count requests: rows of the main table).
        out: a folder, made if it does not exist; it may not hold anything.
        seed: from which everything is drawn.
        files: into how many files the rows are divided (days, weeks, or parts of a region);
            by default what suits the number of rows.
        malformed: share of the rows to spoil, from 0 to 1.
        gzip: whether to compress the files.
        parquet: whether to write Uncia's invocation table instead, with the values that an import
            of the files would have.
        jobs: processes that write at the same time; by default one for each processor.

    Raises:
        UnciaError: there is no such kind, an argument is out of range or not for this kind, or
            nothing can be written.
    """
    module = find(kind)
    order = checked(
        Order(Path(out), rows, seed, files, malformed, gzip, parquet, jobs), module.KIND
    )
    missing = not order.out.exists()
    try:
        order.out.mkdir(parents=True, exist_ok=True)
        made = module.make(order)
        write_account(order, module.KIND, made)
    except OSError as error:
        _clear(order.out, missing)
        raise UnciaError(f"cannot write {out}: {error.strerror or error}", exit_code=1) from error
    except BaseException:  # Ctrl-C too: what is incomplete would look like a trace
        _clear(order.out, missing)
        raise
    return made


def _clear(folder: Path, itself: bool) -> None:
    """Remove what was written into a folder that was empty, and the folder if it was made."""
    with suppress(OSError):  # a disk that fails, which the error that led here names
        for path in folder.iterdir():
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        if itself:
            folder.rmdir()
