"""Sizes: what the same functions would cost at each size that providers sell, and their p95.

Only for runs that measured a function at several sizes: it takes two seconds to compute.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from uncia.errors import UnciaError
from uncia.report.data import RunData
from uncia.report.page import Section
from uncia.report.sections import Rows

if TYPE_CHECKING:
    import pyarrow as pa

POSITION: Final = 88
ROWS: Final = Rows("invocations", required=True)

_MAX_ROWS: Final = 1_000_000
"""Rows of a run beyond which the section would take longer than the rest of the page."""


def section(run: RunData, rows: pa.Table) -> Section | None:
    """Show cost and p95 by size and provider; None where nothing can be chosen."""
    from uncia.costs.advice.frames import matrix_frame
    from uncia.costs.advice.gather import study
    from uncia.costs.advice.matrix import default_tariffs
    from uncia.report.cost.matrix import section as matrix_section

    if rows.num_rows > _MAX_ROWS or not _has_several_sizes(run, rows):
        return None
    try:
        with study(
            rows,
            p95=None,
            functions=None,
            tariffs=default_tariffs(),
            fit="allocated",
            confidence=0.95,
            of="execution",
            present=None,
            backend=None,
        ) as data:
            cells = matrix_frame(data)
    except UnciaError:  # no row ran and is billed for
        return None
    if not len(cells):
        return None
    return matrix_section(cells)


def _has_several_sizes(run: RunData, rows: pa.Table) -> bool:
    """Whether a function ran at more than one memory size, apart from warm-ups."""
    sizes: dict[str, set[int]] = {}
    for part in run.by_experiment(rows).values():
        pairs = part.group_by(["function", "allocated_memory"]).aggregate([]).to_pylist()
        for pair in pairs:
            if pair["allocated_memory"] is not None:
                sizes.setdefault(str(pair["function"]), set()).add(pair["allocated_memory"])
    return any(len(memories) > 1 for memories in sizes.values())
