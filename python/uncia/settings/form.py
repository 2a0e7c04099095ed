"""Forms with a key for each setting."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, PlainSerializer, create_model

from uncia.forms import Form
from uncia.settings import POLICIES, UINT64_MAX, Choice, Setting
from uncia.units import Cpu, Duration, Size


def make(
    name: str,
    base: type[Form],
    settings: Iterable[Setting],
    default: Callable[[Setting], str],
    wrap: Callable[[Any], Any] = lambda kind: kind,
) -> type[Form]:
    """Make a form with an optional key for each setting, besides the keys of ``base``.

    Args:
        name: the form's name.
        base: the form that it extends.
        settings: the settings that get keys.
        default: returns the words for a setting's default.
        wrap: returns the type of a key for that of its setting's value.
    """
    fields: dict[str, Any] = {}
    for setting in settings:
        description = f"{setting.description} Default: {default(setting)}."
        fields[setting.name] = (wrap(_type(setting)) | None, Field(None, description=description))
    return create_model(name, __base__=base, __module__=base.__module__, **fields)


def _policy(choice: Choice) -> tuple[Any, Any]:
    description = f"{choice.description} Default: {choice.default}."
    return Literal[choice.policies] | None, Field(None, description=description)


if TYPE_CHECKING:
    Policies = Form
else:
    Policies = create_model(
        "Policies",
        __base__=Form,
        __module__=__name__,
        __doc__="Which policy makes which choice; what is left out is the engine's default.",
        **{choice.name: _policy(choice) for choice in POLICIES.values()},
    )


def given(form: Form, names: Iterable[str]) -> dict[str, Any]:
    """Return the values of these keys of a form, without those that are left out."""
    values = ((name, getattr(form, name)) for name in names)
    return {name: value for name, value in values if value is not None}


def _type(setting: Setting) -> Any:
    if setting.type == "choice":
        return Literal[setting.choices]
    if setting.type == "services":
        return Annotated[
            list[Literal[setting.choices]],  # type: ignore[name-defined]
            BeforeValidator(lambda value: value.split() if isinstance(value, str) else value),
            AfterValidator(" ".join),
            # What is kept is the text that the engine reads, and no list any more.
            PlainSerializer(str, return_type=str),
        ]
    if setting.type == "boolean":
        return bool
    if setting.type == "cpus":
        return Annotated[str, BeforeValidator(_cpus_text), AfterValidator(_cpus)]
    if setting.type == "integer":
        maximum = UINT64_MAX if setting.maximum is None else setting.maximum
        return Annotated[int, Field(ge=setting.minimum, le=maximum)]
    quantity = {"duration": Duration, "cpu": Cpu, "size": Size}[setting.type]
    return Annotated[quantity, AfterValidator(lambda value: _in_range(setting, value))]


def _cpus_text(value: object) -> object:
    """Write a number, or a list of numbers and ranges, as Linux does; anything else as it is."""
    parts = value if isinstance(value, list) else [value]
    if parts and all(isinstance(it, int | str) and not isinstance(it, bool) for it in parts):
        return ",".join(map(str, parts))
    return value


def _cpus(text: str) -> str:
    """Return a list of CPUs as Linux writes it.

    Raises:
        ValueError: it is none.
    """
    numbers(text)
    return text


def numbers(cpus: str) -> list[int]:
    """Return the CPUs that a list such as ``0,2-3`` names, in order.

    Raises:
        ValueError: it names none.
    """
    cpu_numbers: set[int] = set()
    for part in cpus.split(","):
        match = re.fullmatch(r"(\d{1,4})(?:-(\d{1,4}))?", part.strip())
        first, last = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
        if first > last:
            raise ValueError(f"must be numbers of CPUs, such as 0,2-3, not {cpus!r}")
        cpu_numbers.update(range(first, last + 1))
    return sorted(cpu_numbers)


def _in_range(setting: Setting, value: int) -> int:
    """Return the value, in base units.

    Raises:
        ValueError: it is out of the setting's range.
    """
    minimum = setting.from_engine(setting.minimum or 0)
    maximum = None if setting.maximum is None else setting.from_engine(setting.maximum)
    if minimum <= value and (maximum is None or value <= maximum):
        return value
    if maximum is not None:
        rule = f"between {setting.text(minimum)} and {setting.text(maximum)}"
    else:
        rule = f"at least {setting.text(minimum)}"
    raise ValueError(f"must be {rule}, not {setting.text(value)}")
