"""Hints on sizes: less memory, splitting by memory or idle time, another architecture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, TypeAlias

import numpy as np

from uncia.costs.advice.claims import P95
from uncia.costs.advice.estimates import HEADROOM, memory_for, share_of
from uncia.costs.advice.gather import Study, memory_needed
from uncia.costs.advice.rows import Configuration
from uncia.costs.advice.sample import Rows, Sample, stretched, threads_of
from uncia.costs.advice.sizes import (
    Size,
    fitted,
    is_observed,
    knows_cpu,
    names_smallest,
    same,
    size_words,
)
from uncia.costs.advice.trials import Hint, Trial, Way, tried, unjudged
from uncia.stats.quantiles import Ints, quantile
from uncia.tariffs import catalogue
from uncia.tariffs.model import Tariff
from uncia.tariffs.sizes import Combinations, Fixed, Proportional
from uncia.text import plural
from uncia.units import MIB

RIGHT_SIZE: Final = "right-size memory"
SPLIT_BY_NEED: Final = "split by memory"
SPLIT_IDLE: Final = "split off idle time"
ARCHITECTURE: Final = "other architecture"

_IDLE_SHARE: Final = 0.3  # with less idle time, a second function is not worth it
_CUTS: Final = (0.5, 0.75, 0.9)  # quantiles of memory at which requests are split
_MODES: Final = 2  # how many times less memory the lower requests must need
_GRID: Final = tuple(range(64 * MIB, 10_240 * MIB + 1, 64 * MIB))
"""Sizes to try, where a tariff sells finer steps."""

_MAX_SIZES: Final = 8
_SMALLEST: Final = Size(1, 0)

Fits: TypeAlias = Mapping[tuple[str, Size], Size]
"""(tariff's id, wanted size) -> fitted size."""

_HEADROOM_WORDS: Final = f"{float(HEADROOM - 1):.0%} above the most that was used"


def resizing(study: Study) -> list[Hint]:
    """Return the hints on sizes for every function that has a sample."""
    hints: list[Hint] = []
    trials: list[Trial] = []
    fits = _fits(study)
    for function in study.by_function:
        config = study.present(function)
        sample = study.samples.get(config)
        if sample is None or not sample.rows:
            continue
        tariffs = [t for t in study.hinted(config) if _runs(study, config, t)]
        sellers = [t for t in tariffs if _sells_memory(t)]
        by_memory = [t for t in sellers if knows_cpu(t)]
        missing = _missing(study, config, sample)
        for tariff in by_memory:
            if memory_needed(study.facts[config]) is None or config.memory < 0:
                continue
            if not (_memory_moves_cpu(tariff) and missing):
                trials += _right_size(study, config, sample, tariff, fits)
        hints += _not_measured(study, config, by_memory, missing)
        if sellers and not by_memory:
            reason = f"the vCPU that sizes of {sellers[0].id} have is not documented"
            hints.append(unjudged(function, RIGHT_SIZE, reason))
        if not missing:
            for tariff in by_memory:
                trials += _idle(study, config, sample, tariff, fits)
        elif by_memory:
            hints.append(unjudged(function, SPLIT_IDLE, missing))
        for tariff in tariffs:
            trials += _architecture(study, config, sample, tariff)
    return hints + tried(study, trials)


def _fits(study: Study) -> Fits:
    """Fit all sizes to try to each tariff."""
    if not study.samples:
        return {}
    present = [study.present(function) for function in study.by_function]
    cpus = dict.fromkeys([0, *(config.cpu if config.cpu >= 0 else None for config in present)])
    asked = [Size(step, cpu) for step in _GRID for cpu in cpus]
    return fitted(list(study.priced.values()), [_SMALLEST, *asked])


def _not_measured(
    study: Study, config: Configuration, tariffs: Sequence[Tariff], missing: str
) -> list[Hint]:
    if not tariffs:
        return []
    facts = study.facts[config]
    if config.memory < 0:
        return [unjudged(config.function, RIGHT_SIZE, "the allocated memory is not known")]
    if memory_needed(facts) is None:
        unmeasured = plural(facts.rows - facts.peak_rows, "row")
        reason = f"the peak of memory was not measured in {unmeasured}"
        return [unjudged(config.function, kind, reason) for kind in (RIGHT_SIZE, SPLIT_BY_NEED)]
    if missing and all(_memory_moves_cpu(tariff) for tariff in tariffs):
        reason = f"{missing}, and less memory means less vCPU"
        return [unjudged(config.function, RIGHT_SIZE, reason)]
    return []


def _missing(study: Study, config: Configuration, sample: Sample) -> str:
    """Say which measurement the CPU-bound model lacks; "" if none."""
    if not sample.has_cpu:
        return "the CPU time was not measured in every row"
    return "" if share_of(config) else "the allocated vCPU is not known"


def _runs(study: Study, config: Configuration, tariff: Tariff) -> bool:
    """Whether a tariff can price and run the present rows."""
    price = study.prices.get((config, tariff.id))
    if price is None or not price.rows or price.beyond:
        return False
    size = study.sizes[tariff.id, config]
    return size.memory is None or size.memory >= max(
        study.facts[config].peak or 0, study.facts[config].average or 0
    )


def _sells_memory(tariff: Tariff) -> bool:
    """Whether less allocated memory means a smaller bill."""
    return not isinstance(tariff.sizes, Fixed) and any(
        charge.resource == "memory" and charge.basis == "allocated" and charge.unit_price
        for charge in tariff.charges
    )


def _memory_moves_cpu(tariff: Tariff) -> bool:
    sizes = tariff.sizes
    return isinstance(sizes, Proportional) or (isinstance(sizes, Combinations) and sizes.names_cpu)


def _before(study: Study, config: Configuration, sample: Sample, tariff: Tariff) -> Rows:
    return Rows(sample.execution, study.sizes[tariff.id, config], sample)


def _at(
    study: Study,
    config: Configuration,
    sample: Sample,
    tariff: Tariff,
    memory: int,
    fits: Fits,
) -> list[tuple[Size, Ints]]:
    """Sizes with at least this memory and less than now, with the expected executions."""
    now = study.sizes[tariff.id, config]
    keeps_cpu = not _memory_moves_cpu(tariff)
    cpu = (config.cpu if config.cpu >= 0 else None) if keeps_cpu else 0
    sizes = [fits[tariff.id, Size(step, cpu)] for step in _GRID if step >= memory]
    if is_observed(tariff):
        sizes = [Size(memory, now.cpu)]
    result: list[tuple[Size, Ints]] = []
    for size in dict.fromkeys(sizes):
        if len(result) == _MAX_SIZES:
            break
        if size.memory is None or now.memory is None or not memory <= size.memory < now.memory:
            continue
        execution = sample.execution
        share = share_of(config)
        if not keeps_cpu and size.cpu is not None and share is not None:
            execution = stretched(sample, share, size.cpu, threads_of(sample))
        if _keeps_bound(study, sample, execution):
            result.append((size, execution))
    return result


def _keeps_bound(study: Study, sample: Sample, execution: Ints) -> bool:
    if study.bound is None:
        return True
    times = execution
    if study.of == "turnaround":
        times = execution + np.maximum(sample.initialization, 0)
    p95 = quantile(np.sort(times), P95)
    return p95 is not None and p95 <= study.bound


def _headroom_words(study: Study, config: Configuration) -> str:
    """State what a smaller size rests on.

    Memory that an instance shares with the process of which it is a copy is in no control group's
    peak but that process's.
    """
    words = f"memory {_HEADROOM_WORDS} suffices"
    if study.facts[config].restored_rows:
        words += ", which lacks what restored instances share with the process they are copies of"
    return words


def _right_size(
    study: Study, config: Configuration, sample: Sample, tariff: Tariff, fits: Fits
) -> list[Trial]:
    need = memory_for(study, config)
    peak = memory_needed(study.facts[config]) or 0
    now = study.sizes[tariff.id, config]
    ways = [
        Way(
            f"allocate {size_words(size)} instead of {size_words(now)}: at most"
            f" {peak / MIB:,.0f} MB were used",
            [Rows(execution, size, sample)],
        )
        for size, execution in _at(study, config, sample, tariff, need, fits)
    ]
    assumption = _headroom_words(study, config)
    if _memory_moves_cpu(tariff):
        assumption += "; with less vCPU, CPU time takes as long as the share says"
    before = _before(study, config, sample, tariff)
    trials = [Trial(config.function, RIGHT_SIZE, tariff, before, ways, assumption)] if ways else []
    return trials + _by_need(study, config, sample, tariff, ways, fits)


def _by_need(
    study: Study,
    config: Configuration,
    sample: Sample,
    tariff: Tariff,
    simpler: Sequence[Way],
    fits: Fits,
) -> list[Trial]:
    """Two functions: for requests that need little memory, and for those that need much."""
    if not sample.has_peak:
        return []
    ordered = np.sort(sample.peak)
    now = study.sizes[tariff.id, config]
    ways = []
    for cut in _CUTS:
        bound = int(ordered[int(cut * (ordered.size - 1))])
        low = sample.peak <= bound
        if low.all() or bound * _MODES > int(ordered[-1]):
            continue
        need = -int(-bound * HEADROOM // 1)
        rest = memory_for(study, config)
        upper = [(now, sample.execution), *_at(study, config, sample, tariff, rest, fits)]
        for size, execution in _at(study, config, sample, tariff, need, fits):
            for large, slower in upper:
                if large.memory is None or size.memory is None or size.memory >= large.memory:
                    continue
                ways.append(
                    Way(
                        f"send the {low.mean():.0%} of requests that need at most"
                        f" {bound / MIB:,.0f} MB to a function of {size_words(size)}, the others"
                        f" to one of {size_words(large)}",
                        [
                            Rows(execution[low], size, sample, picked=low),
                            Rows(slower[~low], large, sample, picked=~low),
                        ],
                    )
                )
    if not ways:
        return []
    assumption = (
        "the caller can tell the two kinds of request apart beforehand;"
        f" {_headroom_words(study, config)}; CPU time takes as long as the share says"
    )
    before = _before(study, config, sample, tariff)
    return [Trial(config.function, SPLIT_BY_NEED, tariff, before, ways, assumption, simpler)]


def _idle(
    study: Study, config: Configuration, sample: Sample, tariff: Tariff, fits: Fits
) -> list[Trial]:
    """Move the idle time to a function of the smallest size that can hold it."""
    share = share_of(config)
    if share is None or is_observed(tariff) or config.memory < 0:
        return []
    threads = threads_of(sample)
    speed = min(share / 1e6, threads)
    busy = np.minimum(np.ceil(sample.cpu_time / speed).astype(np.int64), sample.execution)
    idle = sample.execution - busy
    total = int(sample.execution.sum())
    if not total or int(idle.sum()) < _IDLE_SHARE * total:
        return []
    smallest, needs = fits[tariff.id, _SMALLEST], "needs no more than the smallest size"
    if not names_smallest(tariff):
        wanted = Size(memory_for(study, config), 0)
        smallest, needs = (
            fitted([tariff], [wanted])[tariff.id, wanted],
            "needs no more than this memory",
        )
    now = study.sizes[tariff.id, config]
    if smallest.memory is None or same(smallest, now):
        return []
    way = Way(
        f"move the waiting ({int(idle.sum()) / total:.0%} of the execution) to a function of"
        f" {size_words(smallest)}, or to a workflow that waits unbilled",
        [
            Rows(busy, now, sample),
            Rows(idle, smallest, sample, cpu_time=np.zeros_like(busy)),
        ],
    )
    assumption = f"all the waiting can be moved, and {needs}; each part has its own fee and starts"
    before = _before(study, config, sample, tariff)
    return [Trial(config.function, SPLIT_IDLE, tariff, before, [way], assumption)]


def _architecture(
    study: Study, config: Configuration, sample: Sample, tariff: Tariff
) -> list[Trial]:
    """The same product on another architecture."""
    before = _before(study, config, sample, tariff)
    trials = []
    for name in catalogue.billable():
        other = catalogue.get(name)
        if (
            other.provider == tariff.provider
            and other.architecture != tariff.architecture
            and other.sizes.kind == tariff.sizes.kind
            and other.time.kind == tariff.time.kind
            and "any" not in (other.architecture, tariff.architecture)
        ):
            way = Way(f"run it on {other.architecture} ({other.id})", [before], other)
            trials.append(
                Trial(
                    config.function,
                    ARCHITECTURE,
                    tariff,
                    before,
                    [way],
                    "it takes the same time there, and its code runs there; neither was measured",
                )
            )
    return trials
