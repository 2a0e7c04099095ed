"""Estimated choices, by the CPU-bound model.

Two kinds: sizes at which no row ran, computed from the present size; and rows of a platform that
nobody sells, whose throttling at their own vCPU share is replaced by that of the size sold.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from fractions import Fraction
from typing import Final, NamedTuple

import numpy as np

from uncia.costs.advice.bills import Price
from uncia.costs.advice.choice import Choice, unpriced_reasons, usability
from uncia.costs.advice.claims import P95, Claim
from uncia.costs.advice.gather import Study, key_words, memory_needed
from uncia.costs.advice.rows import Configuration
from uncia.costs.advice.sample import Rows, bill_each, stretched, threads_of
from uncia.costs.advice.sizes import (
    Size,
    allocation,
    candidates,
    fitted,
    is_observed,
    same,
    slower,
)
from uncia.stats.quantiles import quantile
from uncia.tariffs.model import Tariff
from uncia.tariffs.sizes import Proportional
from uncia.units import MICRO_PER_VCPU

HEADROOM: Final = Fraction(6, 5)
"""Memory of a smaller size over the most that was used, at least."""


class Estimate(NamedTuple):
    """The sample of a configuration with the times of another size, and its bill.

    Attributes:
        config: whose rows it is computed from.
        tariff: that bills it.
        rows: at the other size, with their new times.
        price: their bill.
    """

    config: Configuration
    tariff: Tariff
    rows: Rows
    price: Price


Moved = dict[tuple[Configuration, str], Estimate]
"""(configuration, tariff's id) -> its rows as if they ran at the size that the tariff sells."""


def estimates(study: Study) -> tuple[list[Estimate], Moved]:
    """Estimate sizes at which no row ran, and rows that ran on a platform that nobody sells."""
    plans: dict[tuple[str, tuple[Configuration, Size, bool]], Rows] = {}
    unmeasured = _unmeasured_sizes(study)
    for tariff in study.priced.values():
        for config, size in unmeasured.get(tariff.id, ()):
            plans[tariff.id, (config, size, False)] = _rows_at(study, config, size)
        for config in study.facts:
            if is_moved(study, config, tariff):
                size = study.sizes[tariff.id, config]
                plans[tariff.id, (config, size, True)] = _rows_at(study, config, size)
    prices = bill_each(study.local, list(study.priced.values()), plans)
    sizes: list[Estimate] = []
    moved: Moved = {}
    for (name, (config, size, ran)), rows in plans.items():
        price = prices[name, (config, size, ran)]
        estimate = Estimate(config, study.priced[name], rows, price)
        if ran:
            moved[config, name] = estimate
        else:
            sizes.append(estimate)
    return sizes, moved


def is_moved(study: Study, config: Configuration, tariff: Tariff) -> bool:
    """Whether rows of a platform that nobody sells ran at another speed than a tariff's size has.

    Their own throttling is then no property of the function, and says nothing of the platform sold.
    Where the vCPU of a size is not documented, it is taken not to throttle.
    """
    if study.provider(config) is not None or is_observed(tariff) or config.memory < 0:
        return False
    sample, share = study.samples.get(config), share_of(config)
    if sample is None or not sample.has_cpu or share is None:
        return False
    most = threads_of(sample) * MICRO_PER_VCPU
    sold = study.sizes[tariff.id, config].cpu
    return abs(min(share, most) - min(most if sold is None else sold, most)) > 1


def _rows_at(study: Study, config: Configuration, size: Size) -> Rows:
    """The rows of a configuration with the times of another size."""
    sample, share = study.samples[config], share_of(config)
    assert share is not None, "only rows with a known share are stretched"
    threads = threads_of(sample)
    wanted = threads * MICRO_PER_VCPU if size.cpu is None else size.cpu
    return Rows(stretched(sample, share, wanted, threads), size, sample)


def _unmeasured_sizes(study: Study) -> dict[str, list[tuple[Configuration, Size]]]:
    """Sizes at which no row ran, by tariff's id, with the present configuration of a function."""
    present = {}
    for function in study.by_function:
        config = study.present(function)
        sample, share = study.samples.get(config), share_of(config)
        if sample is None or not sample.has_cpu or share is None or config.memory < 0:
            continue
        present[function] = config
    wanted_sizes = {
        function: candidates(memory_for(study, config)) for function, config in present.items()
    }
    sizes = fitted(study.tariffs, [size for group in wanted_sizes.values() for size in group])
    result: dict[str, list[tuple[Configuration, Size]]] = defaultdict(list)
    for tariff in study.tariffs:
        for function, config in present.items():
            known_sizes = _known_sizes(study, study.by_function[function], tariff)
            wanted = wanted_sizes[function]
            if isinstance(tariff.sizes, Proportional):  # its vCPU follows, so steps of it are odd
                wanted = [size for size in wanted if size.cpu == 0]
            for size in dict.fromkeys(sizes[tariff.id, size] for size in wanted):
                if size.memory is None or size.cpu is None:
                    continue
                if any(same(size, other) for other in known_sizes) or is_observed(tariff):
                    continue
                if size.memory >= memory_for(study, config):
                    result[tariff.id].append((config, size))
    return result


def _known_sizes(study: Study, configs: list[Configuration], tariff: Tariff) -> list[Size]:
    """Sizes with known or assumed times, which need no model."""
    sizes = []
    for config in configs:
        size = study.sizes[tariff.id, config]
        is_slower = study.fit == "allocated" and slower(size, config.cpu)
        if not is_slower or is_moved(study, config, tariff):
            sizes.append(size)
        # A measured size is not modelled, whatever size the fit gives it.
        if study.measured_there(config, tariff):
            sizes.append(allocation(config))
    return sizes


def undominated(candidates: Sequence[Choice]) -> list[Choice]:
    """Keep the choices for which no other of their tariff is both as cheap and as fast."""
    result: list[Choice] = []
    priced = [choice for choice in candidates if choice.per_million is not None and choice.usable]
    fastest: dict[str, int] = {}
    for choice in sorted(
        priced, key=lambda choice: (choice.per_million or 0, choice.claim.value or 0)
    ):
        time = choice.claim.value or 0
        if choice.tariff not in fastest or time < fastest[choice.tariff]:
            fastest[choice.tariff] = time
            result.append(choice)
    return result


def estimated_choice(study: Study, estimate: Estimate, reference: Fraction | None) -> Choice:
    """Make the choice of an estimate.

    Args:
        study: the data.
        estimate: the rows and their bill.
        reference: what the function costs at present, USD a million.
    """
    config, tariff, rows, price = estimate
    times, initialization = rows.execution, rows.sample.initialization
    turnaround = None
    if not rows.sample.unknown_start.any():
        turnaround = quantile(np.sort(times + np.maximum(initialization, 0)), P95)
    p95 = quantile(np.sort(times), P95)
    if study.of == "turnaround":
        p95 = turnaround
    meets = None
    if study.bound is not None and p95 is not None:
        meets = p95 <= study.bound
    cost = price.per_million
    usable, problems = usability(study, config, rows.size, price)
    if not price.rows:
        problems.append(f"cannot be priced ({unpriced_reasons(price)})")
    return Choice(
        function=config.function,
        tariff=tariff.id,
        platform=config.platform,
        size=rows.size,
        basis="estimated",
        claim=Claim(rows.sample.rows, p95, None, None, None, meets),
        turnaround_p95=turnaround,
        rows=rows.sample.rows,
        per_million=cost,
        saved=None if cost is None or reference is None else reference - cost,
        saved_interval=None,
        usable=usable,
        is_present=False,
        note="; ".join([_assumption(config, rows), *problems]),
    )


def _assumption(config: Configuration, rows: Rows) -> str:
    threads = threads_of(rows.sample)
    source = f"computed from {rows.sample.describe()} of {key_words(config)}: idle time stays"
    if rows.size.cpu is None:
        return f"{source}, and nothing is throttled: the vCPU of this size is not documented"
    return (
        f"{source}, CPU time takes as long as the vCPU share says, {threads}"
        f" {'thread' if threads == 1 else 'threads'}; small shares come out too slow"
    )


def share_of(config: Configuration) -> int | None:
    """The vCPU share that rows ran at, micro-vCPU; None if unknown."""
    return config.cpu if config.cpu > 0 else None


def memory_for(study: Study, config: Configuration) -> int:
    """The memory that a size must have, bytes: the most used times `HEADROOM`, at most what was
    allocated; the allocation where the peak is unknown."""
    peak = memory_needed(study.facts[config])
    if peak is None:
        return config.memory
    return min(config.memory, -int(-peak * HEADROOM // 1))
