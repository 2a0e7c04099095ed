"""The form of ``function.yaml``, and checks of events and answers against it."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, Self

from pydantic import AfterValidator, Field, PrivateAttr, create_model, model_validator

from uncia.errors import UnciaError
from uncia.forms import Form, Name
from uncia.functions.maven import REQUIREMENT as ARTIFACT
from uncia.settings import RUNTIMES
from uncia.units import Duration, Size, UnitError, parse_duration, parse_size
from uncia.yamlio import Document, KeyPath

Value = int | float | str | bool
"""A parameter's value as it stands in an event: a number is in the parameter's unit."""

Unit = Literal["ns", "us", "ms", "s", "B", "KB", "MB", "GB"]
_DURATIONS: Final = ("ns", "us", "ms", "s")

ENVELOPE: Final = "uncia"
"""The key of an answer under which a function reports on itself."""

_ENVELOPE_TYPES: Final[dict[str, type]] = {
    "fresh": bool,
    "instance": str,
    "handler_start_ns": int,
    "handler_end_ns": int,
    "cpu_ns": int,
    "valid": bool,
}

BOOTSTRAP: Final = "bootstrap"
"""The executable that a platform starts for a function with a runtime of its own."""

_HANDLER: Final = re.compile(r"(?:[A-Za-z_][\w-]*[./])*[A-Za-z_][\w-]*\.[A-Za-z_]\w*")
_RUBY_HANDLER: Final = re.compile(
    r"(?:[A-Za-z_][\w-]*/)*[A-Za-z_][\w-]*\.(?:[A-Z]\w*(?:::[A-Z]\w*)*\.)?[A-Za-z_]\w*[?!]?"
)
_JAVA_HANDLER: Final = re.compile(r"[A-Za-z_$][\w$]*(?:\.[A-Za-z_$][\w$]*)*(?:::[A-Za-z_$][\w$]*)?")
_PARAMETER: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SOURCE: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]*\.c")
_REQUIREMENT: Final = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?")


def _check_handler(text: str) -> str:
    if _HANDLER.fullmatch(text) is None:
        raise ValueError(f"{text!r} is not a handler: write module.function, e.g. handler.handler")
    return text


def _check_ruby_handler(text: str) -> str:
    if _RUBY_HANDLER.fullmatch(text) is None:
        raise ValueError(
            f"{text!r} is not a handler: write file.method or file.Module::Class.method"
        )
    return text


def _check_java_handler(text: str) -> str:
    if _JAVA_HANDLER.fullmatch(text) is None:
        raise ValueError(f"{text!r} is not a handler: write package.Class::method")
    return text


def _check_parameter_name(text: str) -> str:
    if _PARAMETER.fullmatch(text) is None:
        raise ValueError(f"{text!r} is not a parameter's name: write letters, digits and _")
    return text


def _check_requirement(text: str) -> str:
    if _REQUIREMENT.fullmatch(text) is None:
        raise ValueError(
            f"{text!r} is not a distribution's name: versions and hashes belong in requirements.txt"
        )
    return text


def _check_artifact(text: str) -> str:
    if ARTIFACT.fullmatch(text) is None:
        raise ValueError(f"{text!r} is no artifact: write group:artifact:version")
    return text


def _check_source(text: str) -> str:
    if _SOURCE.fullmatch(text) is None:
        raise ValueError(f"{text!r} is not a C file in the folder: write for example bootstrap.c")
    return text


Handler = Annotated[str, AfterValidator(_check_handler)]


class ManagedRuntime(Form):
    """The function in one of the platform's languages, in the folder of its name."""

    handler: Handler = Field(description="module.function")


class PythonRuntime(ManagedRuntime):
    """The function in Python, in its folder ``python``."""

    handler: Handler = Field(description="module.function, called with (event, context)")
    requirements: list[Annotated[str, AfterValidator(_check_requirement)]] = Field(
        default_factory=list,
        description="Distributions it imports; python/requirements.txt locks them with hashes",
    )


class NodeRuntime(ManagedRuntime):
    """The function in JavaScript, in its folder ``node``.

    What it needs its ``package.json`` requires and its ``package-lock.json`` pins, or lies in
    ``node_modules``.
    """

    handler: Handler = Field(description="module.export, called with (event, context)")


