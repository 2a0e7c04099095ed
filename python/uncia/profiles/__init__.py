"""Profiles: how providers serve functions, a YAML file each, for ``--like``.

The facts about a provider stand in its file alone: the embedded platform takes its settings and
policies from it, the analyses of CPU bandwidth its period, tick rate and sizes.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

from uncia.errors import UnciaError
from uncia.profiles.model import Profile, citations
from uncia.settings import PLATFORM_SETTINGS
from uncia.text import nearest
from uncia.yamlio import load, validate

__all__ = ["Profile", "find", "get", "names", "read"]

_FOLDER = Path(__file__).resolve().parent


def read(path: Path) -> Profile:
    """Read and check one profile.

    Raises:
        UnciaError: the file cannot be read or is not a profile; with file, line and key.
    """
    document = load(path)
    profile = validate(Profile, document)
    for where, source in citations(document.data):
        if source not in profile.sources:
            raise document.error(
                where,
                f"the source {source!r} is not listed under sources",
                sorted(profile.sources),
            )
    for name, value in profile.setting_values().items():
        try:
            PLATFORM_SETTINGS[name].engine_value(value)
        except ValueError as error:
            key = ("settings", name, "value")
            raise document.error(key, str(error)) from error
    return profile


def names() -> tuple[str, ...]:
    """The names of all profiles that ship with Uncia, sorted."""
    return tuple(sorted(path.stem for path in _FOLDER.glob("*.yaml")))


@cache
def get(name: str) -> Profile:
    """Return the profile with this name.

    Raises:
        UnciaError: there is none.
    """
    if name not in names():
        close = nearest(name, names())
        hint = f"Did you mean {close}?" if close else f"Profiles: {', '.join(names())}."
        raise UnciaError(
            f"there is no profile {name!r}", f"{hint} A file of your own ends in .yaml."
        )
    return read(_FOLDER / f"{name}.yaml")


def find(like: str) -> Profile:
    """Return the profile with this name, or in this file, which ends in ``.yaml`` or ``.yml``.

    Raises:
        UnciaError: there is none, or the file is wrong.
    """
    if like.endswith((".yaml", ".yml")):
        return read(Path(like))
    return get(like)
