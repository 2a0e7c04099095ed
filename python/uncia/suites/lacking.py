"""What a machine lacks for a run of a suite: CPUs, servers of services, and what makes packages."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from uncia import services, yamlio
from uncia.errors import UnciaError
from uncia.functions import golang
from uncia.functions.images import debian

if TYPE_CHECKING:
    from uncia.suites.forms import Needs

_DEFAULT_RUNTIME: Final = "python"


def of_machine(needs: Needs) -> str:
    """What the machine lacks for an entry, as a sentence; "" if nothing."""
    cpus = len(os.sched_getaffinity(0))
    if cpus < needs.cpus:
        return f"the machine has {cpus} CPU, and {needs.cpus} are needed"
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
        runtime = str(function.get("runtime", _DEFAULT_RUNTIME))
        if runtime == "go":
            yield golang.find
        elif function.get("package") == "container" and "root" not in function:
            yield _require_roots
        elif runtime.startswith("node"):
            yield _require_node


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
