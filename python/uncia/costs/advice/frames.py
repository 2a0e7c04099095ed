"""Choices and hints as DataFrames."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import pandas as pd

from uncia.costs.advice.changes import Hint, hints_of
from uncia.costs.advice.choices import Choice, choices
from uncia.costs.advice.gather import Study
from uncia.costs.advice.money import usd
from uncia.units import MIB, MICRO_PER_VCPU, NS_PER_MS

CHOICE_COLUMNS: Final = (
    "function",
    "rank",
    "tariff",
    "platform",
    "memory_mb",
    "vcpu",
    "basis",
    "rows",
    "p95_ms",
    "p95_low_ms",
    "p95_high_ms",
    "turnaround_p95_ms",
    "meets_bound",
    "confidence",
    "usable",
    "present",
    "cost_usd_per_million",
    "saving_vs_present",
    "saving_low",
    "saving_high",
    "note",
)
HINT_COLUMNS: Final = (
    "function",
    "hint",
    "tariff",
    "saving_usd",
    "saving_usd_per_million",
    "saving_share",
    "basis",
    "advice",
    "assumption",
    "note",
)


def choice_frame(found: Study) -> pd.DataFrame:
    """One row a choice."""
    return _frame([_choice(one) for one in choices(found)], CHOICE_COLUMNS, found.notes)


def hint_frame(found: Study) -> pd.DataFrame:
    """One row a hint."""
    return _frame([_hint(one) for one in hints_of(found)], HINT_COLUMNS, found.notes)


def _frame(
    rows: Sequence[dict[str, Any]], names: Sequence[str], notes: Sequence[str]
) -> pd.DataFrame:
    # Columns of objects keep None, whole numbers and decimals as they are.
    frame = pd.DataFrame(
        {name: pd.Series([row[name] for row in rows], dtype="object") for name in names}
    )
    frame.attrs["notes"] = list(notes)
    return frame


def _choice(one: Choice) -> dict[str, Any]:
    low, high = one.saved_interval or (None, None)
    return {
        "function": one.function,
        "rank": one.rank,
        "tariff": one.tariff,
        "platform": one.platform or None,
        "memory_mb": _over(one.size.memory, MIB),
        "vcpu": _over(one.size.cpu, MICRO_PER_VCPU),
        "basis": one.basis,
        "rows": one.rows,
        "p95_ms": _over(one.claim.value, NS_PER_MS),
        "p95_low_ms": _over(one.claim.low, NS_PER_MS),
        "p95_high_ms": _over(one.claim.high, NS_PER_MS),
        "turnaround_p95_ms": _over(one.turnaround_p95, NS_PER_MS),
        "meets_bound": one.claim.meets,
        "confidence": one.claim.confidence,
        "usable": one.usable,
        "present": one.is_present,
        "cost_usd_per_million": usd(one.per_million),
        "saving_vs_present": usd(one.saved),
        "saving_low": low,
        "saving_high": high,
        "note": one.note,
    }


def _hint(one: Hint) -> dict[str, Any]:
    return {
        "function": one.function,
        "hint": one.kind,
        "tariff": one.tariff,
        "saving_usd": usd(one.saving),
        "saving_usd_per_million": usd(one.per_million),
        "saving_share": one.share,
        "basis": one.basis,
        "advice": one.advice,
        "assumption": one.assumption,
        "note": one.note,
    }


def _over(value: int | None, unit: int) -> float | None:
    return None if value is None else value / unit
