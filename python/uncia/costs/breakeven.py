"""The request rate above which an instance that always runs is cheaper than paying by request."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from uncia.backends import Backend, Source, use
from uncia.costs.instances import exceeds, missing, no_price, price
from uncia.costs.instances import resolve as resolve_instances
from uncia.errors import UnciaError
from uncia.tariffs import Line, Tariff, bill, catalogue
from uncia.tariffs.fit import Size, fit_size
from uncia.tariffs.money import money
from uncia.units import NS_PER_H, NS_PER_S

if TYPE_CHECKING:
    import pandas as pd
    from ibis.expr import types as ir

    from uncia.tariffs import FitRule
    from uncia.tariffs.facts import Facts

COLUMNS: Final = (
    "request_tariff",
    "instance_tariff",
    "usd_per_request",
    "usd_per_hour",
    "rate_per_s",
    "capacity_per_s",
    "feasible",
    "requests",
    "mean_execution_s",
    "concurrency",
    "note",
)

_SECONDS_PER_HOUR: Final = 3600


@dataclass(frozen=True)
class _Workload:
    """What an instance must serve: the largest allocation, the requests, their mean execution."""

    largest: Size
    requests: int
    mean: Fraction | None


def break_even(
    source: Source,
    request_tariffs: Sequence[str | Path | Tariff] | None = None,
    instance_tariffs: Sequence[str | Path | Tariff] | None = None,
    *,
    function: str | None = None,
    concurrency: int = 1,
    fit: FitRule = "allocated",
    backend: Backend | None = None,
) -> pd.DataFrame:
    """Compute the rate above which each instance tariff is cheaper than each request tariff.

    A request costs the exact mean of the rows' bill. The instance has the tariff's size that covers
    the largest allocation of the rows, and is paid all the time. With ``concurrency`` requests at
    once it serves at most ``concurrency / mean execution`` requests a second. A rate above that is
    not feasible: it needs a second instance, and even at full load the first costs more for each
    request than paying by request.

    Args:
        source: invocations, as `uncia.tariffs.bill` takes them.
        request_tariffs: by default all that bill by request.
        instance_tariffs: by default all that bill instance time.
        function: only the rows of this function; by default all rows, as if of one.
        concurrency: requests that an instance serves at the same time.
        fit: how rows get their sizes, as in `uncia.tariffs.bill`.
        backend: computes it; by default a DuckDB that is opened for it.

    Returns:
        A row for each pair: ``usd_per_request``, ``usd_per_hour`` (Decimal), ``rate_per_s`` (float;
        at a higher rate the instance is cheaper), ``capacity_per_s``, ``feasible`` (the instance
        covers the allocation and serves that rate), ``requests`` (rows behind the mean cost),
        ``mean_execution_s``, ``concurrency``, and ``note``: why not, or what is unknown.

    Raises:
        UnciaError: a table or tariff cannot be read, no row is of the function, or the concurrency
            is not positive.
    """
    if concurrency < 1:
        raise UnciaError(f"a concurrency of {concurrency} serves nothing; it must be at least 1")
    import pandas as pd

    from uncia.tariffs.allocation import apply_fit, known_facts

    with use(backend) as backend:
        by_instance = resolve_instances(instance_tariffs)
        table, facts = backend.table(source), known_facts(source, fit)
        if function is not None:
            if "function" not in table.columns:
                raise UnciaError("the table has no column function")
            table = table.filter(table["function"].cast("string") == function)
        table, by_request, _ = apply_fit(
            table, catalogue.resolve(request_tariffs), fit, backend, facts
        )
        workload, sizes = _workload(table, by_instance, backend, facts)
        if workload.requests == 0:
            suffix = "" if function is None else f" of the function {function}"
            raise UnciaError(f"no row{suffix} ran, so there is nothing to compare")
        lines = bill(table, by_request, backend=backend, facts=facts)
        records = [
            _pair(line, tariff, size, workload, concurrency)
            for line in lines
            for tariff, size in zip(by_instance, sizes, strict=True)
        ]
        return pd.DataFrame(records, columns=list(COLUMNS), dtype=object)


def _workload(
    table: ir.Table, tariffs: Sequence[Tariff], backend: Backend, facts: Facts
) -> tuple[_Workload, list[Size]]:
    """Summarise the rows that ran, and fit a size that covers them under each tariff."""
    from uncia.tariffs.rows import PRICED, billing_columns

    prepared = table.select(**billing_columns(table, (), facts))
    ran = prepared.filter(prepared["common"] == PRICED)
    totals = ran.aggregate(
        cpu=ran["v_allocated_cpu"].max(),
        memory=ran["v_allocated_memory"].max(),
        requests=ran.count().cast("int64"),
        execution=ran["v_execution"].cast("decimal(18, 0)").sum().cast("decimal(38, 0)"),
    )
    (row,) = backend.collect(totals).to_pylist()
    requests = row["requests"]
    mean = Fraction(int(row["execution"]), requests) if requests else None
    needed = Size(row["cpu"], row["memory"])
    return _Workload(needed, requests, mean), [fit_size(tariff.sizes, needed) for tariff in tariffs]


def _pair(
    line: Line,
    tariff: Tariff,
    size: Size,
    workload: _Workload,
    concurrency: int,
) -> dict[str, Any]:
    mean = workload.mean or Fraction(0)
    capacity = Fraction(concurrency * NS_PER_S) / mean if mean else None
    record: dict[str, Any] = dict.fromkeys(COLUMNS)
    record |= {
        "request_tariff": line.tariff,
        "instance_tariff": tariff.id,
        "requests": line.rows,
        "capacity_per_s": math.inf if capacity is None else float(capacity),
        "mean_execution_s": float(mean / NS_PER_S),
        "concurrency": concurrency,
    }
    per_request = None if line.exact_cost is None else line.exact_cost / line.rows
    if per_request is not None:
        record["usd_per_request"] = money(per_request)
    notes = [no_price(tariff) or missing(tariff, workload.largest, size)]
    if notes == [None]:
        per_hour = price(tariff, size) * NS_PER_H
        record["usd_per_hour"] = money(per_hour)
        if per_request:
            rate = per_hour / _SECONDS_PER_HOUR / per_request
            within = capacity is None or rate <= capacity
            covers = not exceeds(workload.largest, size)
            record["rate_per_s"] = float(rate)
            record["feasible"] = within and covers
            notes += [
                None if within else "one instance cannot hold that rate, so none is ever cheaper",
                None if covers else "the allocation is larger than the instance",
            ]
    if per_request is None:
        notes.append(f"{line.tariff} can price none of the rows")
    record["note"] = "; ".join(note for note in notes if note is not None) or None
    return record
