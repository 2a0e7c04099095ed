"""Applications drawn from a provider's distributions, as an experiment file.

The file of such a run has the key ``emulation``: quantiles of what applications are like, or, with
``uncia suite run --trace DIR``, the files of Azure's trace of 2019, of which whole applications are
drawn. Each becomes a sequence of functions, of which each keeps its own duration and memory, which
it holds and touches while it computes. Applications are invoked in an open loop. Gaps have each
one's own mean and coefficient of variation, and the hour begins somewhere within a gap: not at an
invocation, for all at once.
"""

from __future__ import annotations

import json
import math
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

import numpy as np
import numpy.typing as npt
from pydantic import Field, model_validator

from uncia import record, traces, yamlio
from uncia.errors import UnciaError
from uncia.forms import Form
from uncia.stats import columns
from uncia.stats.columns import pc
from uncia.units import MIB, NS_PER_S, Duration, Size, format_duration

KEY: Final = "emulation"
_TRACE: Final = "azure2019"
_DAY_S: Final = 86_400.0
_HEADROOM: Final = 64 * MIB
"""Above what a function holds, for its program."""

_LEAST_MEMORY: Final = 128 * MIB
_LEAST_CV, _MOST_CV = 0.01, 100.0
"""Between which arrivals take a coefficient of variation; below, gaps are even."""

Floats = npt.NDArray[np.float64]


class Quantiles(Form):
    """Quantiles of applications, all of the same orders, with straight lines between them."""

    orders: list[float] = Field(min_length=2, description="Ascending, from 0 to 1")
    memory: list[float] = Field(description="MB")
    execution: list[float] = Field(description="Mean of a function, ms")
    invocations: list[float] = Field(description="Of an application, a day")
    cv: list[float] = Field(description="Coefficient of variation of its gaps")
    functions: list[float] = Field(description="Of an application")

    @model_validator(mode="after")
    def _alike(self) -> Self:
        if sorted(self.orders) != self.orders or not 0 <= self.orders[0] <= self.orders[-1] <= 1:
            raise ValueError("orders ascend from 0 to 1")
        for name, values in self.model_dump(exclude={"orders"}).items():
            if len(values) != len(self.orders) or sorted(values) != values:
                raise ValueError(f"{name} has an ascending value for each of the orders")
        return self


class Emulation(Form):
    """What is drawn, and what is cut so that a machine can serve it."""

    applications: int = Field(ge=1, le=1_000, description="How many")
    duration: Duration = Field(gt=0, description="Of the trace's time")
    speed: float = Field(
        1, gt=0, description="So many times as fast: gaps and executions are divided by it"
    )
    longest: Duration = Field(gt=0, description="Longer executions are cut to this")
    most_memory: Size = Field(gt=0, description="More memory is cut to this")
    most_functions: int = Field(ge=1, le=100, description="Longer applications are cut to this")
    most_invocations: float = Field(gt=0, description="Of an application a day; more is cut")
    quantiles: Quantiles


@dataclass(frozen=True)
class Application:
    """An application.

    Attributes:
        durations: of each of its functions, ns.
        memory: that each of them holds, bytes.
        per_day: how often it is invoked.
        cv: coefficient of variation of the gaps.
    """

    durations: Sequence[int]
    memory: Sequence[int]
    per_day: float
    cv: float


def is_emulation(document: yamlio.Document) -> bool:
    """Whether a file has applications to be drawn."""
    return isinstance(document.data, Mapping) and KEY in document.data


def expand(document: yamlio.Document, trace: str | None = None) -> yamlio.Document:
    """The experiment file that an emulation comes to; the same for the same seed.

    Args:
        document: the file; one without an emulation is returned as it is.
        trace: a folder with files of Azure's trace of 2019; quantiles if left out.

    Raises:
        UnciaError: the file is wrong, or the trace's files are.
    """
    if not is_emulation(document):
        return document
    data = dict(document.data)
    form = yamlio.validate(Emulation, document.with_data(data.pop(KEY)))
    experiment, options = _experiment(document, data.get("experiments", {"hour": {}}))
    rng = np.random.Generator(np.random.PCG64(_seed(document, data.get("seed", 1))))
    drawn = _of_quantiles(form, rng) if trace is None else _of_trace(form, Path(trace), rng)
    functions: dict[str, Any] = {}
    chains: dict[str, Any] = {}
    mix: list[dict[str, Any]] = []
    for number, application in enumerate(drawn):
        stream = _stream(application, form, rng)
        if stream is None:
            continue
        name = f"app-{number}"
        stages: dict[str, Any] = {}
        for position, (duration, memory) in enumerate(
            zip(application.durations, application.memory, strict=True)
        ):
            alias = f"{name}-{position}"
            functions[alias] = _function(duration, memory)
            stages[f"stage-{position}"] = {"function": alias}
        chains[name] = {"stages": stages}
        mix.append({"chain": name, "kind": "sequence", **stream})
    if not mix:
        raise UnciaError(
            f"none of {form.applications} applications is invoked within"
            f" {format_duration(form.duration)}",
            hint="Draw more of them, for longer, or with another seed.",
        )
    sentence = (
        f"{len(mix)} of {form.applications} applications are invoked within"
        f" {format_duration(form.duration)}, {form.speed:g} times as fast"
    )
    described = {"description": sentence, **options, "mix": mix}
    return document.with_data(
        {**data, "functions": functions, "chains": chains, "experiments": {experiment: described}}
    )


