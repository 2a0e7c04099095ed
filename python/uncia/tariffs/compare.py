"""Which rows billed and used amounts can be compared over, and why others cannot."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal, TypeAlias, get_args

import ibis
from ibis.expr import types as ir

from uncia.errors import UnciaError
from uncia.tariffs import published
from uncia.tariffs.exact import integer
from uncia.tariffs.rows import (
    ABSURD,
    COMMON_UNPRICED,
    NO_EXECUTION,
    NOT_BILLABLE,
    PRICED,
    billing_columns,
)

FitRule: TypeAlias = Literal["allocated", "used-peak", "paper"]
"""``allocated``: the smallest size that covers what was allocated. ``used-peak``: the smallest that
covers the most demanding row of the function. ``paper``: as published (see `published`)."""

FIT_RULES: Final[tuple[str, ...]] = get_args(FitRule)

REASONS: Final = (
    "not billable",
    COMMON_UNPRICED[NO_EXECUTION],
    COMMON_UNPRICED[ABSURD],
    "CPU time is null",
    "CPU time is zero",
    "memory_avg is null",
    "allocation is null",
    "memory above 10,240 MB",
)
"""Why a row is left out, in the order in which they are tried; the last only as published."""

COMPARABLE: Final = -1
"""The code of a row that is not left out."""


def check(fit: str) -> None:
    """Refuse what is no rule.

    Raises:
        UnciaError: there is no such fit.
    """
    if fit not in FIT_RULES:
        raise UnciaError(f"there is no fit {fit!r}", f"The fits are: {', '.join(FIT_RULES)}.")


def comparable(table: ir.Table, fit: str = "allocated") -> ir.Table:
    """The rows of an invocation table over which what is billed is compared with what was used.

    Their outcome is billable, `execution`, CPU time and `memory_avg` are known, the CPU time is
    above zero and nothing is absurd. The allocated memory is known, except where sizes are fitted
    to use: a tariff that charges for use alone could price a row without, but would then be
    compared over other rows than the rest. With the fit ``paper`` the allocated vCPU is known too
    and the memory at most 10,240 MB, as the publication filtered.

    Raises:
        UnciaError: there is no such fit, or a column is missing or not of whole numbers.
    """
    return table.filter(first_reason(billing_columns(table), fit) == COMPARABLE)


def left_out(table: ir.Table, fit: str = "allocated") -> ir.Table:
    """How many rows `comparable` leaves out: columns `reason` and `rows`, one row a reason.

    A row counts once, under the first of `REASONS` that holds; a reason without rows is not there.

    Raises:
        UnciaError: as `comparable`.
    """
    coded = table.select(code=first_reason(billing_columns(table), fit))
    gone = coded.filter(coded["code"] != COMPARABLE)
    counted = gone.aggregate(rows=gone.count().cast("int64"), by="code")
    said = ibis.cases(
        *((counted["code"] == code, reason) for code, reason in enumerate(REASONS)),
        else_=ibis.null("string"),
    )
    return counted.mutate(reason=said).order_by("code")["reason", "rows"]


def first_reason(columns: Mapping[str, Any] | ir.Table, fit: str) -> Any:
    """The position in `REASONS` of the first that holds, int16; `COMPARABLE` if none does.

    Args:
        columns: as `uncia.tariffs.rows.prepare` names them.
        fit: chooses the rows.

    Raises:
        UnciaError: there is no such fit.
    """
    reasons = [(one, code) for code, one in enumerate(_conditions(columns, fit))]
    if fit != "paper":
        # Most rows stay, so that is what is asked first where a few columns tell it.
        good = (columns["common"] == PRICED) & (columns["v_cpu_time"] > 0)
        good = good & columns["v_memory_avg"].notnull()
        if fit == "allocated":
            good = good & columns["v_allocated_memory"].notnull()
        reasons.insert(0, (good, COMPARABLE))
    return ibis.cases(*reasons, else_=COMPARABLE).cast("int16")


def _conditions(columns: Mapping[str, Any] | ir.Table, fit: str) -> list[Any]:
    """Whether each of `REASONS` holds, in their order; null where a value is.

    Raises:
        UnciaError: there is no such fit.
    """
    check(fit)
    common, cpu, memory = columns["common"], columns["v_cpu_time"], columns["v_memory_avg"]
    size = columns["v_allocated_memory"]
    found = [
        common.isin(list(NOT_BILLABLE)),
        common == NO_EXECUTION,
        common == ABSURD,
        cpu.isnull(),
        cpu == integer(0),
        memory.isnull(),
    ]
    if fit == "allocated":
        found.append(size.isnull())
    if fit == "paper":
        found += [
            columns["v_allocated_cpu"].isnull() | size.isnull(),
            size > integer(published.MAX_MEMORY),
        ]
    return found