class RubyRuntime(Form):
    """The function in Ruby, in its folder ``ruby``, with its gems in vendor/bundle if any."""

    handler: Annotated[str, AfterValidator(_check_ruby_handler)] = Field(
        description="file.method or file.Module::Class.method, called with (event:, context:)"
    )


class ProvidedRuntime(Form):
    """The function with a runtime of its own, in its folder ``provided``: a ``bootstrap``."""

    source: Annotated[str, AfterValidator(_check_source)] | None = Field(
        None,
        description="C file that the executable bootstrap is compiled from, statically; without"
        " it, the folder holds the executable",
    )

    @property
    def handler(self) -> str:
        """The handler for the Lambda API, which is always the executable's name."""
        return BOOTSTRAP


class JavaRuntime(Form):
    """The function in Java, in its folder ``java``: sources, or classes, with its jars in lib."""

    handler: Annotated[str, AfterValidator(_check_java_handler)] = Field(
        description="package.Class::method, or package.Class, which implements RequestHandler or"
        " RequestStreamHandler"
    )
    requirements: list[Annotated[str, AfterValidator(_check_artifact)]] = Field(
        default_factory=list,
        description="Artifacts of Maven's that it needs, group:artifact:version;"
        " java/requirements.txt locks them with hashes",
    )


class GoRuntime(Form):
    """The function in Go, in its folder ``go``: a module whose program is built statically."""

    @property
    def handler(self) -> str:
        """The handler for the Lambda API, which is always the executable's name."""
        return BOOTSTRAP


# In this order: the first that a function has is the one that is used unless another is chosen.
_RUNTIMES: Final[dict[str, type[Form]]] = {
    "python": PythonRuntime,
    "node": NodeRuntime,
    "ruby": RubyRuntime,
    "java": JavaRuntime,
    "go": GoRuntime,
    "provided": ProvidedRuntime,
}


class _Runtimes(Form):
    @model_validator(mode="after")
    def _at_least_one(self) -> Self:
        if not self.names:
            known = " or ".join(type(self).model_fields)
            raise ValueError(f"a function has at least one runtime: {known}")
        return self

    @property
    def names(self) -> list[str]:
        """The runtimes that are given."""
        return [name for name in type(self).model_fields if getattr(self, name) is not None]


def _make_runtimes() -> type[_Runtimes]:
    """Make a form with a key for each runtime of the engine; unknown ones have a handler."""
    forms = _RUNTIMES | {name: ManagedRuntime for name in RUNTIMES if name not in _RUNTIMES}
    fields: dict[str, Any] = {name: (form | None, None) for name, form in forms.items()}
    return create_model(
        "Runtimes",
        __base__=_Runtimes,
        __module__=__name__,
        __doc__="The languages that the function exists in.",
        **fields,
    )


if TYPE_CHECKING:
    Runtimes = _Runtimes
else:
    Runtimes = _make_runtimes()


