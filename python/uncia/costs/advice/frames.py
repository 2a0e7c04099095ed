"""Data frames of choices and hints."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from fractions import Fraction
from typing import Any, Final

import pandas as pd

from uncia.costs.advice.choice import Choice
from uncia.costs.advice.choices import choices
from uncia.costs.advice.gather import Study, key_words
from uncia.costs.advice.load import loading
from uncia.costs.advice.matrix import matrix
from uncia.costs.advice.resize import resizing
from uncia.costs.advice.sizes import seller
from uncia.costs.advice.trials import Hint
from uncia.costs.sizes import decimal
from uncia.units import MIB, MICRO_PER_VCPU, NS_PER_MS

PLACES: Final = 12
"""Decimals of an amount: a millionth of a millionth of a dollar for a million requests."""

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
MATRIX_COLUMNS: Final = (*CHOICE_COLUMNS, "best")
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


def choice_frame(study: Study) -> pd.DataFrame:
    """The choices, a row for each, by function and rank.

    Returns:
        The columns `CHOICE_COLUMNS`. ``attrs`` holds ``notes``, ``bound_ms`` (None without one),
        ``present`` (the present size of each function, in words) and ``sellers`` (by tariff).
    """
    return _described([_choice(choice) for choice in choices(study)], CHOICE_COLUMNS, study)


def matrix_frame(study: Study) -> pd.DataFrame:
    """The cells of every function's matrix of sizes and tariffs, by function, memory and tariff.

    Returns:
        The columns `MATRIX_COLUMNS`: those of a choice and ``best``, true for one cell of each
        function. ``attrs`` as of `choice_frame`.
    """
    rows = [_choice(cell.choice) | {"best": cell.is_best} for cell in matrix(study)]
    return _described(rows, MATRIX_COLUMNS, study)


def _described(
    rows: Sequence[dict[str, Any]], columns: Sequence[str], study: Study
) -> pd.DataFrame:
    frame = _frame(rows, columns, study.notes)
    frame.attrs["bound_ms"] = _over(study.bound, NS_PER_MS)
    frame.attrs["present"] = {function: _present(study, function) for function in study.by_function}
    in_use = {study.tariff_in_use(study.present(name)) for name in study.by_function}
    frame.attrs["in_use_known"] = None not in in_use
    frame.attrs["sellers"] = {name: seller(tariff) for name, tariff in study.priced.items()}
    return frame


def _present(study: Study, function: str) -> str:
    """The present size of a function, and of how many of its rows it is."""
    config = study.present(function)
    rows = study.facts[config].rows
    total = sum(study.facts[other].rows for other in study.by_function[function])
    in_use = study.tariff_in_use(config)
    bill = f", billed by {in_use}" if in_use else ""
    return f"{key_words(config)} ({rows:,} of {total:,} rows){bill}"


def hint_frame(study: Study) -> pd.DataFrame:
    """The hints, a row for each: by function, the largest saving first, then the unjudged."""
    hints = sorted([*resizing(study), *loading(study)], key=_hint_order)
    return _frame([_hint(hint) for hint in hints], HINT_COLUMNS, study.notes)


def _hint_order(hint: Hint) -> tuple[str, bool, Fraction, str, str]:
    unjudged = hint.per_million is None
    return hint.function, unjudged, -(hint.per_million or Fraction(0)), hint.kind, hint.tariff or ""


def usd(amount: Fraction | None) -> Decimal | None:
    """Round an amount of money to `PLACES` decimals, half to even; None stays None."""
    return decimal(amount, PLACES)


def _frame(
    rows: Sequence[dict[str, Any]], names: Sequence[str], notes: Sequence[str]
) -> pd.DataFrame:
    # Columns of objects keep None, whole numbers and decimals as they are.
    frame = pd.DataFrame(
        {name: pd.Series([row[name] for row in rows], dtype="object") for name in names}
    )
    frame.attrs["notes"] = list(notes)
    return frame


def _choice(choice: Choice) -> dict[str, Any]:
    low, high = choice.saved_interval or (None, None)
    return {
        "function": choice.function,
        "rank": choice.rank,
        "tariff": choice.tariff,
        "platform": choice.platform or None,
        "memory_mb": _over(choice.size.memory, MIB),
        "vcpu": _over(choice.size.cpu, MICRO_PER_VCPU),
        "basis": choice.basis,
        "rows": choice.rows,
        "p95_ms": _over(choice.claim.value, NS_PER_MS),
        "p95_low_ms": _over(choice.claim.low, NS_PER_MS),
        "p95_high_ms": _over(choice.claim.high, NS_PER_MS),
        "turnaround_p95_ms": _over(choice.turnaround_p95, NS_PER_MS),
        "meets_bound": choice.claim.meets,
        "confidence": choice.claim.confidence,
        "usable": choice.usable,
        "present": choice.is_present,
        "cost_usd_per_million": usd(choice.per_million),
        "saving_vs_present": usd(choice.saved),
        "saving_low": low,
        "saving_high": high,
        "note": choice.note,
    }


def _hint(hint: Hint) -> dict[str, Any]:
    return {
        "function": hint.function,
        "hint": hint.kind,
        "tariff": hint.tariff,
        "saving_usd": usd(hint.saving),
        "saving_usd_per_million": usd(hint.per_million),
        "saving_share": hint.share,
        "basis": hint.basis,
        "advice": hint.advice,
        "assumption": hint.assumption,
        "note": hint.note,
    }


def _over(value: int | None, unit: int) -> float | None:
    return None if value is None else value / unit
