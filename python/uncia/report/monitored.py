"""What monitors read, in the mean: by monitor, counter, host and control group."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from uncia.report import numbers
from uncia.units import NS_PER_S

_KEYS = ["monitor", "counter", "host", "cgroup"]
_ORDER = ["monitor", "host", "cgroup", "counter"]
_BIN = re.compile(r"_(within|from)_-?\d+[a-z]*_count$")
"""Bins of histograms, which have a row only where they grew."""
_OF_SAMPLES = ["value_count_sum", "value_count_max", "interval_sum_max"]


def summarise(rows: pa.Table) -> list[dict[str, Any]]:
    """Summarise rows of the table ``machine`` that monitors wrote.

    Args:
        rows: of the table; those without a monitor are left out.

    Returns:
        For each counter of a monitor, host and group: ``samples``, their ``mean``, and ``per_s``,
        by how much it grew in a second (None for a level); of a counter by CPU, that of all CPUs
        together, unless it is a percentage, whose ``mean`` is over the CPUs, too. Of a bin of a
        histogram, the samples are those of the monitor: without a row of its own it did not grow.
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
    totals = whole.to_pylist()
    _complete_bins(totals)
    lines = [_line(row) for row in totals]
    return sorted(lines, key=lambda row: [row[name] or "" for name in _ORDER])


def is_bin(counter: str) -> bool:
    """Whether a counter is a bin of a histogram, of which there are too many to show each."""
    return _BIN.search(counter) is not None


def format_value(counter: str, value: float | None) -> str:
    """Write a value of a counter in the unit that ends its name, such as ``_bytes``."""
    return numbers.quantity(value, counter.rpartition("_")[2])


def _complete_bins(totals: list[dict[str, Any]]) -> None:
    """Give bins the samples and the time of what their monitor read of the same group, if any."""
    longest: dict[tuple[Any, ...], dict[str, Any]] = {}
    for row in totals:
        key = (row["monitor"], row["host"], row["cgroup"])
        # What a monitor costs is counted at intervals of its own.
        is_cost = row["counter"].startswith("monitor.")
        if not is_cost and not is_bin(row["counter"]) and row["interval_sum_max"]:
            longest[key] = max(longest.get(key, row), row, key=lambda it: it["interval_sum_max"])
    for row in totals:
        whole = longest.get((row["monitor"], row["host"], row["cgroup"]))
        if is_bin(row["counter"]) and whole is not None:
            row |= {name: whole[name] for name in _OF_SAMPLES}


def clock_sentence(host: str, clock: Mapping[str, Any]) -> str:
    """Say how far the clock of another machine was, and how well times of its rows are known.

    Args:
        host: its name.
        clock: its facts, as ``run.yaml`` has them.
    """
    ahead_ns, error_ns = clock["before"]["offset_ns"], clock["before"]["error_ns"]
    way = "ahead" if ahead_ns >= 0 else "behind"
    offset = f"{numbers.quantity(abs(ahead_ns), 'ns')} {way}"
    if abs(ahead_ns) <= error_ns:
        # It may be no offset at all.
        offset = f"{offset}, which is within the error of {numbers.quantity(error_ns, 'ns')}"
    bound = clock["bound_ns"]
    if bound is None:
        known = f"within {numbers.quantity(error_ns, 'ns')} at the beginning, and unknown since"
    else:
        known = f"within {numbers.quantity(bound, 'ns')}"
    return f"The clock of {host} was {offset}; times of its rows are corrected, {known}."


def _line(row: dict[str, Any]) -> dict[str, Any]:
    time_ns = row["interval_sum_max"]
    is_share = row["counter"].endswith("_percent")
    return {
        **{name: row[name] for name in _KEYS},
        "samples": row["value_count_sum"],
        "mean": row["value_sum_sum"] / row["value_count_sum" if is_share else "value_count_max"],
        "per_s": row["value_sum_sum"] / time_ns * NS_PER_S if time_ns else None,
    }