def _experiment(document: yamlio.Document, experiments: Any) -> tuple[str, Mapping[str, Any]]:
    """The name of the file's experiment, and what it says besides its streams.

    Raises:
        UnciaError: there are none or several of them, or it is no mapping.
    """
    if not isinstance(experiments, Mapping) or len(experiments) != 1:
        raise document.error(("experiments",), "an emulation is one experiment, such as {hour: {}}")
    ((name, options),) = experiments.items()
    if not isinstance(options, Mapping | None):
        raise document.error(("experiments", name), "an experiment is a mapping, such as {}")
    return name, options or {}


def _seed(document: yamlio.Document, seed: Any) -> int:
    """The file's seed, of which the applications are drawn before the file is checked.

    Raises:
        UnciaError: it is no whole number from 0.
    """
    if not isinstance(seed, int) or isinstance(seed, bool) or seed < 0:
        raise document.error(("seed",), f"{seed!r} is not a whole number from 0")
    return seed


def shorten(document: yamlio.Document, share: float) -> dict[str, Any]:
    """The content of a file of less time."""
    emulation = document.data[KEY]
    whole = yamlio.validate(Emulation, document.with_data(emulation)).duration
    shorter = {**emulation, "duration": format_duration(math.ceil(whole * share))}
    return {**document.data, KEY: shorter}


