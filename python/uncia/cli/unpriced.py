"""Says of bills that price no row what the rows lack, and what to add to them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

from uncia.cli.cost import options
from uncia.text import plural

if TYPE_CHECKING:
    from ibis.expr import types as ir

    from uncia.backends import Backend
    from uncia.tariffs import Line

# How reasons for no price begin.
_NO_EXECUTION: Final = ("execution is null",)
_NO_ALLOCATION: Final = ("allocated_memory", "allocated_cpu")
_NO_USE: Final = ("memory_avg", "memory_peak", "cpu_user", "cpu_time", "CPU time")

_REMEDIES: Final = {
    _NO_EXECUTION: "how long the function ran: a platform or function that says so (the key uncia"
    " of its answer), or `uncia load --execution response`, which counts the response time",
    _NO_ALLOCATION: "the memory and the CPU of an instance: `uncia load"
    " --memory 512MB --vcpu 0.5`, or the keys memory and vcpu of the function in the file",
    _NO_USE: "what the function used, which only a platform says that measures it;"
    " --tariff names others",
}
_OF_TRACES: Final = {
    _NO_EXECUTION: "how long the function ran (execution, ns), which these rows do not say",
    _NO_ALLOCATION: "the memory and the CPU of an instance (allocated_memory in bytes,"
    " allocated_cpu in micro-vCPU), which these rows do not say: add these columns, or replay"
    " the trace, whose requests then have them; --tariff names tariffs that bill what was used",
    _NO_USE: "what the function used, which these rows do not say; --tariff names tariffs that"
    " bill what was allocated",
}


def empty_bills(lines: Sequence[Line]) -> list[str]:
    """Write a sentence for all tariffs that price no row for the same reasons.

    Groups in which no row is billable at all (throttled, never run) have nothing to price.
    """
    if not any(line.total_rows for line in lines):
        return ["There are no rows, so there is nothing to price."]
    alike: dict[tuple[tuple[str, ...], tuple[tuple[str, int], ...]], list[str]] = {}
    for line in lines:
        if line.rows == 0 and line.unpriced:
            key = tuple(map(str, line.group.values())), tuple(line.unpriced.items())
            alike.setdefault(key, []).append(line.tariff)
    # Groups that the same tariffs refuse for the same reasons share a sentence about all rows.
    merged: dict[tuple[tuple[str, ...], frozenset[str]], tuple[list[str], Counter[str]]] = {}
    for (group, counts), tariffs in alike.items():
        reasons = frozenset(reason for reason, _ in counts)
        names, total = merged.setdefault((tuple(tariffs), reasons), ([], Counter()))
        if group:
            names.append(", ".join(group))
        total.update(dict(counts))
    everyone = len({line.tariff for line in lines})
    sentences = []
    for (tariffs_alike, _), (names, total) in merged.items():
        rows = plural(total.total(), "row")
        where = f" ({'; '.join(names)})" if names else ""
        why = next(iter(total)) if len(total) == 1 else options.reasons(dict(total))
        which = ", ".join(tariffs_alike)
        if len(tariffs_alike) == everyone > 1:
            which = f"any of these {everyone} tariffs"
        sentences.append(f"None of {rows}{where} has a price under {which}: {why}.")
    return sentences


def remedies(lines: Iterable[Line], *, of_trace: bool = False) -> Iterator[str]:
    """Write what to add so that tariffs that price no row can do so.

    Args:
        lines: the bills.
        of_trace: whether the rows are of a trace, which no client can measure once more.
    """
    reasons = {reason for line in lines if line.rows == 0 for reason in line.unpriced}
    for beginnings, remedy in _REMEDIES.items():
        if any(reason.startswith(beginnings) for reason in reasons):
            yield f"Rows need {_OF_TRACES[beginnings] if of_trace else remedy}."


def is_trace(backend: Backend, table: ir.Table) -> bool:
    """Whether no row has a time of a client, as those of a trace.

    Args:
        backend: where the table is.
        table: invocations.
    """
    schema = table.schema()
    names = [name for name in ("scheduled", "sent", "received") if name in schema]
    if not names:
        return True
    counts = {name: table[name].count() for name in names}
    (row,) = backend.collect(table.aggregate(**counts)).to_pylist()
    return not any(row.values())
