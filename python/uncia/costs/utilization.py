"""Utilization: how much of their allocated CPU and memory requests use, and their correlation.

Section 2.3 and Figure 3 of *Demystifying Serverless Costs on Public Platforms* (EuroSys'26): CPU
time over (allocated vCPU x execution), and average memory over allocated memory.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import ibis
import numpy as np
import pyarrow as pa

from uncia.backends import Backend, Source, use
from uncia.costs import bins
from uncia.costs.ranks import Binned, Spearman, spearman
from uncia.costs.rows import comparable_rows, count_left_out
from uncia.tariffs.allocation import known_facts
from uncia.units import MICRO_PER_VCPU

if TYPE_CHECKING:
    import pandas as pd
    from ibis.expr import types as ir

    from uncia.tariffs import FitRule

CELLS: Final = 40
"""Cells of the joint density in each direction, each 2.5 % wide; the last holds all above 100 %."""

PROBABILITIES: Final = (0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99)

PER_OCTAVE: Final = 128
"""Bins of utilization in each doubling: each 0.54 % wide, 2,048 from 2^-12 to 2^4."""

WIDTH: Final = 2 ** (1 / PER_OCTAVE) - 1
_LOWEST: Final = -12 * PER_OCTAVE
_HIGHEST: Final = 4 * PER_OCTAVE - 1
_RESOURCES: Final = ("cpu", "memory")
_QUARTERS: Final = (1, 2, 3)
_SPLIT: Final = 64  # a cell's number fits below it
_ROUNDING: Final = 1e-12  # a variance below this part of the mean square is that of rounding


@dataclass(frozen=True)
class Utilization:
    """How requests use their allocations.

    Attributes:
        frame: a row for each resource; see `utilization`.
        cdf: columns ``resource``, ``value`` (share of the allocation that is used) and ``share``
            (of requests, at most that).
        density: columns ``cpu``, ``memory`` (lower edges of cells of `CELLS` a side), ``rows`` and
            ``share``; cells without rows are left out.
        rows: requests counted.
        left_out: the others, by reason.
        pearson: Pearson's correlation of the two; None where one does not vary.
        spearman: Spearman's, with its error bound.
    """

    frame: pd.DataFrame
    cdf: pd.DataFrame
    density: pd.DataFrame
    rows: int
    left_out: Mapping[str, int]
    pearson: float | None
    spearman: Spearman


def utilization(
    source: Source, *, fit: FitRule = "allocated", backend: Backend | None = None
) -> pd.DataFrame:
    """Compute the distributions of CPU and memory utilization, and their correlation.

    Args:
        source: invocations; see `uncia.backends.Source`.
        fit: chooses the rows: with ``paper`` those that the publication kept.
        backend: computes it; by default a DuckDB that is opened for it.

    Returns:
        A row for each resource (cpu, memory): ``resource``, ``rows``, ``mean``, ``below_25``,
        ``below_50``, ``below_75`` (shares of requests, counted), ``p1`` to ``p99``
        (quantiles, at most 0.54 % too high), ``most``, ``pearson``, ``spearman``,
        ``spearman_error`` (of both resources together: the same in each row) and ``left_out``.

    Raises:
        UnciaError: a table cannot be read, or lacks a column.
    """
    return measure(source, fit=fit, backend=backend).frame


def measure(
    source: Source, *, fit: FitRule = "allocated", backend: Backend | None = None
) -> Utilization:
    """As `utilization`, with the distributions and the joint density."""
    with use(backend) as backend:
        table = backend.table(source)
        facts = known_facts(source, fit)
        left = dict(count_left_out(table, fit, (), backend, facts).get((), {}))
        joint = backend.collect(_joint(_ratios(comparable_rows(table, fit, facts))))
        return _assemble(joint, left)


_REASONS: Final = {
    1: "allocated_cpu is null or zero",
    2: "allocated_memory is null or zero",
    3: "execution is zero",
}
"""Why a row whose usage is known has no utilization."""


def _ratios(rows: ir.Table) -> ir.Table:
    """Both ratios of each row, or the reason why it has none (0: it has both)."""
    cpu, memory = rows["v_allocated_cpu"], rows["v_allocated_memory"]
    reason = ibis.cases(
        (cpu.fill_null(0) == 0, 1),
        (memory.fill_null(0) == 0, 2),
        (rows["v_execution"] == 0, 3),
        else_=0,
    ).cast("int16")
    kept = rows.select(
        reason=reason,
        used_cpu=rows["v_cpu_time"].cast("float64") * float(MICRO_PER_VCPU),
        used_memory=rows["v_memory_avg"].cast("float64"),
        # Exact up to 2^53 micro-vCPU x ns (1 vCPU for 2.5 hours), and so is which side of 25, 50
        # or 75 % a ratio lies on.
        of_cpu=cpu.cast("float64") * rows["v_execution"].cast("float64"),
        of_memory=memory.cast("float64"),
    )
    good = kept["reason"] == 0
    return kept.select(
        "reason",
        u=ibis.ifelse(good, kept["used_cpu"] / kept["of_cpu"], ibis.null("float64")),
        v=ibis.ifelse(good, kept["used_memory"] / kept["of_memory"], ibis.null("float64")),
    )


def _joint(ratios: ir.Table) -> ir.Table:
    """Group rows by bins of both ratios, with sums for the moments; cells' edges divide bins."""
    keys: dict[str, Any] = {"reason": ratios["reason"]}
    for name, ratio in (("cpu", ratios["u"]), ("memory", ratios["v"])):
        bin_ = bins.log_bin(ratio, PER_OCTAVE)
        bin_ = ibis.ifelse(bin_ > _HIGHEST, _HIGHEST, bin_)
        bin_ = ibis.ifelse(bin_ < _LOWEST, _LOWEST - 1, bin_)
        cell = (ratio * float(CELLS)).floor()
        cell = ibis.ifelse(cell > CELLS - 1, CELLS - 1, cell).cast("int32")
        keys[name] = (bin_ - (_LOWEST - 1)).cast("int32") * _SPLIT + cell
    keyed = ratios.select(**keys, u=ratios["u"], v=ratios["v"])
    u, v = keyed["u"], keyed["v"]
    aggregates: dict[str, Any] = {"n": keyed.count().cast("int64")}
    for name, ratio in (("cpu", u), ("memory", v)):
        aggregates |= {f"least_{name}": ratio.min(), f"most_{name}": ratio.max()}
        aggregates |= {f"sum_{name}": ratio.sum(), f"squares_{name}": (ratio * ratio).sum()}
    aggregates["products"] = (u * v).sum()
    return keyed.aggregate(aggregates, by=list(keys))