def _function(duration: int, memory: int) -> dict[str, Any]:
    """A function that computes for so long, and holds so much meanwhile."""
    limit = max(_LEAST_MEMORY, -(-(memory + _HEADROOM) // MIB) * MIB)
    phases = [{"duration": duration, "threads": 1, "memory": memory}]
    return {
        "source": "phases",
        "runtime": "provided",
        "memory": f"{limit // MIB}MB",
        "cpu": "1vCPU",
        "parameters": {"phases": json.dumps(phases)},
    }


def _stream(
    application: Application, form: Emulation, rng: np.random.Generator
) -> dict[str, Any] | None:
    """When an application is invoked; None if it is not, within the time.

    The first invocation is where a gap ends that is met the likelier the longer it is, from a point
    within it that is as likely as any: the process has gone on before.
    """
    per_day = min(application.per_day, form.most_invocations)
    # Drawn in any case, so that what one application is does not change another.
    normal, phase = float(rng.standard_normal()), float(rng.random())
    if per_day <= 0:
        return None
    mean_s = _DAY_S / per_day / form.speed
    cv = min(application.cv, _MOST_CV)
    is_even = cv < _LEAST_CV
    spread = 0.0 if is_even else math.log1p(cv * cv)
    # Of lognormal gaps, those that a moment falls into are lognormal, too.
    gap_s = mean_s * math.exp(spread / 2 + math.sqrt(spread) * normal)
    start = round(phase * gap_s * NS_PER_S)
    left = round(form.duration / form.speed) - start
    if left <= 0:
        return None
    rate = f"{3600 / mean_s:.6f}/h"
    length = format_duration(left)
    if is_even:
        return {
            "start": format_duration(start),
            "arrivals": {"kind": "constant", "rate": rate, "duration": length},
        }
    gaps = {"kind": "lognormal", "rate": rate, "cv": round(cv, 4), "duration": length}
    at_once = {"kind": "times", "times": ["0ns"]}
    return {
        "start": format_duration(start),
        "arrivals": {"kind": "superposition", "processes": [at_once, gaps]},
    }


def _of_quantiles(form: Emulation, rng: np.random.Generator) -> list[Application]:
    """Draw applications, each quantity by itself."""
    known = form.quantiles
    orders = np.array(known.orders)

    def draw(values: Sequence[float], count: int) -> Floats:
        drawn: Floats = np.interp(rng.random(count), orders, np.array(values))
        return drawn

    applications: list[Application] = []
    for _ in range(form.applications):
        count = min(form.most_functions, max(1, round(float(draw(known.functions, 1)[0]))))
        applications.append(
            Application(
                _durations(form, draw(known.execution, count) * 1e6),
                _memory(form, draw(known.memory, count) * MIB),
                float(draw(known.invocations, 1)[0]),
                float(draw(known.cv, 1)[0]),
            )
        )
    return applications


def _of_trace(form: Emulation, folder: Path, rng: np.random.Generator) -> list[Application]:
    """Draw whole applications of the trace's own files.

    Raises:
        UnciaError: files are missing, or not of the trace.
    """
    with tempfile.TemporaryDirectory(prefix="uncia-trace-") as work:
        imported = traces.load([folder], Path(work), trace=_TRACE)
        if missing := [name for name in ("arrivals", "profiles") if name not in imported.tables]:
            raise UnciaError(
                f"{folder} has no files that {missing[0]} are made of",
                hint="An emulation takes invocations, durations and memory of the same days.",
            )
        arrivals, profiles = (record.read(Path(work), it) for it in ("arrivals", "profiles"))
    profiles = profiles.filter(columns.is_word(profiles, "statistic", "mean"))
    durations = _means(profiles, "function", "duration")
    memory = _means(profiles, "app", "memory")
    functions: dict[str, list[str]] = {}
    for function in pc.unique(columns.words(arrivals, "function")).to_pylist():
        if function in durations:
            functions.setdefault(function.rsplit("/", 1)[0], []).append(function)
    apps = sorted(name for name in functions if _app(name, memory) is not None)
    if len(apps) < form.applications:
        raise UnciaError(
            f"{folder} has {len(apps)} applications with invocations, durations and memory, and"
            f" {form.applications} are to be drawn"
        )
    minutes = int(pc.max(arrivals["minute"]).as_py()) + 1
    days = math.ceil(minutes / 1440)
    drawn: list[Application] = []
    for position in rng.choice(len(apps), form.applications, replace=False):
        name = apps[int(position)]
        of_app = functions[name][: form.most_functions]
        held = _app(name, memory) or 0.0
        per_day, cv = _gaps(arrivals, functions[name], days)
        drawn.append(
            Application(
                _durations(form, np.array([durations[it] for it in of_app])),
                _memory(form, np.full(len(of_app), held)),
                per_day,
                cv,
            )
        )
    return drawn


def _app(name: str, memory: Mapping[str, float]) -> float | None:
    """The memory of an application; profiles may name it without its owner."""
    return memory.get(name, memory.get(name.rsplit("/", 1)[-1]))


def _means(profiles: Any, key: str, value: str) -> dict[str, float]:
    """The mean of each function or application over the days, each by its count."""
    rows = profiles.filter(pc.is_valid(profiles[value]))
    sums: dict[str, tuple[float, float]] = {}
    for name, amount, count in zip(
        columns.words(rows, key).to_pylist(),
        rows[value].to_pylist(),
        pc.coalesce(rows["count"], 1).to_pylist(),
        strict=True,
    ):
        weight = float(max(1, count))
        total, weights = sums.get(name, (0.0, 0.0))
        sums[name] = (total + amount * weight, weights + weight)
    return {name: total / weights for name, (total, weights) in sums.items()}


def _gaps(arrivals: Any, functions: Sequence[str], days: int) -> tuple[float, float]:
    """How often an application is invoked a day, and how its gaps vary.

    Counts are a minute's: its invocations stand evenly within it. An invocation of the application
    is one of each of its functions.
    """
    wanted = pc.is_in(columns.words(arrivals, "function"), value_set=_texts(functions))
    rows = arrivals.filter(wanted)
    by_minute: dict[int, int] = {}
    for minute, count in zip(rows["minute"].to_pylist(), rows["count"].to_pylist(), strict=True):
        by_minute[minute] = by_minute.get(minute, 0) + count
    times: list[float] = []
    for minute, count in sorted(by_minute.items()):
        each = max(1, round(count / len(functions)))
        times += [minute + (position + 0.5) / each for position in range(each)]
    gaps = np.diff(np.array(times))
    cv = float(gaps.std() / gaps.mean()) if gaps.size > 1 and gaps.mean() > 0 else 0.0
    return len(times) / days, cv


def _texts(values: Sequence[str]) -> Any:
    import pyarrow as pa

    return pa.array(values, pa.utf8())


def _durations(form: Emulation, values: Floats) -> list[int]:
    """Whole nanoseconds, one millisecond at least."""
    return [max(1_000_000, int(min(form.longest, value) / form.speed)) for value in values]


def _memory(form: Emulation, values: Floats) -> list[int]:
    """Whole MB."""
    return [min(form.most_memory, max(1, round(float(value) / MIB)) * MIB) for value in values]
