"""Settings, policies and runtimes of the embedded platform, as the engine declares them.

``settings.json`` is what ``uncia-engine schema settings`` prints, ``policies.json`` and
``runtimes.json`` likewise. The experiment file's keys, the platform's options, those of ``uncia
serve``, the tags ``uncia:<key>`` and the tables of the reference pages are made from them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from uncia.errors import UnciaError
from uncia.units import NS_PER_MS, NS_PER_US, format_cpu, format_duration, format_size

Value = int | str | bool
"""A setting's value: times in nanoseconds, CPU in micro-vCPU, sizes in bytes, services with blanks
between."""

# Of the numbers that the engine reads; those of a quantity in int64 are narrower still.
UINT64_MAX: Final = (1 << 64) - 1

_NS: Final = {"ms": NS_PER_MS, "us": NS_PER_US}
_UNIT_NAMES: Final = {"ms": "milliseconds", "us": "microseconds"}


@dataclass(frozen=True)
class Setting:
    """A setting as declared.

    Attributes:
        name: its key in experiment files and options.
        scope: ``function`` or ``platform``.
        type: ``duration``, ``cpu``, ``size``, ``integer``, ``boolean``, ``choice``,
            ``services`` or ``cpus``.
        unit: of the engine's numbers: of ``minimum``, ``maximum`` and ``default``, and of values in
            tags and in the engine's configuration.
        minimum: the smallest number, if it is one.
        maximum: the greatest number, if there is one.
        choices: the allowed values, if it is a choice; the services that there may be.
        default: its value unless it is set; None if that depends on something else.
        default_rule: what the default depends on, in words.
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
        """Return the value in the engine's unit.

        Raises:
            ValueError: a time is finer than that.
        """
        if self.type != "duration":
            return value
        assert isinstance(value, int), f"{self.name} is a duration"
        if value % _NS[self.unit]:
            raise ValueError(f"{format_duration(value)} is not {self.whole_number}")
        return value // _NS[self.unit]

    @property
    def whole_number(self) -> str:
        """What a time must be in the engine's unit, in words."""
        return f"a whole number of {_UNIT_NAMES[self.unit]}"

    def from_engine(self, value: int) -> int:
        """Convert a number from the engine's unit to nanoseconds, micro-vCPU, bytes, or itself."""
        return value * _NS.get(self.unit, 1)

    def text(self, number: int) -> str:
        """Write a number in base units for people: ``5min``, ``0.5vCPU``, ``7``."""
        formats = {"duration": format_duration, "cpu": format_cpu, "size": format_size}
        return formats.get(self.type, str)(number)

    def default_text(self) -> str:
        """Return the default as people write it, or what it depends on."""
        if self.default is None:
            return self.default_rule or ""
        if isinstance(self.default, bool):
            return str(self.default).lower()
        if isinstance(self.default, int):
            # A time of zero has its usual unit here, not nanoseconds.
            return self.text(self.from_engine(self.default)) if self.default else f"0{self._zero}"
        return self.default or "none"

    def function_default_text(self) -> str:
        """Return the default for a function, which the platform's configuration may set."""
        return self.default_text() if self.config_key is None else "the platform's"

    @property
    def _zero(self) -> str:
        return {"duration": self.unit, "cpu": "vCPU", "size": "B"}.get(self.type, "")


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
        name: its name in ``function.yaml`` and in the engine's configuration.
        identifier: its name in the Lambda API where its version does not matter.
        requirement: what must be installed for it; None if nothing.
        start_from: what its instances can be started from.
        share_state: what its instances can share, on a machine that has what it takes.
    """

    name: str
    identifier: str
    requirement: str | None
    start_from: tuple[str, ...]
    share_state: tuple[str, ...]


def _read(name: str) -> list[dict[str, Any]]:
    """Read one of the engine's declarations, with lists as tuples."""
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

COMPILED: Final[Mapping[str, str]] = {"go": "provided"}
"""Languages whose functions are executables when they are packaged, with the runtime of these."""

LANGUAGES: Final[Mapping[str, Runtime]] = {
    **RUNTIMES,
    **{language: RUNTIMES[runtime] for language, runtime in COMPILED.items()},
}
"""The runtimes by the names that a function's languages have: ``python``, ``go``."""


def tags(values: Mapping[str, Value], context: str) -> dict[str, str]:
    """Return a function's settings as tags ``uncia:<key>``.

    Args:
        values: by name, in base units.
        context: the beginning of error messages.

    Raises:
        UnciaError: a time is finer than the engine's unit for it.
    """
    result: dict[str, str] = {}
    for name, value in values.items():
        setting = FUNCTION_SETTINGS[name]
        assert setting.tag is not None, "a setting of a function has a tag"
        try:
            text = str(setting.engine_value(value))
        except ValueError as error:
            raise UnciaError(f"{context}: {error}") from error
        result[setting.tag] = text.lower() if setting.type == "boolean" else text
    return result


def configuration(values: Mapping[str, Value], prefix: str) -> dict[str, Value]:
    """Return the platform's settings as the engine's configuration.

    Args:
        values: by name, in base units.
        prefix: precedes the setting's name in error messages.

    Raises:
        UnciaError: a time is finer than the engine's unit for it.
    """
    result: dict[str, Value] = {}
    for name, value in values.items():
        setting = PLATFORM_SETTINGS[name]
        assert setting.config_key is not None, "a setting of the platform has a key"
        try:
            result[setting.config_key] = setting.engine_value(value)
        except ValueError as error:
            raise UnciaError(f"{prefix}{name} must be {setting.whole_number}: {error}") from error
    return result
