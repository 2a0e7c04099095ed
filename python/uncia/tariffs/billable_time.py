"""The time that a tariff bills of a request (T of Equation 1), and the column of each amount."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from uncia.errors import UnciaError
from uncia.tariffs.columns import Steps, T
from uncia.tariffs.model import BillableTime, Charge

# The column where each basis finds its amount; allocations come from the fit.
_MEASURED: Final[dict[tuple[str, str], str]] = {
    ("cpu", "used"): "cpu_time",
    ("cpu", "reserved"): "reserved_cpu",
    ("cpu", "borrowed"): "borrowed_cpu_time",
    ("cpu", "lent"): "lent_cpu_time",
    ("memory", "used"): "memory_avg",
    ("memory", "lent"): "lent_memory_avg",
}


def measured(charge: Charge) -> str:
    """The column with the amount of a charge for anything but an allocation.

    Raises:
        UnciaError: the invocation table has no such column.
    """
    name = _MEASURED.get((charge.resource, charge.basis))
    if name is None:
        raise UnciaError(f"{charge.resource} {charge.basis} cannot be billed by request")
    return name


def actual_time(time: BillableTime, steps: Steps[T], row: Callable[[str], T]) -> T:
    """The time of each row that is billed, ns, before any rule.

    Args:
        time: of the tariff.
        steps: compute it, of columns or of numbers.
        row: gives a column of the rows by name.
    """
    match time.kind:
        case "execution":
            return row("execution")
        case "turnaround":
            return steps.add(turnaround, row("execution"), row("initialization"))
        case "cpu":
            return row("cpu_time")
        case "instance":
            raise UnciaError("instance time is billed of instances, not of invocations")


def lacks_initialization(starts: Any, initialization: Any) -> Any:
    """Whether a request waited for an unknown initialization, so that its turnaround is unknown.

    Args:
        starts: whether it started an instance; not null.
        initialization: ns; null where unknown.
    """
    return starts & initialization.isnull()


def turnaround(execution: Any, initialization: Any) -> Any:
    """The execution plus the initialization that the request waited for, if any."""
    return execution + initialization.fill_null(0)
