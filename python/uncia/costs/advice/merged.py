"""Requests that one invocation handles after one another: as one row, and what that saves."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np

from uncia.backends import Backend
from uncia.costs.advice.bills import Price
from uncia.costs.advice.gather import Study
from uncia.costs.advice.rows import Configuration
from uncia.costs.advice.sample import NONE, Rows, Sample, bill_rows
from uncia.costs.advice.sizes import Size, allocation
from uncia.stats.quantiles import Ints
from uncia.tariffs.model import Tariff


def is_changed_by_merging(tariff: Tariff) -> bool:
    """Whether a tariff has rules, but for rounding, that bill merged requests differently.

    What is free of each request, or the most of one, is there once of merged ones. What is
    allocated is as much as before.
    """
    rules = [charge.rules for charge in tariff.charges if charge.basis != "allocated"]
    return any(each.keep(lambda rule: not rule.rounds) for each in (tariff.time.rules, *rules))


def saved_by_merging(
    study: Study, config: Configuration, tariff: Tariff, price: Price, batch: int
) -> Fraction:
    """What a sample's rows cost one by one, less what they cost merged; for the rows of a price.

    Of fewer rows than are merged into one, each counts as if it came so often.

    Args:
        study: has the sample and the engine that bills it.
        config: whose rows.
        tariff: that bills them.
        price: of all rows of the configuration under the tariff.
        batch: how many are merged into one.

    Returns:
        USD; 0 without a sample that the tariff can price.
    """
    sample = study.samples.get(config)
    if sample is None:
        return Fraction(0)
    size = allocation(config)
    known = np.flatnonzero(_priceable(study.local, tariff, sample, size))
    merges = known.size // batch or known.size
    if not merges:
        return Fraction(0)
    single = sample.take(np.resize(known, merges * batch))
    merged = merged_rows(single, batch)
    groups = {
        "before": Rows(single.execution, size, single),
        "after": Rows(merged.execution, size, merged),
    }
    bills = bill_rows(study.local, tariff, groups)
    before, after = bills["before"], bills["after"]
    if before.rows != merges * batch or after.rows != merges or after.beyond:
        return Fraction(0)
    return (before.cost - after.cost) * price.rows / before.rows


def _priceable(backend: Backend, tariff: Tariff, sample: Sample, size: Size) -> Any:
    """Mask of the rows that a tariff can price, shape (n,).

    Rows of one size that lack the same values are priced alike, so that one of each kind is billed.
    """
    lacking = [
        sample.unknown_start,
        *(v < 0 for v in (sample.cpu_time, sample.peak, sample.average)),
    ]
    kinds, first, of = np.unique(
        np.stack(lacking, axis=1), axis=0, return_index=True, return_inverse=True
    )
    if len(kinds) < 2:
        return np.ones(sample.rows, bool)  # all of them or none, as their bill says
    groups = {}
    for kind, position in enumerate(first):
        row = sample.take(np.array([position]))
        groups[kind] = Rows(row.execution, size, row)
    bills = bill_rows(backend, tariff, groups)
    priced = np.array([bills[kind].rows > 0 for kind in groups])
    return priced[of.reshape(-1)]


def merged_rows(sample: Sample, batch: int) -> Sample:
    """Each `batch` rows of a sample as one that runs them after one another; the rest is left out.

    Times add up; one start is waited for, the longest. What one of them lacks is unknown.
    """
    merges = sample.rows // batch

    def batches(values: Any) -> Any:
        return values[: merges * batch].reshape(merges, batch)

    def known(values: Ints, merged: Ints) -> Ints:
        return np.where((batches(values) < 0).any(axis=1), NONE, merged)

    execution = batches(sample.execution)
    return Sample(
        total=sample.total // batch,
        execution=execution.sum(axis=1),
        initialization=batches(sample.initialization).max(axis=1),
        cpu_time=known(sample.cpu_time, batches(sample.cpu_time).sum(axis=1)),
        peak=known(sample.peak, batches(sample.peak).max(axis=1)),
        average=known(sample.average, _average(batches(sample.average), execution)),
        unknown_start=batches(sample.unknown_start).any(axis=1),
    )


def _average(memory: Ints, execution: Ints) -> Ints:
    """Average memory of rows that run after one another, bytes, shape (merges,).

    A bill multiplies it by the time of all of them, so that each counts by its own time; alike,
    where none took any. Rounded up, as a part of a byte above a step is billed as the next step.

    Args:
        memory: average of each row, bytes, shape (merges, batch).
        execution: ns, shape (merges, batch).
    """
    took_time = (execution > 0).any(axis=1, keepdims=True)
    # Python's integers, as bytes x ns are beyond 64 bits.
    weights = np.where(took_time, execution, 1).astype(object)
    average: Ints = (-(-(memory * weights).sum(axis=1) // weights.sum(axis=1))).astype(np.int64)
    return average
