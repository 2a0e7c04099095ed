"""Says of bills that price no row what the rows lack, and what to add to them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

from uncia.cli.cost import options
from uncia.text import plural

if TYPE_CHECKING:
    from uncia.tariffs import Line

# Columns that a reason for no price names -> what to do about it.
_REMEDIES: Final = {
    ("execution",): "how long the function ran: a platform or function that says so (the key uncia"
    " of its answer), or `uncia load --execution response`, which counts the response time",
    ("allocated_memory", "allocated_cpu"): "the memory and the CPU of an instance: `uncia load"
    " --memory 512MB --vcpu 0.5`, or the keys memory and vcpu of the function in the file",
    ("memory_avg", "memory_peak", "cpu_user", "cpu_time"): "what the function used, which only a"
    " platform says that measures it; --tariff names others",
}


def empty_bills(lines: Sequence[Line]) -> list[str]:
    """Write a sentence for all tariffs that price no row for the same reasons.

    Groups in which no row is billable at all (throttled, never run) have nothing to price.
    """
    if lines and not any(line.total_rows for line in lines):
        return ["There are no rows, so there is nothing to price."]
    tariffs: dict[tuple[tuple[str, int], ...], list[str]] = {}
    for line in lines:
        if line.rows == 0 and line.unpriced:
            tariffs.setdefault(tuple(line.unpriced.items()), []).append(_name(line))
    sentences = []
    for counts, names in tariffs.items():
        total = plural(sum(count for _, count in counts), "row")
        why = counts[0][0] if len(counts) == 1 else options.reasons(dict(counts))
        which = ", ".join(names)
        if len(names) == len(lines) > 1:
            which = f"any of these {len(names)} tariffs"
        sentences.append(f"None of {total} has a price under {which}: {why}.")
    return sentences


def remedies(lines: Iterable[Line]) -> Iterator[str]:
    """Write what to add so that tariffs that price no row can do so."""
    reasons = " ".join(reason for line in lines if line.rows == 0 for reason in line.unpriced)
    for columns, remedy in _REMEDIES.items():
        if any(column in reasons for column in columns):
            yield f"Rows need {remedy}."


def _name(line: Line) -> str:
    group: Sequence[str] = [str(value) for value in line.group.values() if value is not None]
    return f"{line.tariff} ({', '.join(group)})" if group else line.tariff
