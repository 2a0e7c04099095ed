"""Where the data files that ship with Uncia are, in a checkout and when installed."""

from pathlib import Path

from uncia.errors import UnciaError

_PACKAGE = Path(__file__).resolve().parent


def data(name: str) -> Path:
    """The folder ``name`` (``functions`` or ``experiments``) that ships with Uncia.

    An installed wheel carries it inside the package; a checkout has it at its root.

    Raises:
        UnciaError: neither place has it, so the installation is incomplete.
    """
    for candidate in (_PACKAGE / "_data" / name, _PACKAGE.parents[1] / name):
        if candidate.is_dir():
            return candidate
    raise UnciaError(
        f"this installation of uncia has no folder {name!r}",
        hint="Install it again from a complete checkout: pip install ./crates/engine .",
    )
