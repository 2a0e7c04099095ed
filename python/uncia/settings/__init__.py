"""Settings, policies and runtimes of the embedded platform, as the engine declares them.

``settings.json`` is what ``uncia-engine schema settings`` prints, ``policies.json`` and
``runtimes.json`` likewise. The experiment file's keys, the platform's options, those of ``uncia
serve``, the tags ``uncia:<key>`` and the tables of the reference pages are made from them, so that
what is added to the engine is in all of them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from uncia.errors import UnciaError
from uncia.units import NS_PER_MS, NS_PER_US, format_cpu, format_duration

Value = int | str | bool
"""A setting's value: times in nanoseconds, CPU in micro-vCPU."""

# Of the numbers that the engine reads; those of a quantity in int64 are narrower still.
UINT64_MAX: Final = (1 << 64) - 1

_NS: Final = {"ms": NS_PER_MS, "us": NS_PER_US}
_UNIT_NAMES: Final = {"ms": "milliseconds", "us": "microseconds"}


@dataclass(frozen=True)
class Setting:
    """A setting as declared.

    Attributes:
        name: what it is called in experiment files and among options.
        scope: ``function`` or ``platform``.
        type: ``duration``, ``cpu``, ``integer``, ``boolean`` or ``choice``.
        unit: of the engine's numbers: of ``minimum``, ``maximum`` and ``default``, and of values in
            tags and in the engine's configuration.
        minimum: the smallest number, if it is one.
        maximum: the greatest number, if there is one.
        choices: the words that it may be, if it is a choice.
        default: what it is when nobody sets it.
        default_rule: what that follows from, in words, where it is not always the same.
        tag: the tag that sets it for a function; None for the platform's settings.
        config_key: the key that sets it, or its default, in the engine's configuration; None where
            only a function can set it.
        replaces_instances: whether a change of it for a function replaces the function's instances.
        description: a sentence for people.
    """

    name: str
    scope: str
    type: str
    unit: str
    minimum: int | None
    maximum: int | None
    choices: tuple[str, ...]
    default: Value | None
    default_rule: str | None
    tag: str | None
    config_key: str | None
    replaces_instances: bool
    description: str

    def engine_value(self, value: Value) -> Value:
        """The value in the engine's unit.

        :raises ValueError: a time is finer than that.
        """
        if self.type != "duration":
            return value
        assert isinstance(value, int), f"{self.name} is a duration"
        if value % _NS[self.unit]:
            raise ValueError(f"{format_duration(value)} is not {self.whole}")
        return value // _NS[self.unit]

    @property
    def whole(self) -> str:
        return f"a whole number of {_UNIT_NAMES[self.unit]}"

    def from_engine(self, value: int) -> int:
        """A number in the engine's unit as nanoseconds, micro-vCPU, or itself."""
        return value * _NS.get(self.unit, 1)

    def text(self, number: int) -> str:
        """A number as people write it: ``5min``, ``0.5vCPU``, ``7``; in base units."""
        if self.type == "duration":
            return format_duration(number)
        return format_cpu(number) if self.type == "cpu" else str(number)

    def default_text(self) -> str:
        """The default as people write it, or what it follows from."""
        if self.default is None:
            return self.default_rule or ""
        if isinstance(self.default, bool):
            return str(self.default).lower()
        if isinstance(self.default, int):
            # A time of zero has its usual unit here, not nanoseconds.
            return self.text(self.from_engine(self.default)) if self.default else f"0{self._zero}"
        return self.default

    def function_default_text(self) -> str:
        """The default for a function, which the platform's configuration may set."""
        return self.default_text() if self.config_key is None else "the platform's"

    @property
    def _zero(self) -> str:
        return {"duration": self.unit, "cpu": "vCPU"}.get(self.type, "")


@dataclass(frozen=True)
class Choice:
    """A choice of the platform's that a policy makes.

    Attributes:
        name: such as ``order``.
        description: what is chosen, as a sentence.
        default: the policy that makes it unless another is named.
        policies: all that can make it.
    """

    name: str
    description: str
    default: str
    policies: tuple[str, ...]


@dataclass(frozen=True)
class Runtime:
    """A language runtime of the platform.

    Attributes:
        name: what it is called in ``function.yaml`` and in the engine's configuration.
        identifier: what the Lambda API calls it where its version does not matter.
        requirement: what must be installed for it; None if nothing.
        start_from: what its instances can be started from.
    """

    name: str
    identifier: str
    requirement: str | None
    start_from: tuple[str, ...]


def _read(name: str) -> list[dict[str, Any]]:
    """What the engine declares, with lists as tuples."""
    text = Path(__file__).with_name(f"{name}.json").read_text(encoding="utf-8")
    return [
        {key: tuple(value) if isinstance(value, list) else value for key, value in item.items()}
        for item in json.loads(text)
    ]


_ALL: Final = tuple(Setting(**declared) for declared in _read("settings"))

FUNCTION_SETTINGS: Final[Mapping[str, Setting]] = {
    setting.name: setting for setting in _ALL if setting.scope == "function"
}
"""The settings of a function by name."""

PLATFORM_SETTINGS: Final[Mapping[str, Setting]] = {
    setting.name: setting for setting in _ALL if setting.config_key is not None
}
"""What the platform's configuration sets: its own settings, and defaults of functions'."""

POLICIES: Final[Mapping[str, Choice]] = {
    declared["name"]: Choice(**declared) for declared in _read("policies")
}
"""The choices that policies make, by name."""

RUNTIMES: Final[Mapping[str, Runtime]] = {
    declared["name"]: Runtime(**declared) for declared in _read("runtimes")
}
"""The language runtimes by name."""


def tags(values: Mapping[str, Value], where: str) -> dict[str, str]:
    """A function's settings as tags ``uncia:<key>``.

    Args:
        values: by name, in base units.
        where: begins the sentence of an error.

    Raises:
        UnciaError: a time is finer than the engine's unit for it.
    """
    found: dict[str, str] = {}
    for name, value in values.items():
        setting = FUNCTION_SETTINGS[name]
        assert setting.tag is not None, "a setting of a function has a tag"
        try:
            text = str(setting.engine_value(value))
        except ValueError as error:
            raise UnciaError(f"{where}: {error}") from error
        found[setting.tag] = text.lower() if setting.type == "boolean" else text
    return found


def configuration(values: Mapping[str, Value], where: str) -> dict[str, Value]:
    """The platform's settings as the engine's configuration has them.

    Args:
        values: by name, in base units.
        where: precedes the name in the sentence of an error.

    Raises:
        UnciaError: a time is finer than the engine's unit for it.
    """
    found: dict[str, Value] = {}
    for name, value in values.items():
        setting = PLATFORM_SETTINGS[name]
        assert setting.config_key is not None, "a setting of the platform has a key"
        try:
            found[setting.config_key] = setting.engine_value(value)
        except ValueError as error:
            raise UnciaError(f"{where}{name} must be {setting.whole}: {error}") from error
    return found
