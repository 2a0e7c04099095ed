"""A long task against the same task in bursts: read from a run, billed both ways, and compared."""

from uncia.bandwidth.intermittent.bills import (
    BURSTS,
    LONG,
    TARIFFS,
    TASKS,
    Comparison,
    break_even_fee,
    compare,
    costs,
    pairs,
    saved,
    stage,
    tasks,
)
from uncia.bandwidth.intermittent.result import Result, as_data, read, timeline

__all__ = [
    "BURSTS",
    "LONG",
    "TARIFFS",
    "TASKS",
    "Comparison",
    "Result",
    "as_data",
    "break_even_fee",
    "compare",
    "costs",
    "pairs",
    "read",
    "saved",
    "stage",
    "tasks",
    "timeline",
]
