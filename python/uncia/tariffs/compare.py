"""The rows over which billed and used amounts are compared, and why others are left out."""

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
"""Why a row is left out, in order of precedence; the last only under the fit ``paper``."""

COMPARABLE: Final = -1
"""The code of a row that is not left out."""


def check(fit: str) -> None:
    """Check the name of a fit.

    Raises:
        UnciaError: there is no such fit.
    """
    if fit not in FIT_RULES:
        raise UnciaError(f"there is no fit {fit!r}", f"The fits are: {', '.join(FIT_RULES)}.")


def comparable(table: ir.Table, fit: str = "allocated") -> ir.Table:
    """Select the rows of an invocation table over which billed and used amounts are compared.

    Their outcome is billable, `execution`, CPU time and `memory_avg` are known, the CPU time is
    above zero and no value is absurd. The allocated memory is known, except under the fit
    ``used-peak``: a tariff that charges for use alone could price a row without it, but would then
    be compared over other rows than the rest. Under the fit ``paper`` the allocated vCPU is known
    too and the memory at most 10,240 MB, as the publication filtered.

    Raises:
        UnciaError: there is no such fit, or a column is missing or not of whole numbers.
    """
    return table.filter(first_reason(billing_columns(table), fit) == COMPARABLE)


def left_out(table: ir.Table, fit: str = "allocated") -> ir.Table:
    """Count the rows that `comparable` leaves out: columns `reason` and `rows`.

    A row counts once, under the first of `REASONS` that applies; a reason without rows is missing.

    Raises:
        UnciaError: as `comparable`.
    """
    coded = table.select(code=first_reason(billing_columns(table), fit))
    omitted = coded.filter(coded["code"] != COMPARABLE)
    counted = omitted.aggregate(rows=omitted.count().cast("int64"), by="code")
    reason = ibis.cases(
        *((counted["code"] == code, reason) for code, reason in enumerate(REASONS)),
        else_=ibis.null("string"),
    )
    return counted.mutate(reason=reason).order_by("code")["reason", "rows"]


def first_reason(columns: Mapping[str, Any] | ir.Table, fit: str) -> Any:
    """The index in `REASONS` of the first that applies, int16; `COMPARABLE` if none does.

    Args:
        columns: as `uncia.tariffs.rows.prepare` names them.
        fit: chooses the rows.

    Raises:
        UnciaError: there is no such fit.
    """
    reasons = [(condition, code) for code, condition in enumerate(_conditions(columns, fit))]
    if fit != "paper":
        # Most rows are comparable, so that is tested first where a few columns decide it.
        is_comparable = (columns["common"] == PRICED) & (columns["v_cpu_time"] > 0)
        is_comparable = is_comparable & columns["v_memory_avg"].notnull()
        if fit == "allocated":
            is_comparable = is_comparable & columns["v_allocated_memory"].notnull()
        reasons.insert(0, (is_comparable, COMPARABLE))
    return ibis.cases(*reasons, else_=COMPARABLE).cast("int16")


def _conditions(columns: Mapping[str, Any] | ir.Table, fit: str) -> list[Any]:
    """Whether each of `REASONS` applies, in their order; null where a value is.

    Raises:
        UnciaError: there is no such fit.
    """
    check(fit)
    common, cpu, memory = columns["common"], columns["v_cpu_time"], columns["v_memory_avg"]
    size = columns["v_allocated_memory"]
    conditions = [
        common.isin(list(NOT_BILLABLE)),
        common == NO_EXECUTION,
        common == ABSURD,
        cpu.isnull(),
        cpu == integer(0),
        memory.isnull(),
    ]
    if fit == "allocated":
        conditions.append(size.isnull())
    if fit == "paper":
        conditions += [
            columns["v_allocated_cpu"].isnull() | size.isnull(),
            size > integer(published.MAX_MEMORY),
        ]
    return conditions
