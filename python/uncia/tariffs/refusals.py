"""The reasons for which a tariff cannot price a row: the same for tables and for one request.

The reasons that hold under every tariff (`uncia.tariffs.rows`) come before them.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from functools import reduce
from typing import Any

from uncia.tariffs.billable_time import measured
from uncia.tariffs.columns import Steps, T
from uncia.tariffs.fit import Fit, fitted
from uncia.tariffs.model import Tariff
from uncia.tariffs.sizes import Fixed, Observed
from uncia.tariffs.state import Flag


def refusals(
    tariff: Tariff, steps: Steps[T], base: Callable[[str], T], size: Fit[T]
) -> list[tuple[str, T]]:
    """Each reason for which a tariff may refuse, in order, and whether it holds.

    Args:
        tariff: bills by request.
        steps: what computes it: columns of cells, or numbers.
        base: gives values by name: ``unknown_start``, ``no_<column>``, ``v_<column>``.
        size: as `uncia.tariffs.fit.fit` found it.
    """
    checks: dict[str, T] = {}
    amounts: list[T] = []
    if tariff.time.kind == "turnaround":
        checks["initialization of a cold start is null"] = base("unknown_start")
    for charge in tariff.charges:
        if charge.unit_price == 0:
            continue  # what costs nothing cannot make a row unpriceable
        amount = fitted(charge, size)
        if amount is None:
            name = measured(charge)
            reason = "cpu_user and cpu_system are null" if name == "cpu_time" else f"{name} is null"
            checks.setdefault(reason, base(Flag("gap", name).name))
        else:
            for name in size.cpu_needs if charge.resource == "cpu" else size.memory_needs:
                checks.setdefault(f"{name} is null", steps.add(_null, base(f"v_{name}")))
            if not isinstance(tariff.sizes, Fixed | Observed) and amount not in amounts:
                amounts.append(amount)
        if charge.when != "always":
            checks.setdefault("preemptible is null", base("no_preemptible"))
    if amounts:
        checks["larger than every size of the tariff"] = steps.add(_any_null, *amounts)
    return list(checks.items())


def _null(value: Any) -> Any:
    return value.isnull()


def _any_null(*values: Any) -> Any:
    return reduce(operator.or_, (value.isnull() for value in values))
