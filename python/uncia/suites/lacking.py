"""What a machine lacks for a run of a suite: CPUs, servers of services, and what makes packages."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from uncia import services, yamlio
from uncia.errors import UnciaError
from uncia.experiment import cpus
from uncia.functions import catalogue, golang, java
from uncia.functions.images import debian

if TYPE_CHECKING:
    from uncia.functions.form import Function
    from uncia.suites.forms import Needs

_DEFAULT_RUNTIME: Final = "python"


def of_machine(needs: Needs) -> str:
    """What the machine lacks for an entry, as a sentence; "" if nothing."""
    count = len(os.sched_getaffinity(0))
    if count < needs.cpus:
        return f"the machine has {count} CPU, and {needs.cpus} are needed"
    return ""


def of_file(document: yamlio.Document) -> str:
    """What is not installed here and an experiment file needs, with how to install it.

    Args:
        document: an experiment file that is valid.

    Returns:
        A sentence for each thing, "" if nothing is missing.
    """
    sentences = []
    for check in _checks(document.data):
        try:
            check()
        except UnciaError as error:
            sentences.append(f"{error.message} ({error.hint})" if error.hint else error.message)
    return "; ".join(dict.fromkeys(sentences))


def _checks(data: Mapping[str, Any]) -> Iterator[Callable[[], object]]:
    """Checks that fail where something is missing."""
    for name, options in (data.get("services") or {}).items():
        # One that exists elsewhere says so itself when the run begins.
        if "address" not in (options or {}):
            yield services.module(name).require
    for function in data.get("functions", {}).values():
        if "cpus" in function:
            yield partial(cpus.require, str(function["cpus"]))
        source = function.get("source")
        definition = None
        # A folder is relative to its file, and whoever packages it says what is missing.
        if source is not None and "/" not in source:
            definition = catalogue.load(source)
        runtime = str(function.get("runtime") or _default_runtime(definition))
        if runtime == "go":
            yield golang.find
        elif function.get("package") == "container" and "root" not in function:
            yield _require_roots
        elif runtime.startswith("node"):
            yield _require_node
        elif runtime.startswith("java"):
            yield java.find
        if definition is not None:
            yield from _of_definition(definition, runtime)


def _default_runtime(definition: Function | None) -> str:
    return _DEFAULT_RUNTIME if definition is None else definition.runtime_names[0]


def _of_definition(definition: Function, runtime: str) -> Iterator[Callable[[], object]]:
    """What a function of the catalogue needs beyond its language."""
    if definition.root is not None and definition.root.packages:
        yield _require_roots
    if runtime == "java" and definition.requirements("java"):
        yield partial(_require_program, "mvn", "maven")
    if runtime == "node" and (definition.runtime_folder("node") / "package.json").is_file():
        yield partial(_require_program, "npm", "npm")


def _require_roots() -> None:
    """Check that the root of a runtime can be made, which an image of it begins with."""
    if shutil.which(debian.PROGRAM) is None:
        raise UnciaError(
            f"{debian.PROGRAM} is not installed, which makes the root of an image",
            hint=f"Install it: apt-get install {debian.PROGRAM}",
        )
    if os.geteuid() != 0:
        raise UnciaError("the root of an image can only be made by the user root")


def _require_node() -> None:
    if shutil.which("node") is None:
        raise UnciaError("Node.js is not installed", hint="Install it: apt-get install nodejs")


def _require_program(program: str, package: str) -> None:
    if shutil.which(program) is None:
        raise UnciaError(
            f"{program} is not installed, which fetches the packages of functions",
            hint=f"Install it: apt-get install {package}",
        )
