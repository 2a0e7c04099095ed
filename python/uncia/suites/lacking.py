"""What a machine lacks for a run of a suite: CPUs, servers of services, and what makes packages."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from uncia import engine, services, yamlio
from uncia.doctor import perf, programs
from uncia.doctor.probe import engine_probe
from uncia.errors import UnciaError, failures
from uncia.experiment import cpus
from uncia.functions import catalogue, golang, java
from uncia.functions.images import debian
from uncia.perf_events import HARDWARE_CYCLES
from uncia.platforms import docker_socket, framework_servers
from uncia.suites import urls

if TYPE_CHECKING:
    from uncia.functions.form import Function
    from uncia.suites.forms import Needs

_DEFAULT_RUNTIME: Final = "python"
_PROCESS: Final = "process"
"""The sandbox that takes no program."""

_INSTALLED: Final = {
    "runsc": "CGO_ENABLED=0 go install gvisor.dev/gvisor/runsc@latest",
}
"""How programs are installed that Debian has not."""


def of_machine(needs: Needs) -> str:
    """What the machine lacks for an entry, as a sentence; "" if nothing."""
    count = len(os.sched_getaffinity(0))
    if count < needs.cpus:
        return f"the machine has {count} CPU, and {needs.cpus} are needed"
    sentences = (_HARDWARE[name]() for name in dict.fromkeys(needs.hardware))
    return "; ".join(sentence for sentence in sentences if sentence)


@cache
def _of_pmu() -> str:
    reason = perf.count(HARDWARE_CYCLES).reason
    return (
        f"the machine shows no PMU, whose counters are needed (perf_event_open: {reason})"
        if reason
        else ""
    )


@cache
def _of_resctrl() -> str:
    check = programs.resctrl()
    return (
        ""
        if check.status == "ok"
        else f"{check.finding[:1].lower()}{check.finding[1:].rstrip('.')}"
    )


_HARDWARE: Final[Mapping[str, Callable[[], str]]] = {"pmu": _of_pmu, "resctrl": _of_resctrl}
"""What tells why such counters cannot be read here; "" if they can."""


def of_file(document: yamlio.Document) -> str:
    """What is not installed here and all of an experiment file needs, with how to install it.

    Args:
        document: an experiment file that is valid.

    Returns:
        A sentence for each thing, "" if some of its experiments can be carried out.
    """
    sentences = [failures(of(document.data)) for of in (_of_services, _of_platform)]
    by_experiment = of_experiments(document)
    if all(by_experiment.values()):
        sentences += by_experiment.values()
    return "; ".join(dict.fromkeys(it for it in sentences if it))


def of_experiments(document: yamlio.Document) -> dict[str, str]:
    """What is not installed here and each experiment of a file needs; "" where nothing is missing.

    Args:
        document: an experiment file that is valid.
    """
    data = document.data
    by_urls = urls.lacking(document)
    if urls.are_needed(data):
        by_function = {alias: urls.of_function(document, alias) for alias in data["functions"]}
    else:
        by_function = {
            alias: failures(_of_function(document, function))
            for alias, function in data.get("functions", {}).items()
        }
    always = _of_triggers(data)
    lacking: dict[str, str] = {}
    for name, experiment in (data.get("experiments") or {}).items():
        used = _functions_of(experiment, data) | always
        sandboxes = failures(_of_sandbox(experiment.get("settings") or {}))
        sentences = [by_function.get(alias, "") for alias in sorted(used)] + by_urls[name]
        lacking[name] = "; ".join(dict.fromkeys(it for it in (*sentences, sandboxes) if it))
    for name, experiment in (data.get("experiments") or {}).items():
        # What it is compared with is gone.
        lacking[name] = lacking[name] or lacking.get(experiment.get("base", ""), "")
    return lacking


def without_lacking(document: yamlio.Document) -> yamlio.Document:
    """The file without the experiments whose needs are not installed here, and their functions."""
    lacking = of_experiments(document)
    if not any(lacking.values()) or all(lacking.values()):
        return document
    data = document.data
    kept = {name: it for name, it in (data.get("experiments") or {}).items() if not lacking[name]}
    used = _of_triggers(data).union(*(_functions_of(it, data) for it in kept.values()))
    functions = {alias: it for alias, it in data["functions"].items() if alias in used}
    chains = {
        name: chain
        for name, chain in (data.get("chains") or {}).items()
        if _functions_of({"chain": name}, data) <= used
    }
    changed = {**data, "functions": functions, "experiments": kept}
    return document.with_data({**changed, "chains": chains} if chains else changed)


def _functions_of(sender: Mapping[str, Any], data: Mapping[str, Any]) -> set[str]:
    """The file's functions that an experiment, a stream, a stage or a trigger needs."""
    used = {sender["function"]} if "function" in sender else set()
    if "chain" in sender:
        stages = data["chains"][sender["chain"]]["stages"].values()
        used |= {alias for stage in stages for alias in _functions_of(stage, data)}
    for part in (*(sender.get("mix") or ()), *(sender.get("neighbours") or ())):
        used |= _functions_of(part, data)
    # Of a replay it is the map that says so.
    return used or set(data.get("functions", {}))


