"""Outcomes that are none of the record's: their rows are billed as if all had gone well."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from uncia.record import OUTCOMES
from uncia.tariffs.facts import UNKNOWN, Facts
from uncia.text import plural

if TYPE_CHECKING:
    from ibis.expr import types as ir

    from uncia.backends import Backend

_MAX_NAMED: Final = 5


def outcome_note(backend: Backend, table: ir.Table, facts: Facts) -> str | None:
    """Name and count the outcomes of a table that are not known; None where all are.

    Args:
        backend: where the table is.
        table: invocations.
        facts: what is known of its columns.
    """
    if any(facts.get("outcome", UNKNOWN).always(known) for known in OUTCOMES):
        return None
    dtype = table.schema().get("outcome")
    if dtype is None or not (dtype.is_string() or dtype.is_numeric()):
        return None
    outcome = table["outcome"].cast("string")
    others = table.filter(~outcome.isin(OUTCOMES))
    counted = backend.collect(
        others.aggregate(n=others.count(), by=[others["outcome"].cast("string").name("word")])
    )
    counts = {str(row["word"]): int(row["n"]) for row in counted.to_pylist()}
    if not counts:
        return None
    words = sorted(counts, key=lambda word: (-counts[word], word))
    named = ", ".join(f"{counts[word]:,} {word!r}" for word in words[:_MAX_NAMED])
    more = f" and {len(words) - _MAX_NAMED:,} more" if len(words) > _MAX_NAMED else ""
    rows = plural(sum(counts.values()), "row")
    return (
        f"Outcomes that are not known, in {rows}: {named}{more}. They are billed as ok is. Known"
        f" are {', '.join(OUTCOMES)}."
    )
