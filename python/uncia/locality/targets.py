"""The functions that are traced: their packages, events and processes, as they are written.

``FUNCTION[@RUNTIME][:PARAMETER=VALUE,...]``: ``json``, ``json@node``, ``micro:benchmark=pidigits``.
"""

from __future__ import annotations

import compileall
import re
import shutil
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from uncia import functions
from uncia.errors import RunFailedError, UnciaError
from uncia.functions import Function
from uncia.platforms import FunctionSpec, native
from uncia.platforms.bare import variables

SIZES: Final = ("test", "small", "large")
_WRITTEN: Final = re.compile(
    r"(?P<name>[^@:]+)(?:@(?P<runtime>[\w.]+))?(?::(?P<values>[\w-]+=.*))?", re.DOTALL
)


@dataclass(frozen=True)
class Target:
    """A function whose process can be started.

    Attributes:
        label: as it was written, with a number where it was written before.
        function: of the catalogue, or of a folder.
        runtime: such as ``python``.
        event: of each invocation.
        command: of its process, to be run in ``folder``.
        folder: its package.
        environment: of its process.
    """

    label: str
    function: Function
    runtime: str
    event: Mapping[str, Any]
    command: Sequence[str]
    folder: Path
    environment: Mapping[str, str]

    def check(self, answer: Any) -> None:
        """Check an answer as the process writes it.

        Raises:
            RunFailedError: the function raised an error, or its answer is wrong.
        """
        if "type" in answer:
            raise RunFailedError(f"{self.label} raised {answer['type']}: {answer['message']}")
        if self.function.takes_any_event:
            return
        problems = functions.check_answer(self.function, answer.get("result"))
        if problems:
            raise RunFailedError(f"{self.label} gave a wrong answer: {'; '.join(problems)}")


def prepare(
    written: Sequence[str], size: str, runtime: str | None, folder: Path, *, seed: int = 0
) -> list[Target]:
    """Package and unpack functions.

    Args:
        written: each as ``FUNCTION[@RUNTIME][:PARAMETER=VALUE,...]``.
        size: of their events, but for the parameters that are written.
        runtime: of those that name none; by default the function's first that has bare processes.
        folder: where a folder is made for each.
        seed: by which Python hashes texts.

    Raises:
        UnciaError: there is no such function, runtime, size or parameter, or no interpreter here.
    """
    labels: list[str] = []
    for text in written:
        count = written[: len(labels) + 1].count(text)
        labels.append(text if count == 1 else f"{text}#{count}")
    return [
        _prepare(text, label, size, runtime, folder / f"function-{number}", seed)
        for number, (text, label) in enumerate(zip(written, labels, strict=True))
    ]


def check(written: Sequence[str], size: str, runtime: str | None) -> None:
    """Check what is written of functions, before anything of them is made.

    Args:
        written: as for `prepare`, as are the others.
        size: of their events.
        runtime: of those that name none.

    Raises:
        UnciaError: as `prepare`, but for what packaging finds out.
    """
    for text in written:
        _described(text, size, runtime)


def _described(text: str, size: str, runtime: str | None) -> tuple[Function, str, dict[str, Any]]:
    """The function, the runtime and the event that a text names."""
    match = _WRITTEN.fullmatch(text)
    if match is None:
        raise UnciaError(
            f"{text!r} names no function",
            hint="Write FUNCTION@RUNTIME:PARAMETER=VALUE,..., such as json@node:points=10.",
        )
    function = functions.load(match["name"])
    names = function.runtime_names
    preferred = [language for language in native.LANGUAGES if language in names]
    chosen = match["runtime"] or runtime or next(iter(preferred), names[0])
    # Before the package, which takes longer: whether there is an interpreter.
    native.command(FunctionSpec(function.name, runtime=chosen))
    return function, chosen, _event(function, size, _values(text, match["values"]))


def _prepare(
    text: str, label: str, size: str, runtime: str | None, folder: Path, seed: int
) -> Target:
    function, chosen, event = _described(text, size, runtime)
    package = functions.package(function, chosen)
    spec = FunctionSpec(function.name, runtime=chosen, handler=package.handler)
    folder.mkdir()
    with zipfile.ZipFile(package.path) as archive:
        archive.extractall(folder)
    if chosen == "python":
        # As platforms have it: else the first start would compile what others do not.
        compileall.compile_dir(folder, quiet=2)
    # Texts have the same order in dictionaries each time.
    environment = {**variables(spec, folder), "PYTHONHASHSEED": str(seed)}
    program, *arguments = native.command(spec)
    # By its path, which QEMU and valgrind take.
    command = [shutil.which(program) or program, *arguments]
    return Target(label, function, chosen, event, command, folder, environment)


def _values(text: str, values: str | None) -> dict[str, Any]:
    """The parameters of ``key=value,...``."""
    parsed = {}
    for pair in values.split(",") if values else ():
        key, separator, value = pair.partition("=")
        if not separator:
            raise UnciaError(f"{text}: {pair!r} is not PARAMETER=VALUE")
        try:
            parsed[key] = yaml.safe_load(value)
        except yaml.YAMLError:
            parsed[key] = value
    return parsed


def _event(function: Function, size: str, values: Mapping[str, Any]) -> dict[str, Any]:
    if function.takes_any_event:
        return dict(values)
    function.preset(size)
    return functions.validate_params(function, {**getattr(function.sizes, size), **values})
