"""What passed between functions and services, from the column ``services`` of invocations."""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa

from uncia.stats import columns
from uncia.stats.columns import pc

COLUMN: Final = "services"


def summarise(rows: pa.Table) -> list[dict[str, Any]]:
    """The bytes that passed, by function and service.

    Args:
        rows: invocations, hops included.

    Returns:
        For each function and service, in the order of their names: ``function``, ``service``,
        ``invocations`` (those of which it is known what passed), and the mean, the maximum and the
        total of the bytes that they sent and received: ``sent_mean``, ``received_total`` and so on.
    """
    if COLUMN not in rows.column_names:
        return []
    known = rows.select(["function", COLUMN]).combine_chunks()
    lists = known.column(COLUMN)
    items = pc.list_flatten(lists)
    flat = {name: pc.struct_field(items, name) for name in ("service", "sent", "received")}
    functions = columns.words(known, "function").take(pc.list_parent_indices(lists))
    grouped = pa.table({"function": functions, **flat}).group_by(["function", "service"])
    sums = grouped.aggregate(
        [
            ([], "count_all"),
            *((way, how) for way in ("sent", "received") for how in ("mean", "max", "sum")),
        ]
    )
    passed = [
        {
            "function": row["function"],
            "service": row["service"],
            "invocations": row["count_all"],
            **{
                f"{way}_{name}": row[f"{way}_{how}"]
                for way in ("sent", "received")
                for name, how in (("mean", "mean"), ("max", "max"), ("total", "sum"))
            },
        }
        for row in sums.to_pylist()
    ]
    return sorted(passed, key=lambda row: (row["function"], row["service"]))
