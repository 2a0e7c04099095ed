"""Fits an observed allocation to the sizes that a tariff sells.

A function observed with (vCPU, memory) on one platform is priced at the smallest size of another
that covers both; the `rule` of the sizes says it in words. Micro-vCPU is the resolution: 128 MB at
1769 MB per vCPU is 72,357.26 micro-vCPU, which a platform may report as 72,357 or as 72,358; both
mean 128 MB.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Final

import ibis

from uncia.tariffs.columns import Col, Columns
from uncia.tariffs.exact import at_least, integer, larger, quotient, round_up, times
from uncia.tariffs.sizes import (
    AnySizes,
    Combination,
    Combinations,
    CpuKnob,
    Fixed,
    Independent,
    MeanRatio,
    MemoryKnob,
    Observed,
    Proportional,
)
from uncia.units import MICRO_PER_VCPU

_MEMORY: Final = ("allocated_memory",)
_BOTH: Final = ("allocated_memory", "allocated_cpu")

MEAN_SCALE: Final = 10**6
"""Parts of a micro-vCPU and of a byte in which a mean ratio is kept: it is no whole number."""


@dataclass(frozen=True)
class Fit:
    """A size as columns: null where nothing was observed or no size covers it.

    Attributes:
        cpu: micro-vCPU.
        memory: bytes.
        cpu_needs: the observed columns without which the vCPU is not known.
        memory_needs: the observed columns without which the memory is not known.
        scale: how many units of `cpu` and `memory` make a micro-vCPU and a byte.
    """

    cpu: Col
    memory: Col
    cpu_needs: tuple[str, ...]
    memory_needs: tuple[str, ...]
    scale: int = 1


def fit(sizes: AnySizes, rows: Columns, cpu: Col, memory: Col) -> Fit:
    """The smallest size that covers an allocation.

    Args:
        sizes: what the tariff sells.
        rows: the table's columns; the steps of the fit are added to it.
        cpu: allocated micro-vCPU, null if not known; at most `cells.MAX_CPU`.
        memory: allocated bytes, null if not known; at most `cells.MAX_MEMORY`.
    """
    match sizes:
        case Observed():
            return Fit(cpu, memory, ("allocated_cpu",), _MEMORY)
        case Fixed():
            return Fit(_constant(rows, sizes.cpu), _constant(rows, sizes.memory), (), ())
        case Proportional():
            return _proportional(sizes, rows, cpu, memory)
        case Combinations():
            return _combinations(sizes, rows, cpu, memory)
        case Independent():
            return _independent(sizes, rows, cpu, memory)
        case MeanRatio():
            return _mean_ratio(sizes.vcpu_per_byte, rows, cpu, memory)


def _constant(rows: Columns, value: int | None) -> Col:
    return rows.add(
        f"constant {value}", lambda: ibis.null("int64") if value is None else integer(value)
    )


def _proportional(sizes: Proportional, rows: Columns, cpu: Col, memory: Col) -> Fit:
    ratio, step = sizes.memory_per_vcpu, sizes.memory.step or 1

    def least_for(share: Any) -> Any:
        # The smallest m, in steps, whose share rounded up to a micro-vCPU reaches `share`:
        # ceil(m x 10^6 / ratio) >= share, that is m x 10^6 > (share - 1) x ratio.
        short = (share - integer(1)) * integer(ratio)
        above = round_up(short + integer(1), step * MICRO_PER_VCPU)
        return ibis.ifelse(share > integer(0), above, share)

    by_memory = _choose(rows, memory, sizes.memory)
    scaled = rows.add(f"memory for vCPU at {ratio} in {step}", least_for, cpu)
    needed = rows.add("/ 10^6", lambda value: quotient(value, MICRO_PER_VCPU), scaled)
    by_cpu = _choose(rows, needed, sizes.memory)
    # Where no vCPU is known the memory alone decides, and the share follows from it.
    size = rows.add(
        "proportional size",
        lambda share, low, high: ibis.ifelse(share.isnull(), low, larger(low, high)),
        *(cpu, by_memory, by_cpu),
    )
    whole = rows.add(
        f"share at {ratio}",
        lambda value: quotient(
            value * integer(MICRO_PER_VCPU) - (value * integer(MICRO_PER_VCPU)) % integer(ratio),
            ratio,
        ),
        size,
    )
    share = rows.add(
        "share, at least as observed",
        lambda follows, seen: ibis.ifelse(seen > follows, seen, follows),
        *(whole, cpu),
    )
    return Fit(share, size, _MEMORY, _MEMORY)


def _mean_ratio(ratio: Fraction, rows: Columns, cpu: Col, memory: Col) -> Fit:
    def raised(label: str, own: Col, other: Col, factor: Fraction) -> Col:
        return rows.add(
            f"{label} at {factor}",
            lambda mine, others: larger(times(mine, Fraction(MEAN_SCALE)), times(others, factor)),
            *(own, other),
        )

    share = raised("vCPU", cpu, memory, ratio * MEAN_SCALE)
    size = raised("memory", memory, cpu, MEAN_SCALE / ratio)
    return Fit(share, size, _BOTH, _BOTH, MEAN_SCALE)


def _combinations(sizes: Combinations, rows: Columns, cpu: Col, memory: Col) -> Fit:
    def covers(pair: Combination, vcpu: Any, size: Any) -> Any:
        holds = size <= integer(pair.memory)
        if pair.cpu is None:
            return holds
        return holds & (vcpu.isnull() | (vcpu <= integer(pair.cpu)))

    def position(vcpu: Any, size: Any) -> Any:
        return ibis.cases(
            *((covers(pair, vcpu, size), place) for place, pair in enumerate(sizes.combinations)),
            else_=ibis.null("int16"),
        ).cast("int16")

    def value_of(place: Any, values: list[int]) -> Any:
        return ibis.cases(
            *((place == number, integer(value)) for number, value in enumerate(values)),
            else_=ibis.null("int64"),
        )

    memories = [pair.memory for pair in sizes.combinations]
    cpus = [pair.cpu or 0 for pair in sizes.combinations]
    pairs = [(pair.memory, pair.cpu) for pair in sizes.combinations]
    place = rows.add(f"first of {pairs}", position, cpu, memory)
    size = rows.add(f"memory of {memories}", lambda value: value_of(value, memories), place)
    if not sizes.names_cpu:
        return Fit(cpu, size, ("allocated_cpu",), _MEMORY)
    share = rows.add(f"vCPU of {cpus}", lambda value: value_of(value, cpus), place)
    return Fit(share, size, _MEMORY, _MEMORY)


def _independent(sizes: Independent, rows: Columns, cpu: Col, memory: Col) -> Fit:
    size = _choose(rows, memory, sizes.memory)
    wanted = cpu
    if sizes.cpu_minimum:
        steps = [(step.memory_above, step.cpu) for step in reversed(sizes.cpu_minimum)]
        wanted = rows.add(
            f"vCPU, at least {steps}",
            lambda seen, chosen: larger(
                seen,
                ibis.cases(
                    *((chosen > integer(bound), integer(value)) for bound, value in steps),
                    else_=integer(0),
                ),
            ),
            *(wanted, size),
        )
    share = _choose(rows, wanted, sizes.cpu)
    if sizes.cpu_default:
        defaults = [(step.memory_up_to, step.cpu) for step in sizes.cpu_default]
        share = rows.add(
            f"or the default of {defaults}",
            lambda seen, chosen, of: ibis.ifelse(
                seen.isnull(),
                ibis.cases(
                    *((of <= integer(bound), integer(value)) for bound, value in defaults),
                    else_=ibis.null("int64"),
                ),
                chosen,
            ),
            *(cpu, share, size),
        )
        return Fit(share, size, _MEMORY, _MEMORY)
    bounds = sizes.memory_per_vcpu
    if bounds is None:
        return Fit(share, size, _BOTH, _MEMORY)
    # Enough vCPU for the memory (at most `maximum` per vCPU), then enough memory for the vCPU.
    least, most = bounds.minimum, bounds.maximum
    for_memory = rows.add(
        f"vCPU for memory at {most}",
        lambda value: quotient(round_up(value * integer(MICRO_PER_VCPU), most), most),
        size,
    )
    both = rows.add("larger", larger, wanted, for_memory)
    share = _choose(rows, both, sizes.cpu)
    for_cpu = rows.add(
        f"memory for vCPU at {least}",
        lambda value: quotient(round_up(value * integer(least), MICRO_PER_VCPU), MICRO_PER_VCPU),
        share,
    )
    size = _choose(rows, rows.add("larger", larger, memory, for_cpu), sizes.memory)
    return Fit(share, size, _BOTH, _BOTH)


def _choose(rows: Columns, value: Col, knob: MemoryKnob | CpuKnob) -> Col:
    """The smallest value of a knob that is not below `value`; null if there is none."""

    def stepped(wanted: Any) -> Any:
        up = wanted if knob.step is None else round_up(wanted, knob.step)
        return up if knob.minimum is None else at_least(up, knob.minimum)

    def listed(wanted: Any) -> Any:
        if not knob.values:
            return ibis.null("int64")
        return ibis.cases(
            *((wanted <= integer(choice), integer(choice)) for choice in knob.values),
            else_=ibis.null("int64"),
        )

    kind = f"{knob.minimum} to {knob.maximum} by {knob.step}, {knob.values}"
    if knob.values and knob.maximum is None:
        return rows.add(f"choice of {kind}", listed, value)
    up = rows.add(f"step of {kind}", stepped, value)
    if knob.maximum is None:
        return up
    most = knob.maximum
    return rows.add(
        f"choice of {kind}",
        lambda raised, wanted: ibis.ifelse(raised <= integer(most), raised, listed(wanted)),
        *(up, value),
    )