@dataclass(frozen=True)
class _Joint:
    """The joint histogram: bins, cells of the density and counts, shape (k,) each."""

    binned: Mapping[str, Binned]
    cells: Mapping[str, bins.Counts]
    n: bins.Counts

    @classmethod
    def of(cls, table: pa.Table) -> _Joint:
        def column(name: str, kind: Any) -> Any:
            return table[name].to_numpy().astype(kind)

        packed = {name: column(name, np.int64) for name in _RESOURCES}
        ends = {
            name: [column(f"{end}_{name}", np.float64) for end in ("least", "most")]
            for name in _RESOURCES
        }
        return cls(
            {name: Binned(packed[name] // _SPLIT, *ends[name]) for name in _RESOURCES},
            {name: key % _SPLIT for name, key in packed.items()},
            column("n", np.int64),
        )


def _assemble(table: pa.Table, left: dict[str, int]) -> Utilization:
    import pandas as pd

    reasons = table["reason"].to_numpy()
    for code, reason in _REASONS.items():
        if gone := int(table["n"].to_numpy()[reasons == code].sum()):
            left[reason] = gone
    table = table.filter(pa.array(reasons == 0))
    joint = _Joint.of(table)
    rows = int(joint.n.sum())
    moments = _Moments(table, rows)
    rank = spearman(joint.binned["cpu"], joint.binned["memory"], joint.n)
    entries: list[dict[str, Any]] = []
    curves: list[pd.DataFrame] = []
    for name in _RESOURCES:
        value, share = _curve(joint.binned[name], joint.n)
        curves.append(pd.DataFrame({"resource": name, "value": value, "share": share}))
        quarter = CELLS // 4
        below = {
            f"below_{25 * k}": int(joint.n[joint.cells[name] < k * quarter].sum())
            for k in _QUARTERS
        }
        entries.append(
            {
                "resource": name,
                "rows": rows,
                "mean": moments.mean(name),
                **{bound: count / rows if rows else None for bound, count in below.items()},
                **{f"p{p * 100:g}": bins.quantile(value, share, p) for p in PROBABILITIES},
                "most": float(value[-1]) if rows else None,
                "pearson": moments.pearson,
                "spearman": rank.value,
                "spearman_error": rank.error,
                "left_out": dict(left),
            }
        )
    return Utilization(
        frame=pd.DataFrame(entries, dtype=object),
        cdf=pd.concat(curves, ignore_index=True),
        density=_density(joint, rows),
        rows=rows,
        left_out=dict(left),
        pearson=moments.pearson,
        spearman=rank,
    )


class _Moments:
    """Means and Pearson's correlation, from sums in doubles."""

    def __init__(self, table: pa.Table, rows: int) -> None:
        self._rows = rows
        wanted = [f"{kind}_{name}" for kind in ("sum", "squares") for name in _RESOURCES]
        self._sums = {
            name: math.fsum(table[name].to_numpy()) if rows else 0.0
            for name in (*wanted, "products")
        }

    def mean(self, name: str) -> float | None:
        return self._sums[f"sum_{name}"] / self._rows if self._rows else None

    @property
    def pearson(self) -> float | None:
        """None where one of the two does not vary, as far as doubles resolve."""
        means = [self.mean(name) for name in _RESOURCES]
        if means[0] is None or means[1] is None:
            return None
        squares = [self._sums[f"squares_{name}"] / self._rows for name in _RESOURCES]
        variances = [
            square - mean * mean for square, mean in zip(squares, (means[0], means[1]), strict=True)
        ]
        if any(
            variance <= _ROUNDING * square
            for variance, square in zip(variances, squares, strict=True)
        ):
            return None
        covariance = self._sums["products"] / self._rows - means[0] * means[1]
        return covariance / math.sqrt(variances[0] * variances[1])


def _curve(binned: Binned, n: bins.Counts) -> bins.Curve:
    """The distribution of one ratio, exact at the largest value of each of its bins."""
    if not n.size:
        return np.empty(0), np.empty(0)
    distinct, inverse = np.unique(binned.bins, return_inverse=True)
    maximum = np.full(distinct.size, -np.inf)
    np.maximum.at(maximum, inverse, binned.maximum)
    counts = np.bincount(inverse, weights=n)
    return maximum, np.cumsum(counts) / counts.sum()


def _density(joint: _Joint, rows: int) -> pd.DataFrame:
    import pandas as pd

    cells = joint.cells["cpu"] * _SPLIT + joint.cells["memory"]
    distinct, inverse = np.unique(cells, return_inverse=True)
    counts = np.bincount(inverse, weights=joint.n, minlength=distinct.size).astype(np.int64)
    return pd.DataFrame(
        {
            "cpu": distinct // _SPLIT / CELLS,
            "memory": distinct % _SPLIT / CELLS,
            "rows": counts,
            "share": counts / max(1, rows),
        }
    )
