"""What was idle for requests to come, who pays for it, and what it is worth.

The instances are all those of the subject's functions in the run, whether they served or not, so
that a run has one experiment. Their idle time on the account of hints is charged at the tariff's
idle price; the rest is the provider's affair.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from uncia.stats import bootstrap, columns
from uncia.stats.columns import pc
from uncia.stats.comparison import Figure
from uncia.stats.quantiles import QUANTILES, minimum_rows
from uncia.suites.metrics import Metric
from uncia.suites.metrics.simulations import at
from uncia.units import GIB

if TYPE_CHECKING:
    from uncia.suites.rows import SubjectRows

_GB_S: Final = GIB * 10**9


def _amounts(subject: SubjectRows) -> list[tuple[float, float | None]]:
    """Of each instance, GB-s that it idled, and those of them on the account of hints.

    The latter are None of one that lives still or whose worker crashed, where hints are read.
    """
    table = subject.run.instances
    nothing = None if pc.any(pc.is_valid(columns.integers(table, "hint_idle"))).as_py() else 0
    functions = pc.unique(columns.words(subject.invocations, "function").drop_null())
    table = table.filter(pc.is_in(columns.words(table, "function"), value_set=functions))
    amounts = []
    for row in table.select(["allocated_memory", "idle", "hint_idle"]).to_pylist():
        memory = row["allocated_memory"]
        if memory is None or row["idle"] is None:
            continue
        idle = sum(interval["end"] - interval["start"] for interval in row["idle"])
        on_hint = nothing if row["hint_idle"] is None else row["hint_idle"]
        known = None if on_hint is None else on_hint * memory / _GB_S
        amounts.append((idle * memory / _GB_S, known))
    return amounts


def _a_request(
    of: Callable[[float, float | None], float | None], subject: SubjectRows, tariff: str
) -> Figure:
    """A sum over the instances of which it is known, for each request that was sent."""
    del tariff
    requests = subject.requests.num_rows
    known = [of(idle, on_hint) for idle, on_hint in _amounts(subject)]
    values = np.sort(np.array([value for value in known if value is not None]))
    n, needed = int(values.size), minimum_rows(QUANTILES["p50"])
    if not n or not requests:
        return Figure(None, why="the platform tells of no instances of its functions")
    if n < needed:
        return Figure(float(values.sum()) / requests, rows=n, needed=needed)
    rng = bootstrap.generator(bootstrap.SEED, subject.name, "idle")
    draws = bootstrap.means(values, rng) * (n / requests)
    return Figure(float(values.sum()) / requests, draws, n)


def _worth(subject: SubjectRows, tariff: str) -> Figure:
    """The idle price at which hints cost what the starts would that they spare.

    As a part of the price of a GB-second of execution, where initialization is billed as that:
    warm requests x mean initialization of cold ones x memory, over what idled on the account of
    hints. Each warm request is taken to be cold without hints.
    """
    paid = _a_request(lambda _, on_hint: on_hint, subject, tariff)
    rows = subject.ok
    waited = columns.integers(rows, "initialization")
    memory = columns.integers(rows, "allocated_memory")
    starts = pc.multiply(pc.cast(waited, "float64"), pc.cast(memory, "float64")).drop_null()
    starts = np.sort(starts.to_numpy()) / _GB_S
    n, needed = int(starts.size), minimum_rows(QUANTILES["p50"])
    if not paid.value or not n:
        return Figure(None, why="nothing idled on the account of hints, or nothing was cold")
    warm = (rows.num_rows - n) / subject.requests.num_rows
    value = warm * float(starts.mean()) / paid.value
    if paid.draws is None or n < needed:
        return Figure(value, rows=n, needed=needed)
    rng = bootstrap.generator(bootstrap.SEED, subject.name, "worth")
    return Figure(value, warm * bootstrap.means(starts, rng) / paid.draws, n)


def _simulated(path: str, subject: Any) -> list[float | None]:
    return [at(values, (path,)) for values in subject.values]


def _cold(subject: SubjectRows, tariff: str) -> Figure:
    """Cold starts for each request whose start is known, of which ratios have intervals."""
    del tariff
    is_cold = pc.equal(columns.words(subject.ok, "start"), "cold")
    values = np.sort(pc.cast(is_cold.drop_null(), "float64").to_numpy())
    n, needed = int(values.size), minimum_rows(QUANTILES["p50"])
    if n < needed:
        return Figure(float(values.mean()) if n else None, rows=n, needed=needed)
    rng = bootstrap.generator(bootstrap.SEED, subject.name, "cold")
    return Figure(float(values.mean()), bootstrap.means(values, rng), n)


METRICS: Final = (
    Metric("cold_rate", "number", "a request", "Cold starts, of which ratios are judged.", _cold),
    Metric(
        "idle",
        "number",
        "GB-s",
        "Allocated memory of idle instances over time, for each request: of all, whereas hint_idle"
        " and kept_idle are without those that crashed or live still.",
        partial(_a_request, lambda idle, on_hint: idle),
        counts_all=True,
    ),
    Metric(
        "hint_idle",
        "number",
        "GB-s",
        "What is charged at the idle price: on the account of hints, of the instances of which that"
        " is known.",
        partial(_a_request, lambda idle, on_hint: on_hint),
        counts_all=True,
    ),
    Metric(
        "kept_idle",
        "number",
        "GB-s",
        "The rest of what the same instances idled, which nobody is charged for.",
        partial(_a_request, lambda idle, on_hint: None if on_hint is None else idle - on_hint),
        counts_all=True,
    ),
    *(
        Metric(
            name,
            "number",
            "GB-s",
            f"Allocated memory of idle instances over time{words}.",
            simulate=partial(_simulated, key),
            counts_all=True,
        )
        for name, key, words in (
            ("idle_sum", "idle_gb_s", ""),
            ("hint_idle_sum", "hint_idle_gb_s", ", on the account of hints"),
        )
    ),
    Metric(
        "hint_worth",
        "ratio",
        "x",
        "The idle price up to which hints pay, over the price of a GB-second that executes.",
        _worth,
    ),
)
