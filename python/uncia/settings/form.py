"""Settings as the keys of a form that a person writes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import AfterValidator, Field, create_model

from uncia.forms import Form
from uncia.settings import POLICIES, UINT64_MAX, Choice, Setting
from uncia.units import Cpu, Duration


def make(
    name: str, base: type[Form], settings: Iterable[Setting], default: Callable[[Setting], str]
) -> type[Form]:
    """A form with a key for each setting, besides those of ``base``; each may be left out.

    Args:
        name: of the form.
        base: what it extends.
        settings: what its keys are.
        default: says what holds if a setting is left out.
    """
    fields: dict[str, Any] = {}
    for setting in settings:
        description = f"{setting.description} Default: {default(setting)}."
        fields[setting.name] = (_type(setting) | None, Field(None, description=description))
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
    """The values of those of these keys that a form does not leave out, by name."""
    values = ((name, getattr(form, name)) for name in names)
    return {name: value for name, value in values if value is not None}


def _type(setting: Setting) -> Any:
    if setting.type == "choice":
        return Literal[setting.choices]
    if setting.type == "boolean":
        return bool
    if setting.type == "integer":
        most = UINT64_MAX if setting.maximum is None else setting.maximum
        return Annotated[int, Field(ge=setting.minimum, le=most)]
    quantity = {"duration": Duration, "cpu": Cpu}[setting.type]
    return Annotated[quantity, AfterValidator(lambda value: _in_range(setting, value))]


def _in_range(setting: Setting, value: int) -> int:
    """The value, in base units.

    :raises ValueError: it is out of the setting's range.
    """
    least = setting.from_engine(setting.minimum or 0)
    most = None if setting.maximum is None else setting.from_engine(setting.maximum)
    if least <= value and (most is None or value <= most):
        return value
    if most is not None:
        rule = f"between {setting.text(least)} and {setting.text(most)}"
    else:
        rule = f"at least {setting.text(least)}"
    raise ValueError(f"must be {rule}, not {setting.text(value)}")
