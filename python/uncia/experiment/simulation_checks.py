"""What a simulation file asks of workers that they do not have, found with its line.

The engine would find it, too, but knows functions and invocations by their positions alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from uncia import yamlio
from uncia.errors import Mistakes, UnciaError
from uncia.experiment.simulation import RULES, Function, Model, SimulationFile, allocation
from uncia.units import format_cpu, format_size

_MOST: Final = {"vcpu": 1 << 40, "memory": 1 << 50}
"""Of a worker, in micro-vCPU and bytes: up to there the engine's sums are exact."""

_EXCLUSIVE: Final = "pinned"
"""The rule by which nothing runs on what another has reserved, be it idle."""


def check(file: SimulationFile, document: yamlio.Document) -> None:
    """Check what a file that is right in its form says of workers.

    Raises:
        UnciaError: workers are too large, one that fails is not there, none can hold a function, a
            function never runs, or a phase holds more memory than its function may: with file, line
            and key.
    """
    mistakes = Mistakes()
    for error in _errors(file, document):
        with mistakes.collect():
            raise error
    mistakes.raise_all()


def _errors(file: SimulationFile, document: yamlio.Document) -> Iterator[UnciaError]:
    for key, most in _MOST.items():
        if getattr(file.cluster, key) > most:
            shown = format_cpu(most) if key == "vcpu" else format_size(most)
            yield document.error(("cluster", key), f"a worker has at most {shown}")
    last = file.cluster.workers - 1
    for position, failure in enumerate(file.failures if isinstance(file.failures, list) else []):
        if failure.worker > last:
            there = f"they are from 0 to {last}" if last else "the only one is worker 0"
            message = f"there is no worker {failure.worker}: {there}"
            yield document.error(("failures", position, "worker"), message)
    for name, function in (file.functions or {}).items():
        yield from _of_function(file, document, name, function)


def _sharing(file: SimulationFile, model: Model) -> str:
    return file.sharing or RULES[model].sharing


def _of_function(
    file: SimulationFile, document: yamlio.Document, name: str, function: Function
) -> Iterator[UnciaError]:
    limits = {}
    for model in file.models:
        size = allocation(file, RULES[model], function.vcpu, function.memory, function.spot_vcpu)
        limits[model] = size["memory"]
        is_wide = size["cpu"] > file.cluster.vcpu
        if is_wide or size["memory"] > file.cluster.memory:
            yield document.error(
                ("functions", name, "vcpu" if is_wide else "memory"),
                f"under {model} it needs {format_cpu(size['cpu'])} and"
                f" {format_size(size['memory'])}, and no worker has as much",
            )
            return  # under other models it is the same, or follows from it
        if size["cpu"] == size["spot_cpu"] and _sharing(file, model) == _EXCLUSIVE:
            yield document.error(
                ("functions", name, "spot_vcpu"),
                f"under {model} it reserves no CPU, so that it never runs where cores are shared by"
                f" the rule {_EXCLUSIVE!r}",
            )
    model = min(limits, key=lambda model: limits[model])
    for position, phase in enumerate(function.phases):
        if phase.memory > limits[model]:
            yield document.error(
                ("functions", name, "phases", position, "memory"),
                f"holds {format_size(phase.memory)}, and its function {name} may hold"
                f" {format_size(limits[model])} under {model}",
            )
