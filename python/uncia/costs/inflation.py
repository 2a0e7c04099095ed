"""Inflation of billable resources: billed amounts over used amounts, under each tariff.

Section 2.3 and Figure 2 of *Demystifying Serverless Costs on Public Platforms* (EuroSys'26).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Final

from uncia.backends import Backend, Source, use
from uncia.costs.sizes import decimal
from uncia.errors import UnciaError
from uncia.units import MICRO_PER_VCPU

if TYPE_CHECKING:
    import pandas as pd

    from uncia.costs.rows import Tariffs
    from uncia.tariffs import FitRule, Line

_MICRO_PLACES: Final = 6
COLUMNS: Final = (
    "tariff",
    "fit",
    "rows",
    "vcpu",
    "memory",
    "billable_vcpu_ns",
    "billable_byte_ns",
    "used_vcpu_ns",
    "used_byte_ns",
    "fee_usd",
    "rounding_usd",
    "cost_usd",
    "left_out",
    "beyond_limits",
)


def inflation(
    source: Source,
    tariffs: Tariffs | None = None,
    *,
    fit: FitRule = "allocated",
    group_by: Sequence[str] = (),
    cdf: bool = False,
    backend: Backend | None = None,
) -> pd.DataFrame:
    """Compute billed over used vCPU and memory under each tariff.

    Args:
        source: invocations; see `uncia.backends.Source`.
        tariffs: ids, files or tariffs; by default every one that bills by request.
        fit: how an allocation becomes a size; see `uncia.tariffs.bill`.
        group_by: columns to group by, such as ``function``.
        cdf: add the distributions of `inflation_cdf`.
        backend: computes it; by default a DuckDB that is opened for it.

    Returns:
        A row for each tariff and group: ``tariff``, the grouping columns, ``fit`` (the rule in
        words), ``rows``, ``vcpu`` and ``memory`` (sum billed / sum used over the same rows; None
        if nothing was used or a billed amount is unknown), ``billable_vcpu_ns``,
        ``billable_byte_ns``, ``used_vcpu_ns``, ``used_byte_ns``, ``fee_usd``, ``rounding_usd``,
        ``cost_usd`` (Decimal, exact), ``left_out`` (reason to count) and ``beyond_limits`` (rows
        that exceed what the platform allows); with `cdf` also ``cdf``, resource to points
        (value in vCPU-s or GB-s, share of requests at most that).

    Raises:
        UnciaError: a table or tariff cannot be read, or a tariff bills by instance.
    """
    import pandas as pd

    if cdf and group_by:
        raise UnciaError("distributions are of the whole table, not of groups")
    from uncia.costs.rows import count_left_out, fit_comparable, resolve, rows_with_usage
    from uncia.tariffs import bill
    from uncia.tariffs.allocation import PEAK_REASONS, known_facts

    with use(backend) as backend:
        chosen = resolve(tariffs)
        table = backend.table(source)
        facts = known_facts(source, fit)
        left_out = count_left_out(table, fit, group_by, backend, facts)
        rows, fitted, rules = fit_comparable(table, chosen, fit, backend, facts)
        rule_of = dict(zip((tariff.id for tariff in fitted), rules, strict=True))
        words = PEAK_REASONS if fit == "used-peak" else {}
        measured = rows_with_usage(rows, fit, facts)
        entries = [
            _entry(line, rule_of[line.tariff], left_out.get(tuple(line.group.values()), {}), words)
            for line in bill(measured, fitted, group_by, backend, facts=facts)
        ]
        frame = pd.DataFrame(entries, columns=[COLUMNS[0], *group_by, *COLUMNS[1:]], dtype=object)
        if cdf:
            from uncia.costs.distributions import curves_of

            curves = curves_of(rows, fitted, fit, facts, backend)
            frame["cdf"] = pd.Series(
                [_points(curves, name) for name in frame["tariff"]], dtype=object
            )
        return frame


def _entry(
    line: Line, rule: str, left_out: Mapping[str, int], words: Mapping[str, str]
) -> dict[str, Any]:
    from uncia.tariffs.rows import COMMON_UNPRICED

    common = set(COMMON_UNPRICED.values())  # those are in `left` already
    unpriced = {
        words.get(reason, reason): count
        for reason, count in line.unpriced.items()
        if reason not in common
    }
    ratios = {"vcpu": line.inflation_vcpu, "memory": line.inflation_memory}
    return {
        "tariff": line.tariff,
        **line.group,
        "fit": rule,
        "rows": line.rows,
        **{name: None if value is None else float(value) for name, value in ratios.items()},
        "billable_vcpu_ns": vcpu_ns(line.billable_micro_vcpu_ns),
        "billable_byte_ns": _whole(line.billable_byte_ns),
        "used_vcpu_ns": vcpu_ns(line.used_micro_vcpu_ns),
        "used_byte_ns": _whole(line.used_byte_ns),
        "fee_usd": line.fee_usd,
        "rounding_usd": line.rounding_usd,
        "cost_usd": line.cost_usd,
        "left_out": dict(left_out) | unpriced,
        "beyond_limits": line.beyond_limits,
    }


def vcpu_ns(micro_vcpu_ns: int | None) -> Decimal | None:
    """Convert micro-vCPU x ns to vCPU x ns, exactly."""
    if micro_vcpu_ns is None:
        return None
    return decimal(Fraction(micro_vcpu_ns, MICRO_PER_VCPU), _MICRO_PLACES)


def _whole(value: int | None) -> Decimal | None:
    return None if value is None else Decimal(value)


def _points(curves: pd.DataFrame, tariff: str) -> dict[str, list[list[float]]]:
    curve = curves[curves["tariff"] == tariff]
    return {
        str(resource): [[float(v), float(s)] for v, s in zip(c["value"], c["share"], strict=True)]
        for resource, c in curve.groupby("resource", sort=False)
    }
