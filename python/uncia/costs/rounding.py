"""The effect of granularities and minimums on billable time and memory.

Figure 5, right, of *Demystifying Serverless Costs on Public Platforms* (EuroSys'26, section 2.5);
its left half is `fee_equivalents`.
"""

from __future__ import annotations

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
from uncia.tariffs.exact import integer, product
from uncia.tariffs.facts import read_facts
from uncia.tariffs.published import published
from uncia.tariffs.rows import PRICED, billing_columns
from uncia.tariffs.rules import Granularity, Minimum, Rules
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

    def added(self, execution: Any, memory: Any) -> Any:
        """What rounding adds to each row, ns."""
        del memory
        return self.rules(execution) - self.rules.at("unrounded")(execution)

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

    def added(self, execution: Any, memory: Any) -> Any:
        """What rounding adds to each row, bytes x ns; a maximum applies with and without it."""
        billed = product(self.rules(memory), self.time(execution))
        plain = product(self.rules.at("unrounded")(memory), self.time.at("unrounded")(execution))
        return billed - plain


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
        totals = backend.collect(_totals(prepared, list(rules), at_least)).to_pylist()[0]
        left_out = {reason: int(totals[name]) for name, reason in _REASONS.items() if totals[name]}
        rows = _kept(prepared, at_least)
        entries: list[dict[str, Any]] = []
        curves: list[pd.DataFrame] = []
        for index, (rule, names) in enumerate(rules.items()):
            is_time = isinstance(rule, TimeRule)
            unit = NS_PER_MS if is_time else _GB_S
            value, share = _curve(backend.collect(_binned(rows, rule)), unit)
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


def _totals(prepared: ir.Table, rules: Sequence[TimeRule | MemoryRule], at_least: int) -> ir.Table:
    """Sum exactly what every rule adds, and count rows that are left out, in one pass."""
    from uncia.tariffs.rows import ABSURD, NO_EXECUTION, NOT_BILLABLE

    common = prepared["common"]
    priced = common == PRICED
    is_counted = priced & (prepared["v_execution"] >= integer(at_least))
    rows = prepared.mutate(
        execution=ibis.ifelse(is_counted, prepared["v_execution"], ibis.null("int64")),
        memory=ibis.ifelse(is_counted, prepared["v_memory_avg"], ibis.null("int64")),
        not_billable=common.isin(list(NOT_BILLABLE)),
        no_execution=common == NO_EXECUTION,
        absurd=common == ABSURD,
        short=priced & ~is_counted,
    )
    metrics: dict[str, Any] = {name: _count(rows[name]) for name in _REASONS}
    metrics["rows_time"] = _count(rows["execution"].notnull())
    metrics["rows_memory"] = _count(rows["memory"].notnull())
    metrics["plain_time"] = _sum(rows["execution"].cast("decimal(38, 0)"))
    metrics["plain_memory"] = _sum(product(rows["memory"], rows["execution"]))
    for index, rule in enumerate(rules):
        metrics[f"added_{index}"] = _sum(_added(rows, rule))
    return rows.aggregate(metrics)


def _count(condition: Any) -> Any:
    return ibis.ifelse(condition, integer(1), integer(0)).sum().cast("int64")


def _sum(value: Any) -> Any:
    return value.sum().cast("decimal(38, 0)")


def _added(rows: ir.Table, rule: TimeRule | MemoryRule) -> Any:
    """What a rule adds to each row, exactly: ns, or bytes x ns."""
    return rule.added(rows["execution"], rows["memory"]).cast("decimal(38, 0)")


def _binned(kept: ir.Table, rule: TimeRule | MemoryRule) -> ir.Table:
    """Group rows by bins of what a rule adds, with the largest value of each bin."""
    if isinstance(rule, TimeRule):
        added = rule.added(kept["execution"], kept["memory"])
        step = max(1, rule.most // LINEAR)
        # The lower edge identifies the bin, which avoids a division.
        table = kept.select(bin=added - added % integer(step), value=added)
    else:
        known = kept.filter(kept["memory"].notnull())
        added = _added(known, rule).cast("float64")
        table = known.select(bin=bins.log_bin(added), value=added)
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
