"""The effect of granularities and minimums on billable time and memory.

Figure 5, right, of *Demystifying Serverless Costs on Public Platforms* (EuroSys'26, section 2.5);
its left half is `fee_equivalents`.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Final

import ibis
import numpy as np

from uncia.backends import Backend, Source, use
from uncia.costs import bins
from uncia.costs.fees import fee_equivalents
from uncia.costs.sizes import decimal
from uncia.tariffs import Tariff, catalogue
from uncia.tariffs.columns import Col, Columns
from uncia.tariffs.exact import integer, product
from uncia.tariffs.facts import read_facts
from uncia.tariffs.published import published
from uncia.tariffs.rows import PRICED, billing_columns
from uncia.tariffs.rules import Granularity, Level, Minimum, Rules
from uncia.units import GIB, NS_PER_MS, NS_PER_S, format_duration, format_size

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa
    from ibis.expr import types as ir

    from uncia.costs.rows import Tariffs
    from uncia.tariffs import FitRule

__all__ = ["AT_LEAST", "Rounding", "fee_equivalents", "measure", "rounding"]

AT_LEAST: Final = NS_PER_MS
"""Default of the shortest execution that is analysed, ns, as published."""

PROBABILITIES: Final = (0.05, 0.25, 0.5, 0.75, 0.95, 0.99)
_LEVELS: Final[tuple[Level, Level]] = ("billed", "unrounded")

LINEAR: Final = 1024
"""Bins of the added time, from 0 to the most that a rule can add."""

_GB_S: Final = GIB * NS_PER_S
_SHORT: Final = "execution is below the least that is looked at"
_REASONS: Final = {
    "not_billable": "not billable",
    "no_execution": "execution is null",
    "absurd": "a value is negative or absurd",
    "short": _SHORT,
}


@dataclass(frozen=True)
class Rounding:
    """What rounding adds.

    Attributes:
        frame: a row for each rule; see `rounding`.
        cdf: columns ``rule``, ``resource``, ``value`` (ms, or GB-s) and ``share`` (of the rows to
            which at most ``value`` is added).
    """

    frame: pd.DataFrame
    cdf: pd.DataFrame


@dataclass(frozen=True)
class TimeRule:
    """The rules of a billable time."""

    rules: Rules

    @property
    def words(self) -> str:
        """Such as ``1ms, at least 100ms``."""
        return _words(self.rules, format_duration)

    def added(self, rows: Columns, *, wide: bool) -> Col:
        """What rounding adds to each row, ns."""
        del wide
        execution = rows.base("execution")
        billed, plain = (self.rules.at(level).apply(rows, execution) for level in _LEVELS)
        return rows.add(operator.sub, billed, plain)

    @property
    def most(self) -> int:
        """The most that rounding can add, ns."""
        return max((rule.bound for rule in self.rules.rules if rule.rounds), default=0)


@dataclass(frozen=True)
class MemoryRule:
    """The rules of a billable amount of memory, and those of the time that multiplies it."""

    rules: Rules
    time: Rules

    @property
    def words(self) -> str:
        """Such as ``128MB, at most 1536MB; 1ms, at least 100ms``."""
        step, minimum = self.rules.bound(Granularity), self.rules.bound(Minimum)
        rules = self.rules.without(Minimum) if minimum == step else self.rules
        words = _words(rules, format_size) + (", none for no memory" if minimum is None else "")
        return f"{words}; {_words(self.time, format_duration)}"

    def added(self, rows: Columns, *, wide: bool) -> Col:
        """What rounding adds to each row, bytes x ns; a maximum applies with and without it."""
        execution, memory = rows.base("execution"), rows.base("memory")
        billed, plain = (
            rows.add(
                product,
                self.rules.at(level).apply(rows, memory),
                self.time.at(level).apply(rows, execution),
                wide=wide,
            )
            for level in _LEVELS
        )
        return rows.add(operator.sub, billed, plain)


def _words(rules: Rules, text: Callable[[int], str]) -> str:
    """Describe rules, a granularity by its step alone."""
    return ", ".join(
        text(rule.bound) if isinstance(rule, Granularity) else rule.words(text(rule.bound))
        for rule in rules.rules
    )


def rounding(
    source: Source,
    tariffs: Tariffs | None = None,
    *,
    at_least: int = AT_LEAST,
    fit: FitRule = "allocated",
    backend: Backend | None = None,
) -> pd.DataFrame:
    """Compute what each granularity and minimum adds to billed time and memory.

    Args:
        source: invocations; all that ran count, whether or not their usage is known.
        tariffs: whose rules: ids, files or tariffs; by default all that bill by request.
        at_least: shorter executions are left out, ns; 0 for none.
        fit: with ``paper``, memory is rounded without minimum and maximum, as published.
        backend: computes it; by default a DuckDB that is opened for it.

    Returns:
        A row for each rule: ``rule`` (in words), ``resource`` (time, memory), ``tariffs`` (that
        have it), ``rows``, ``added`` (sum, Decimal: ns, or byte x ns), ``mean`` (ms, or GB-s),
        ``p5`` to ``p99``, ``most``, ``plain_mean`` (without rounding) and ``left_out`` (reason to
        count). Rules of time apply to the execution time of every row, whichever time the tariff
        bills. Rules of memory apply to `memory_avg`: rounded memory x rounded time, less memory x
        execution.

    Raises:
        UnciaError: a table or tariff cannot be read.
    """
    return measure(source, tariffs, at_least=at_least, fit=fit, backend=backend).frame


def measure(
    source: Source,
    tariffs: Tariffs | None = None,
    *,
    at_least: int = AT_LEAST,
    fit: FitRule = "allocated",
    backend: Backend | None = None,
) -> Rounding:
    """Compute `rounding` together with the distributions."""
    import pandas as pd

    with use(backend) as backend:
        chosen = catalogue.resolve(tariffs)
        if fit == "paper":
            chosen = [published(tariff, None)[0] for tariff in chosen]
        rules = _rules(chosen)
        table = backend.table(source)
        prepared = table.select(**billing_columns(table, (), read_facts(source)))
        # The table may be of another engine than the backend.
        wide = table.get_backend().name == "duckdb"
        rows = _kept(prepared, at_least)
        (counts,) = backend.collect(_counts(prepared, at_least)).to_pylist()
        (totals,) = backend.collect(_sums(rows, list(rules), wide=wide)).to_pylist()
        left_out = {reason: int(counts[name]) for name, reason in _REASONS.items() if counts[name]}
        entries: list[dict[str, Any]] = []
        curves: list[pd.DataFrame] = []
        for index, (rule, names) in enumerate(rules.items()):
            is_time = isinstance(rule, TimeRule)
            unit = NS_PER_MS if is_time else _GB_S
            value, share = _curve(backend.collect(_binned(rows, rule, wide=wide)), unit)
            kind = "time" if is_time else "memory"
            entries.append(
                {
                    "rule": rule.words,
                    "resource": kind,
                    "tariffs": names,
                    **_entry(totals, index, unit, kind),
                    **{f"p{p * 100:g}": bins.quantile(value, share, p) for p in PROBABILITIES},
                    "most": float(value[-1]) if value.size else None,
                    "left_out": _with_unknown(left_out, totals, kind),
                }
            )
            curves.append(
                pd.DataFrame({"rule": rule.words, "resource": kind, "value": value, "share": share})
            )
        columns = ["rule", "resource", "value", "share"]
        return Rounding(
            pd.DataFrame(entries, dtype=object),
            pd.concat(curves, ignore_index=True) if curves else pd.DataFrame(columns=columns),
        )


def _rules(tariffs: Sequence[Tariff]) -> dict[TimeRule | MemoryRule, list[str]]:
    """The distinct rules that round, with the tariffs that have them; those of time first."""
    times: dict[TimeRule, list[str]] = {}
    memories: dict[MemoryRule, list[str]] = {}
    for tariff in tariffs:
        time = TimeRule(tariff.time.rules)
        if time.most:
            times.setdefault(time, []).append(tariff.id)
        for charge in tariff.charges:
            of_use = (charge.resource, charge.basis) == ("memory", "used")
            if of_use and charge.rules.rounds:
                memories.setdefault(MemoryRule(charge.rules, time.rules), []).append(tariff.id)
    result: dict[TimeRule | MemoryRule, list[str]] = {}
    for rule in sorted(times, key=_by_bounds):
        result[rule] = times[rule]
    return result | dict(memories)


def _by_bounds(rule: TimeRule) -> tuple[int, int]:
    return rule.rules.bound(Granularity) or 0, rule.rules.bound(Minimum) or 0


def _kept(prepared: ir.Table, at_least: int) -> ir.Table:
    return prepared.filter(
        prepared["common"] == PRICED, prepared["v_execution"] >= integer(at_least)
    ).select(execution=prepared["v_execution"], memory=prepared["v_memory_avg"])


def _counts(prepared: ir.Table, at_least: int) -> ir.Table:
    """Count the rows that are left out, by reason."""
    from uncia.tariffs.rows import ABSURD, NO_EXECUTION, NOT_BILLABLE

    common = prepared["common"]
    is_short = (common == PRICED) & ~(prepared["v_execution"] >= integer(at_least))
    conditions = {
        "not_billable": common.isin(list(NOT_BILLABLE)),
        "no_execution": common == NO_EXECUTION,
        "absurd": common == ABSURD,
        "short": is_short,
    }
    return prepared.aggregate({name: _count(condition) for name, condition in conditions.items()})


def _sums(kept: ir.Table, rules: Sequence[TimeRule | MemoryRule], *, wide: bool) -> ir.Table:
    """Sum exactly what every rule adds, in one pass, and count the rows that have what it takes."""
    columns = Columns(kept, wide=wide)
    time, memory = columns.base("execution"), columns.base("memory")
    sums = {"plain_time": time, "plain_memory": columns.add(product, memory, time, wide=wide)}
    sums |= {f"added_{index}": rule.added(columns, wide=wide) for index, rule in enumerate(rules)}
    rows = columns.table()
    metrics: dict[str, Any] = {
        "rows_time": rows.count().cast("int64"),
        "rows_memory": rows["memory"].count().cast("int64"),
    }
    metrics |= {name: _sum(rows[column.name], wide=wide) for name, column in sums.items()}
    return rows.aggregate(metrics)


def _count(condition: Any) -> Any:
    return ibis.ifelse(condition, integer(1), integer(0)).sum().cast("int64")


def _sum(value: Any, *, wide: bool) -> Any:
    """The sum as DECIMAL(38, 0); an engine that is not wide sums int64 in 64 bits."""
    return (value if wide else value.cast("decimal(38, 0)")).sum().cast("decimal(38, 0)")


def _binned(kept: ir.Table, rule: TimeRule | MemoryRule, *, wide: bool) -> ir.Table:
    """Group rows by bins of what a rule adds, with the largest value of each bin."""
    measured = kept if isinstance(rule, TimeRule) else kept.filter(kept["memory"].notnull())
    columns = Columns(measured, wide=wide)
    added = rule.added(columns, wide=wide)
    rows = columns.table()
    if isinstance(rule, TimeRule):
        value = rows[added.name]
        # The lower edge identifies the bin, which avoids a division.
        bin_ = value - value % integer(max(1, rule.most // LINEAR))
    else:
        value = rows[added.name].cast("float64")
        bin_ = bins.log_bin(value)
    table = rows.select(bin=bin_, value=value)
    return bins.histogram(table, {"bin": table["bin"]}, {"largest": table["value"]})


def _curve(table: pa.Table, unit: int) -> bins.Curve:
    largest = table["largest"].to_numpy().astype(np.float64) / unit
    counts = table["n"].to_numpy().astype(np.int64)
    order = np.argsort(largest, kind="stable")
    if not order.size:
        return np.empty(0), np.empty(0)
    return largest[order], np.cumsum(counts[order]) / counts.sum()


def _entry(totals: dict[str, Any], index: int, unit: int, kind: str) -> dict[str, Any]:
    rows = int(totals[f"rows_{kind}"] or 0)
    if not rows:
        return {"rows": 0, "added": None, "mean": None, "plain_mean": None}
    added, plain = int(totals[f"added_{index}"]), int(totals[f"plain_{kind}"])
    return {
        "rows": rows,
        "added": decimal(added, 0),
        "mean": float(Fraction(added, rows * unit)),
        "plain_mean": float(Fraction(plain, rows * unit)),
    }


def _with_unknown(left_out: dict[str, int], totals: dict[str, Any], kind: str) -> dict[str, int]:
    missing = int(totals["rows_time"] or 0) - int(totals[f"rows_{kind}"] or 0)
    return left_out | ({"memory_avg is null": missing} if missing else {})
