"""What monitors read, in the mean: by monitor, counter and control group."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from uncia.report import numbers
from uncia.units import NS_PER_S

_KEYS = ["monitor", "counter", "cgroup"]


def summarise(rows: pa.Table) -> list[dict[str, Any]]:
    """Summarise rows of the table ``machine`` that monitors wrote.

    Args:
        rows: of the table; those without a monitor are left out.

    Returns:
        For each counter of a monitor and group: ``samples``, their ``mean``, and ``per_s``, by how
        much it grew in a second (None for a level); of a counter by CPU, that of all CPUs together,
        unless it is a percentage, whose ``mean`` is over the CPUs, too.
    """
    rows = rows.filter(pc.is_valid(rows.column("monitor")))
    words = {name: rows.column(name).cast(pa.utf8()) for name in _KEYS}
    table = pa.table(
        {
            **words,
            "value": rows.column("value"),
            "interval": pc.cast(rows.column("interval"), pa.float64()),
            "cpu": pc.fill_null(rows.column("cpu"), -1),
        }
    )
    by_cpu = table.group_by([*_KEYS, "cpu"]).aggregate(
        [("value", "sum"), ("value", "count"), ("interval", "sum")]
    )
    # The CPUs' rows are of the same time, which counts once.
    whole = by_cpu.group_by(_KEYS).aggregate(
        [
            ("value_sum", "sum"),
            ("value_count", "sum"),
            ("value_count", "max"),
            ("interval_sum", "max"),
        ]
    )
    lines = [_line(row) for row in whole.to_pylist()]
    return sorted(lines, key=lambda row: (row["monitor"], row["cgroup"] or "", row["counter"]))


def format_value(counter: str, value: float | None) -> str:
    """Write a value of a counter in the unit that ends its name, such as ``_bytes``."""
    return numbers.quantity(value, counter.rpartition("_")[2])


def _line(row: dict[str, Any]) -> dict[str, Any]:
    time_ns = row["interval_sum_max"]
    is_share = row["counter"].endswith("_percent")
    return {
        **{name: row[name] for name in _KEYS},
        "samples": row["value_count_sum"],
        "mean": row["value_sum_sum"] / row["value_count_sum" if is_share else "value_count_max"],
        "per_s": row["value_sum_sum"] / time_ns * NS_PER_S if time_ns else None,
    }