class Parameter(Form):
    """One key of the function's event."""

    description: str
    type: Literal["integer", "number", "text", "boolean"]
    unit: Unit | None = Field(None, description="The unit that the handler takes the number in")
    default: Value
    min: int | float | str | None = Field(None, description="The least value, with its unit")
    max: int | float | str | None = Field(None, description="The greatest value, with its unit")
    choices: list[str] = Field(default_factory=list, description="The texts that are allowed")

    @model_validator(mode="after")
    def _fits(self) -> Self:
        numeric = self.type in ("integer", "number")
        if not numeric and (self.unit or self.min is not None or self.max is not None):
            raise ValueError(f"unit, min and max are for numbers; the type is {self.type}")
        if self.choices and self.type != "text":
            raise ValueError(f"choices are for text; the type is {self.type}")
        low, high = self.low, self.high
        if low is not None and high is not None and low > high:
            raise ValueError(f"min {self.min} is above max {self.max}")
        self.value(self.default)
        return self

    @property
    def low(self) -> int | float | None:
        """``min`` as a number in the unit."""
        return None if self.min is None else self._number(self.min)

    @property
    def high(self) -> int | float | None:
        """``max`` as a number in the unit."""
        return None if self.max is None else self._number(self.max)

    def value(self, written: object) -> Value:
        """Convert what a person wrote to the value for the event.

        A number with a unit is written with one (``50ms``, ``2MB``) and comes out as a number in
        the parameter's unit: an int where that is exact, else the nearest float.

        Raises:
            ValueError: wrong type, no or wrong unit, out of range; says what is allowed.
        """
        if self.type == "boolean":
            if not isinstance(written, bool):
                raise ValueError(f"{written!r} is not true or false")
            return written
        if self.type == "text":
            if not isinstance(written, str):
                raise ValueError(f"{written!r} is not text")
            if self.choices and written not in self.choices:
                raise ValueError(f"{written!r} is not one of {', '.join(self.choices)}")
            return written
        number = self._number(written)
        if self.type == "integer" and not isinstance(number, int):
            raise ValueError(
                f"{written!r} is not a whole number{f' of {self.unit}' if self.unit else ''}"
            )
        if self.low is not None and number < self.low:
            raise ValueError(f"{written!r} is below {self.min}, the least allowed")
        if self.high is not None and number > self.high:
            raise ValueError(f"{written!r} is above {self.max}, the most allowed")
        return number

    def _number(self, written: object) -> int | float:
        if self.unit is None:
            if isinstance(written, bool) or not isinstance(written, int | float):
                raise ValueError(f"{written!r} is not a number")
            if not math.isfinite(written):
                raise ValueError(f"{written!r} is not a finite number")
            return int(written) if written == int(written) else written
        parse = parse_duration if self.unit in _DURATIONS else parse_size
        try:
            exact = Fraction(parse(written), parse(f"1{self.unit}"))
        except UnitError as error:
            raise ValueError(str(error)) from error
        return exact.numerator if exact.denominator == 1 else float(exact)


class Checks(Form):
    """What can be checked of an answer by its keys."""

    required: list[str] = Field(default_factory=list, description="Keys that an answer has")
    equal: dict[str, Value] = Field(default_factory=dict, description="Keys and their exact values")


class Answer(Form):
    """What a correct answer looks like."""

    text: str = Field(description="For a person")
    check: Checks = Field(default_factory=Checks)


Presets = dict[str, Any]


class Sizes(Form):
    """Parameters for a quick test, for small and for large work."""

    test: Presets
    small: Presets
    large: Presets


class Root(Form):
    """The root file system that a function brings: from Debian packages, or a layout."""

    packages: list[str] = Field(
        default_factory=list, description="Debian packages that it is made of, by mmdebstrap"
    )
    suite: str | None = Field(
        None, description="Debian's suite of the packages; by default the machine's"
    )
    layout: str | None = Field(
        None, description="Instead of packages: an OCI image layout, a folder beside this file"
    )

    @model_validator(mode="after")
    def _one_origin(self) -> Self:
        if bool(self.packages) == (self.layout is not None):
            raise ValueError("a root has either packages or a layout")
        if self.suite is not None and self.layout is not None:
            raise ValueError("suite is for packages; a layout has its own")
        return self


