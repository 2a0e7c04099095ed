"""What predictors of branches and last-level caches make of functions, simulated."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from uncia.suites.metrics import Metric


def _value(key: str) -> Callable[[Mapping[str, Any]], float | None]:
    return lambda line: line.get(key)


def _start_share(line: Mapping[str, Any]) -> float | None:
    share = line["start_share"]
    return None if share is None else 100 * float(share)


_OF: Final = {
    "mpki": "the start and the first invocation",
    "start_mpki": "the start",
    "first_mpki": "the first invocation",
    "warm_mpki": "the last invocation, with tables warm from those before",
    "cold_mpki": "the last invocation, with empty tables",
    "shared_mpki": "the last invocation, with tables that all functions share in turns",
}

METRICS: Final = (
    *(
        Metric(
            name,
            "number",
            "",
            f"Mispredicted branches, or misses of the cache, for a thousand instructions of {of}.",
            locality=_value(name),
        )
        for name, of in _OF.items()
    ),
    Metric(
        "start_share",
        "number",
        "%",
        "The start's part of the instructions of the start and the first invocation.",
        locality=_start_share,
        is_geometric=False,
    ),
)
