"""Hints on sizes: less memory, requests of different need or idle time apart, other hardware."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, TypeAlias

import numpy as np

from uncia.costs.advice.choices import HEADROOM, memory_for, share_of
from uncia.costs.advice.claims import P95
from uncia.costs.advice.gather import Study, memory_needed
from uncia.costs.advice.rows import Configuration
from uncia.costs.advice.sample import Rows, Sample, stretched, threads_of
from uncia.costs.advice.sizes import (
    Size,
    fitted,
    is_observed,
    knows_cpu,
    same,
    size_words,
)
from uncia.costs.advice.trials import Hint, Trial, Way, tried, unjudged
from uncia.stats.quantiles import Ints, quantile
from uncia.tariffs import catalogue
from uncia.tariffs.model import Tariff
from uncia.tariffs.sizes import Combinations, Fixed, Proportional
from uncia.units import MIB

RIGHT_SIZE: Final = "right-size memory"
SPLIT_BY_NEED: Final = "split by memory"
SPLIT_IDLE: Final = "split off idle time"
ARCHITECTURE: Final = "other architecture"

_IDLE_SHARE: Final = 0.3  # less idle time is not worth a second function
_CUTS: Final = (0.5, 0.75, 0.9)  # where requests of little and of much need are told apart
_MODES: Final = 2  # times less memory that the lower ones must need
_GRID: Final = tuple(range(64 * MIB, 10_240 * MIB + 1, 64 * MIB))
"""Sizes that are tried, where a tariff sells finer steps."""

_MOST_SIZES: Final = 8
_SMALLEST: Final = Size(1, 0)

Fits: TypeAlias = Mapping[tuple[str, Size], Size]
"""(tariff's id, size asked for) -> size."""

_HEADROOM_WORDS: Final = f"{float(HEADROOM - 1):.0%} above the most that was used"


def resizing(found: Study) -> list[Hint]:
    """Hints of every function whose rows were drawn."""
    hints: list[Hint] = []
    trials: list[Trial] = []
    fits = _fits(found)
    for function in found.by_function:
        one = found.present(function)
        sample = found.samples.get(one)
        if sample is None or not sample.rows:
            continue
        tariffs = [t for t in found.hinted(one) if _runs(found, one, t)]
        sellers = [t for t in tariffs if _sells_memory(t)]
        by_memory = [t for t in sellers if knows_cpu(t)]
        missing = _missing(found, one, sample)
        for tariff in by_memory:
            if memory_needed(found.found[one]) is None or one.memory < 0:
                continue
            if not (_memory_moves_cpu(tariff) and missing):
                trials += _right_size(found, one, sample, tariff, fits)
        hints += _not_measured(found, one, by_memory, missing)
        if sellers and not by_memory:
            said = f"the vCPU that sizes of {sellers[0].id} have is not documented"
            hints.append(unjudged(function, RIGHT_SIZE, said))
        if not missing:
            for tariff in by_memory:
                trials += _idle(found, one, sample, tariff, fits)
        elif by_memory:
            hints.append(unjudged(function, SPLIT_IDLE, missing))
        for tariff in tariffs:
            trials += _architecture(found, one, sample, tariff)
    return hints + tried(found, trials)


def _fits(found: Study) -> Fits:
    """What the sizes that may be tried become under each tariff, in one query."""
    if not found.samples:
        return {}
    present = [found.present(function) for function in found.by_function]
    cpus = dict.fromkeys([0, *(one.cpu if one.cpu >= 0 else None for one in present)])
    asked = [Size(step, cpu) for step in _GRID for cpu in cpus]
    return fitted(list(found.priced.values()), [_SMALLEST, *asked])


def _not_measured(
    found: Study, one: Configuration, tariffs: Sequence[Tariff], missing: str
) -> list[Hint]:
    if not tariffs:
        return []
    own = found.found[one]
    if one.memory < 0:
        return [unjudged(one.function, RIGHT_SIZE, "the allocated memory is not known")]
    if memory_needed(own) is None:
        said = f"the peak of memory was not measured in {own.rows - own.peak_rows:,} rows"
        return [unjudged(one.function, kind, said) for kind in (RIGHT_SIZE, SPLIT_BY_NEED)]
    if missing and all(_memory_moves_cpu(tariff) for tariff in tariffs):
        said = f"{missing}, and less memory means less vCPU"
        return [unjudged(one.function, RIGHT_SIZE, said)]
    return []


def _missing(found: Study, one: Configuration, sample: Sample) -> str:
    """What the CPU-bound model lacks, in words; "" if nothing."""
    if not sample.has_cpu:
        return "the CPU time was not measured in every row"
    return "" if share_of(one) else "the allocated vCPU is not known"


def _runs(found: Study, one: Configuration, tariff: Tariff) -> bool:
    """Whether a tariff prices and can run the present rows."""
    price = found.prices.get((one, tariff.id))
    if price is None or not price.rows or price.beyond:
        return False
    size = found.sizes[tariff.id, one]
    return size.memory is None or size.memory >= max(
        found.found[one].peak or 0, found.found[one].average or 0
    )


def _sells_memory(tariff: Tariff) -> bool:
    """Whether less allocated memory is a smaller bill."""
    return not isinstance(tariff.sizes, Fixed) and any(
        charge.resource == "memory" and charge.basis == "allocated" and charge.unit_price
        for charge in tariff.charges
    )


def _memory_moves_cpu(tariff: Tariff) -> bool:
    sizes = tariff.sizes
    return isinstance(sizes, Proportional) or (isinstance(sizes, Combinations) and sizes.names_cpu)


def _before(found: Study, one: Configuration, sample: Sample, tariff: Tariff) -> Rows:
    return Rows(sample.execution, found.sizes[tariff.id, one], sample)


def _at(
    found: Study,
    one: Configuration,
    sample: Sample,
    tariff: Tariff,
    memory: int,
    fits: Fits,
) -> list[tuple[Size, Ints]]:
    """Sizes with at least this memory and less than now, with the executions expected there."""
    now = found.sizes[tariff.id, one]
    keeps_cpu = not _memory_moves_cpu(tariff)
    cpu = (one.cpu if one.cpu >= 0 else None) if keeps_cpu else 0
    sizes = [fits[tariff.id, Size(step, cpu)] for step in _GRID if step >= memory]
    if is_observed(tariff):
        sizes = [Size(memory, now.cpu)]
    result: list[tuple[Size, Ints]] = []
    for size in dict.fromkeys(sizes):
        if len(result) == _MOST_SIZES:
            break
        if size.memory is None or now.memory is None or not memory <= size.memory < now.memory:
            continue
        execution = sample.execution
        share = share_of(one)
        if not keeps_cpu and size.cpu is not None and share is not None:
            execution = stretched(sample, share, size.cpu, threads_of(sample))
        if _keeps_bound(found, sample, execution):
            result.append((size, execution))
    return result


def _keeps_bound(found: Study, sample: Sample, execution: Ints) -> bool:
    if found.bound is None:
        return True
    times = execution
    if found.of == "turnaround":
        times = execution + np.maximum(sample.initialization, 0)
    p95 = quantile(np.sort(times), P95)
    return p95 is not None and p95 <= found.bound


def _right_size(
    found: Study, one: Configuration, sample: Sample, tariff: Tariff, fits: Fits
) -> list[Trial]:
    need = memory_for(found, one)
    peak = memory_needed(found.found[one]) or 0
    ways = [
        Way(
            f"allocate {size_words(size)} instead of"
            f" {size_words(found.sizes[tariff.id, one])}: at most {peak / MIB:,.0f} MB were used",
            [Rows(execution, size, sample)],
        )
        for size, execution in _at(found, one, sample, tariff, need, fits)
    ]
    assumption = f"memory {_HEADROOM_WORDS} suffices"
    if _memory_moves_cpu(tariff):
        assumption += "; with less vCPU, CPU time takes as long as the share says"
    before = _before(found, one, sample, tariff)
    trials = [Trial(one.function, RIGHT_SIZE, tariff, before, ways, assumption)] if ways else []
    return trials + _by_need(found, one, sample, tariff, ways, fits)


def _by_need(
    found: Study,
    one: Configuration,
    sample: Sample,
    tariff: Tariff,
    simpler: Sequence[Way],
    fits: Fits,
) -> list[Trial]:
    """Two functions, for requests that need little memory and for those that need much."""
    if not sample.has_peak:
        return []
    ordered = np.sort(sample.peak)
    now = found.sizes[tariff.id, one]
    ways = []
    for cut in _CUTS:
        bound = int(ordered[int(cut * (ordered.size - 1))])
        low = sample.peak <= bound
        if low.all() or bound * _MODES > int(ordered[-1]):
            continue
        need = -int(-bound * HEADROOM // 1)
        rest = memory_for(found, one)
        upper = [(now, sample.execution), *_at(found, one, sample, tariff, rest, fits)]
        for size, execution in _at(found, one, sample, tariff, need, fits):
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
        f" memory {_HEADROOM_WORDS} suffices; CPU time takes as long as the share says"
    )
    before = _before(found, one, sample, tariff)
    return [Trial(one.function, SPLIT_BY_NEED, tariff, before, ways, assumption, simpler)]


def _idle(
    found: Study, one: Configuration, sample: Sample, tariff: Tariff, fits: Fits
) -> list[Trial]:
    """The idle time in a function of the smallest size, apart from the CPU time."""
    share = share_of(one)
    if share is None or is_observed(tariff):
        return []
    threads = threads_of(sample)
    speed = min(share / 1e6, threads)
    busy = np.minimum(np.ceil(sample.cpu_time / speed).astype(np.int64), sample.execution)
    idle = sample.execution - busy
    total = int(sample.execution.sum())
    if not total or int(idle.sum()) < _IDLE_SHARE * total:
        return []
    smallest = fits[tariff.id, _SMALLEST]
    now = found.sizes[tariff.id, one]
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
    assumption = (
        "all the waiting can be moved, and needs no more than the smallest size; each part has its"
        " own fee and starts"
    )
    before = _before(found, one, sample, tariff)
    return [Trial(one.function, SPLIT_IDLE, tariff, before, [way], assumption)]


def _architecture(found: Study, one: Configuration, sample: Sample, tariff: Tariff) -> list[Trial]:
    """The same product on other hardware."""
    before = _before(found, one, sample, tariff)
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
                    one.function,
                    ARCHITECTURE,
                    tariff,
                    before,
                    [way],
                    "it takes the same time there, and its code runs there; neither was measured",
                )
            )
    return trials