class Function(Form):
    """A function of the catalogue, or of yours."""

    name: Name
    description: str
    runtimes: Runtimes
    parameters: dict[Annotated[str, AfterValidator(_check_parameter_name)], Parameter] = Field(
        description="The keys of its event"
    )
    sizes: Sizes
    answer: Answer
    memory: Size = Field(gt=0, description="Memory it is given unless an experiment says otherwise")
    timeout: Duration = Field(
        gt=0, description="Its time limit unless an experiment says otherwise"
    )
    transfers: bool = Field(
        False,
        description="Whether it hands payloads on as relay does, with its parameters payload, size,"
        " by and threshold",
    )
    root: Root | None = Field(
        None, description="The root file system that it brings, on platforms that take images"
    )

    _folder: Path = PrivateAttr(default=Path())
    # Of a plain folder: its requirements and its lock.
    _plain: tuple[list[str], Path] | None = PrivateAttr(default=None)

    @property
    def folder(self) -> Path:
        """Where its ``function.yaml`` lies, or its handler."""
        return self._folder

    @property
    def takes_any_event(self) -> bool:
        """Whether it says nothing of its parameters, as a plain folder."""
        return self._plain is not None

    def make_plain(self, requirements: list[str], lock: Path) -> None:
        """Take the handler from the folder itself, with these requirements and this lock."""
        self._plain = requirements, lock

    def runtime_folder(self, runtime: str) -> Path:
        """Where the files of a runtime lie."""
        return self.folder if self._plain is not None else self.folder / runtime

    @property
    def runtime_names(self) -> list[str]:
        """The runtimes it exists in, such as ``python``; the first is the default."""
        return self.runtimes.names

    def requirements(self, runtime: str) -> list[str]:
        """What it requires in Python or Java; that of Node.js is in its ``package.json``."""
        if self._plain is not None:
            return self._plain[0] if runtime in self.runtime_names else []
        return list(getattr(getattr(self.runtimes, runtime, None), "requirements", ()))

    def requirements_hint(self) -> str:
        """Where requirements are written down."""
        if self._plain is not None:
            return f"List them in {self.folder / 'requirements.txt'}."
        runtime = "java" if self.runtime_names[0] == "java" else "python"
        return f"List them in {self.folder / 'function.yaml'}: runtimes.{runtime}.requirements."

    def lock_path(self, runtime: str) -> Path:
        """The file that pins its requirements in Python or Java."""
        if self._plain is not None:
            return self._plain[1]
        return self.folder / runtime / "requirements.txt"

    def preset(self, size: str) -> dict[str, Value]:
        """Return the event of one of its sizes: ``test``, ``small`` or ``large``.

        Raises:
            UnciaError: there is no such size.
        """
        if size not in Sizes.model_fields:
            raise UnciaError(
                f"{self.name} has no size {size!r}", hint=f"Sizes: {', '.join(Sizes.model_fields)}."
            )
        return validate_params(self, getattr(self.sizes, size))


def validate_params(function: Function, params: Mapping[str, Any]) -> dict[str, Value]:
    """Return the event for parameters, with defaults for those that are left out.

    Args:
        function: whose parameters they are.
        params: name -> value; a number of a parameter that has a unit is text with one (``50ms``).

    Raises:
        UnciaError: an unknown name, or a value that the parameter does not take.
    """
    for name in params:
        if name not in function.parameters:
            allowed = ", ".join(function.parameters) or "none"
            raise UnciaError(f"{function.name} has no parameter {name!r} (allowed: {allowed})")
    event: dict[str, Value] = {}
    for name, parameter in function.parameters.items():
        try:
            event[name] = parameter.value(params.get(name, parameter.default))
        except ValueError as error:
            raise UnciaError(f"parameter {name} of {function.name}: {error}") from error
    return event


def check_presets(function: Function, document: Document) -> None:
    """Check that every size names parameters that exist, with values that they take.

    Raises:
        UnciaError: a preset is wrong; the message has file, line and key.
    """
    for size in Sizes.model_fields:
        for name, preset in getattr(function.sizes, size).items():
            path: KeyPath = ("sizes", size, name)
            if name not in function.parameters:
                raise document.error(path, "there is no such parameter", tuple(function.parameters))
            try:
                function.parameters[name].value(preset)
            except ValueError as error:
                raise document.error(path, str(error)) from error


def check_answer(function: Function, answer: object) -> list[str]:
    """Return the problems of an answer, a sentence each.

    Args:
        function: the function that answered.
        answer: the response's JSON, decoded.
    """
    if not isinstance(answer, dict):
        return [f"the answer is not a JSON object but {type(answer).__name__}"]
    problems = [
        f"the key {key} is missing" for key in function.answer.check.required if key not in answer
    ]
    for key, expected in function.answer.check.equal.items():
        actual = answer.get(key)
        if type(actual) is not type(expected) or actual != expected:
            problems.append(f"{key} is {actual!r}, not {expected!r}")
    envelope = answer.get(ENVELOPE)
    if not isinstance(envelope, dict):
        return [*problems, f"the key {ENVELOPE} is missing"]
    for key, kind in _ENVELOPE_TYPES.items():
        if type(envelope.get(key)) is not kind:
            problems.append(
                f"{ENVELOPE}.{key} is {envelope.get(key)!r}, which is no {kind.__name__}"
            )
    if envelope.get("valid") is False:
        problems.append("the function found its own output wrong (uncia.valid is false)")
    return problems


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema of ``function.yaml``, for editors and other tools."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **Function.model_json_schema(mode="validation"),
        "title": "Uncia function file",
    }
