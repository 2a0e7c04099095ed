"""The data folders that ship with Uncia, in a checkout or in an installed wheel."""

from pathlib import Path

from uncia.errors import UnciaError

_PACKAGE = Path(__file__).resolve().parent


def data(name: str) -> Path:
    """Return the folder ``functions`` or ``experiments`` that ships with Uncia.

    An installed wheel has it inside the package, a checkout at its root.

    Raises:
        UnciaError: it is missing, so the installation is incomplete.
    """
    for candidate in (_PACKAGE / "_data" / name, _PACKAGE.parents[1] / name):
        if candidate.is_dir():
            return candidate
    raise UnciaError(
        f"this installation of uncia has no folder {name!r}",
        hint="Install it again from a complete checkout: pip install ./crates/engine .",
    )
