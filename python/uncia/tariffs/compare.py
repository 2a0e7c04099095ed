"""Which rows billed and used amounts can be compared over, and why others cannot."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal, TypeAlias, get_args

import ibis
from ibis.expr import types as ir

from uncia.errors import UnciaError
from uncia.tariffs import published
from uncia.tariffs.cells import ABSURD, COMMON_UNPRICED, NO_EXECUTION, NOT_BILLABLE, believed
from uncia.tariffs.exact import integer

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
    return table.filter(stays(believed(table), fit))


def left_out(table: ir.Table, fit: str = "allocated") -> ir.Table:
    """How many rows `comparable` leaves out: columns `reason` and `rows`, one row a reason.

    A row counts once, under the first of `REASONS` that holds; a reason without rows is not there.

    Raises:
        UnciaError: as `comparable`.
    """
    coded = table.select(code=_reason(table, fit))
    gone = coded.filter(coded["code"] >= 0)
    counted = gone.aggregate(rows=gone.count().cast("int64"), by="code")
    said = ibis.cases(
        *((counted["code"] == code, reason) for code, reason in enumerate(REASONS)),
        else_=ibis.null("string"),
    )
    return counted.mutate(reason=said).order_by("code")["reason", "rows"]


def stays(columns: Mapping[str, Any] | ir.Table, fit: str) -> Any:
    """Whether a row is comparable, of columns named as `uncia.tariffs.cells.prepare` names them.

    Raises:
        UnciaError: there is no such fit.
    """
    return ~ibis.or_(*(one.fill_null(False) for one in holds(columns, fit)))


def _reason(table: ir.Table, fit: str) -> Any:
    """The position in `REASONS` of the first that holds; -1 for a row that stays."""
    found = enumerate(holds(believed(table), fit))
    return ibis.cases(*((one, code) for code, one in found), else_=-1).cast("int16")


def holds(columns: Mapping[str, Any] | ir.Table, fit: str) -> list[Any]:
    """Whether each of `REASONS` holds, in their order, of columns named as `stays` has them.

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