def _of_triggers(data: Mapping[str, Any]) -> set[str]:
    """What triggers begin, beside every experiment."""
    triggers = (data.get("triggers") or {}).values()
    return set().union(*(_functions_of(trigger, data) for trigger in triggers))


def _of_services(data: Mapping[str, Any]) -> Iterator[Callable[[], object]]:
    for name, options in (data.get("services") or {}).items():
        # One that exists elsewhere says so itself when the run begins.
        if "address" not in (options or {}):
            yield services.module(name).require


def _of_platform(data: Mapping[str, Any]) -> Iterator[Callable[[], object]]:
    platform = data.get("platform") or {}
    if platform.get("kind") == "server":
        for framework in framework_servers.Options.model_validate(platform).chain():
            yield framework.installed
    if platform.get("kind") == "docker":
        yield partial(_require_docker, platform.get("socket"))
        if not all("root" in function for function in data.get("functions", {}).values()):
            yield _require_roots


def _of_function(
    document: yamlio.Document, function: Mapping[str, Any]
) -> Iterator[Callable[[], object]]:
    """Checks that fail where something is missing."""
    if "cpus" in function:
        yield partial(cpus.require, str(function["cpus"]))
    platform = document.data.get("platform") or {}
    yield from _of_sandbox({**platform, **function})
    yield from _of_starts({**platform, **function})
    source = function.get("source")
    definition = None
    if source is not None:
        folder = Path(document.name).parent / source if "/" in source else source
        try:
            definition = catalogue.load(folder)
        except UnciaError:
            # Whoever plans the file says where it is wrong.
            return
    runtime = str(function.get("runtime") or _default_runtime(definition))
    if runtime == "go":
        yield golang.find
    elif runtime == "wasm":
        yield _require_wasm
    elif function.get("package") == "container" and "root" not in function:
        yield _require_roots
    elif definition is not None and definition.root is not None:
        # Its interpreter is in there.
        pass
    elif runtime.startswith("node"):
        yield partial(_require_program, "node", "nodejs", "which runs functions in Node.js")
    elif runtime.startswith("ruby"):
        yield partial(_require_program, "ruby", "ruby", "which runs functions in Ruby")
    elif runtime.startswith("java"):
        yield java.find
    if definition is not None:
        yield from _of_definition(definition, runtime)


def _of_sandbox(settings: Mapping[str, Any]) -> Iterator[Callable[[], object]]:
    """What a container's runtime needs."""
    name = settings.get("sandbox", _PROCESS)
    if name != _PROCESS:
        yield partial(_require_program, name, name, "which makes the containers of functions")


def _of_starts(settings: Mapping[str, Any]) -> Iterator[Callable[[], object]]:
    """What instances need that start with what earlier ones have made."""
    shared = settings.get("share_state")
    if settings.get("start_from") == "checkpoint" or shared == "warm":
        yield _require_checkpoints
    if shared == "profile":
        yield java.find_with_profiles


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


@cache
def _without_checkpoints() -> str:
    """Why no instance can be restored here, as the engine says; "" if they can be."""
    probe = engine_probe()
    if probe.answer is None:
        return probe.problem
    return str(probe.answer["features"]["not_started_from"].get("checkpoint", ""))


def _require_checkpoints() -> None:
    if sentence := _without_checkpoints():
        raise UnciaError(sentence.partition(" Functions are")[0], hint="Install CRIU: make criu")


def _require_roots() -> None:
    """Check that the root of a runtime can be made, which an image of it begins with."""
    if shutil.which(debian.PROGRAM) is None:
        raise UnciaError(
            f"{debian.PROGRAM} is not installed, which makes the root of an image",
            hint=f"Install it: apt-get install {debian.PROGRAM}",
        )
    if os.geteuid() != 0:
        raise UnciaError("the root of an image can only be made by the user root")


def _require_docker(socket: str | None) -> None:
    docker_socket.ready(docker_socket.chosen(socket))


def _require_wasm() -> None:
    program = engine.binary().with_name("uncia-wasm")
    if not program.is_file() and shutil.which("uncia-wasm") is None:
        raise UnciaError("uncia-wasm is not built, which runs components", hint="make wasm")


def _require_program(
    program: str, package: str, use: str = "which fetches the packages of functions"
) -> None:
    if shutil.which(program) is None:
        raise UnciaError(
            f"{program} is not installed, {use}",
            hint=_INSTALLED.get(program, f"Install it: apt-get install {package}"),
        )
