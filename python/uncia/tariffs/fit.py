"""Fits an observed allocation to the sizes that a tariff sells.

A function observed with (vCPU, memory) on one platform is priced at the smallest size of another
that covers both; the `rule` of the sizes says it in words. Micro-vCPU is the resolution: 128 MB at
1769 MB per vCPU is 72,357.26 micro-vCPU, which a platform may report as 72,357 or as 72,358; both
mean 128 MB.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple

from uncia.tariffs.columns import Numbers, Steps, T
from uncia.tariffs.exact import (
    Number,
    at_least,
    cases,
    ifelse,
    larger,
    quotient,
    round_up,
    times,
)
from uncia.tariffs.sizes import (
    AnySizes,
    Combinations,
    CpuKnob,
    Fixed,
    Independent,
    MeanRatio,
    MemoryKnob,
    Observed,
    Proportional,
)
from uncia.units import MICRO_PER_VCPU, format_cpu, format_size

if TYPE_CHECKING:
    from uncia.tariffs.model import Charge

_MEMORY: Final = ("allocated_memory",)
_BOTH: Final = ("allocated_memory", "allocated_cpu")

MEAN_SCALE: Final = 10**6
"""Parts of a micro-vCPU and of a byte in which a mean ratio is kept: it is no whole number."""


class Size(NamedTuple):
    """An allocation: micro-vCPU and bytes; None where it is not known."""

    cpu: int | None
    memory: int | None

    @property
    def words(self) -> str:
        """As people write it: ``0.5 vCPU/512 MB``."""
        parts = [
            None if self.cpu is None else format_cpu(self.cpu),
            None if self.memory is None else format_size(self.memory),
        ]
        return "/".join(part for part in parts if part is not None) or "any"


@dataclass(frozen=True)
class Fit(Generic[T]):
    """A size: null where nothing was observed or no size covers it.

    Attributes:
        cpu: micro-vCPU.
        memory: bytes.
        cpu_needs: the observed columns without which the vCPU is not known.
        memory_needs: the observed columns without which the memory is not known.
        scale: how many units of `cpu` and `memory` make a micro-vCPU and a byte.
    """

    cpu: T
    memory: T
    cpu_needs: tuple[str, ...]
    memory_needs: tuple[str, ...]
    scale: int = 1


def fit(sizes: AnySizes, steps: Steps[T], cpu: T, memory: T) -> Fit[T]:
    """The smallest size that covers an allocation.

    Args:
        sizes: what the tariff sells.
        steps: what computes it: columns of a table, or numbers.
        cpu: allocated micro-vCPU, null if not known; at most `rows.MAX_CPU`.
        memory: allocated bytes, null if not known; at most `rows.MAX_MEMORY`.
    """
    match sizes:
        case Observed():
            return Fit(cpu, memory, ("allocated_cpu",), _MEMORY)
        case Fixed():
            return Fit(steps.constant(sizes.cpu), steps.constant(sizes.memory), (), ())
        case Proportional():
            return _proportional(sizes, steps, cpu, memory)
        case Combinations():
            return _combinations(sizes, steps, cpu, memory)
        case Independent():
            return _independent(sizes, steps, cpu, memory)
        case MeanRatio():
            return _mean_ratio(sizes.vcpu_per_byte, steps, cpu, memory)


def fitted(charge: Charge, size: Fit[T]) -> T | None:
    """The amount of the size that a charge is for; None of one that is not for an allocation."""
    if charge.basis != "allocated":
        return None
    return size.cpu if charge.resource == "cpu" else size.memory


def fit_size(sizes: AnySizes, allocation: Size) -> Size:
    """The size sold for one allocation, by the same rule; None in it where there is none."""
    size = fit(sizes, Numbers(), Number(allocation.cpu), Number(allocation.memory))
    return Size(_whole(size.cpu.value, size.scale), _whole(size.memory.value, size.scale))


def _whole(value: int | None, scale: int) -> int | None:
    return None if value is None else round(Fraction(value, scale))


def _proportional(sizes: Proportional, steps: Steps[T], cpu: T, memory: T) -> Fit[T]:
    ratio = sizes.memory_per_vcpu
    by_memory = _choose(steps, memory, sizes.memory)
    needed = steps.add(_memory_for, cpu, ratio=ratio, step=sizes.memory.step or 1)
    by_cpu = _choose(steps, needed, sizes.memory)
    size = steps.add(_larger_if_known, cpu, by_memory, by_cpu)
    share = steps.add(_observed_if_above, steps.add(share_of, size, ratio=ratio), cpu)
    return Fit(share, size, _MEMORY, _MEMORY)


def _memory_for(share: Any, *, ratio: int, step: int) -> Any:
    # The smallest m, in steps, whose share rounded up to a micro-vCPU reaches `share`:
    # ceil(m x 10^6 / ratio) >= share, that is m x 10^6 > (share - 1) x ratio.
    above = round_up((share - 1) * ratio + 1, step * MICRO_PER_VCPU)
    return quotient(ifelse(share > 0, above, share), MICRO_PER_VCPU)


def _larger_if_known(share: Any, low: Any, high: Any) -> Any:
    # Where no vCPU is known the memory alone decides, and the share follows from it.
    return ifelse(share.isnull(), low, larger(low, high))


def share_of(memory: Any, *, ratio: int) -> Any:
    """The micro-vCPU that come with a memory size, where so many bytes hold one vCPU."""
    scaled = memory * MICRO_PER_VCPU
    return quotient(scaled - scaled % ratio, ratio)


def _observed_if_above(share: Any, observed: Any) -> Any:
    return ifelse(observed > share, observed, share)


def _mean_ratio(ratio: Fraction, steps: Steps[T], cpu: T, memory: T) -> Fit[T]:
    share = steps.add(_raised, cpu, memory, factor=ratio * MEAN_SCALE)
    size = steps.add(_raised, memory, cpu, factor=MEAN_SCALE / ratio)
    return Fit(share, size, _BOTH, _BOTH, MEAN_SCALE)


def _raised(amount: Any, other: Any, *, factor: Fraction) -> Any:
    return larger(times(amount, Fraction(MEAN_SCALE)), times(other, factor))


def _combinations(sizes: Combinations, steps: Steps[T], cpu: T, memory: T) -> Fit[T]:
    pairs = sizes.combinations
    position = steps.add(
        _first_covering, cpu, memory, pairs=tuple((pair.memory, pair.cpu) for pair in pairs)
    )
    size = steps.add(_value_at, position, values=tuple(pair.memory for pair in pairs))
    if not sizes.names_cpu:
        return Fit(cpu, size, ("allocated_cpu",), _MEMORY)
    share = steps.add(_value_at, position, values=tuple(pair.cpu for pair in pairs))
    return Fit(share, size, _MEMORY, _MEMORY)


def _first_covering(cpu: Any, memory: Any, *, pairs: Sequence[tuple[int, int | None]]) -> Any:
    return cases(
        *(
            (memory <= size if share is None else (memory <= size) & _within(cpu, share), position)
            for position, (size, share) in enumerate(pairs)
        ),
        otherwise=None,
    )


def _within(cpu: Any, share: int) -> Any:
    return cpu.isnull() | (cpu <= share)


def _value_at(position: Any, *, values: Sequence[int]) -> Any:
    return cases(
        *((position <= index, value) for index, value in enumerate(values)), otherwise=None
    )


def _independent(sizes: Independent, steps: Steps[T], cpu: T, memory: T) -> Fit[T]:
    size = _choose(steps, memory, sizes.memory)
    wanted = cpu
    if sizes.cpu_minimum:
        minimums = tuple((step.memory_above, step.cpu) for step in reversed(sizes.cpu_minimum))
        wanted = steps.add(_at_least_for, cpu, size, minimums=minimums)
    share = _choose(steps, wanted, sizes.cpu)
    if sizes.cpu_default:
        defaults = tuple((step.memory_up_to, step.cpu) for step in sizes.cpu_default)
        share = steps.add(_or_default, cpu, share, size, defaults=defaults)
        return Fit(share, size, _MEMORY, _MEMORY)
    bounds = sizes.memory_per_vcpu
    if bounds is None:
        return Fit(share, size, _BOTH, _MEMORY)
    # Enough vCPU for the memory (at most `maximum` per vCPU), then enough memory for the vCPU.
    for_memory = steps.add(_over, size, scale=MICRO_PER_VCPU, ratio=bounds.maximum)
    share = _choose(steps, steps.add(larger, wanted, for_memory), sizes.cpu)
    for_cpu = steps.add(_over, share, scale=bounds.minimum, ratio=MICRO_PER_VCPU)
    size = _choose(steps, steps.add(larger, memory, for_cpu), sizes.memory)
    return Fit(share, size, _BOTH, _BOTH)


def _at_least_for(cpu: Any, memory: Any, *, minimums: Sequence[tuple[int, int]]) -> Any:
    return larger(cpu, cases(*((memory > above, least) for above, least in minimums), otherwise=0))


def _or_default(
    observed: Any, chosen: Any, memory: Any, *, defaults: Sequence[tuple[int, int]]
) -> Any:
    default = cases(*((memory <= up_to, share) for up_to, share in defaults), otherwise=None)
    return ifelse(observed.isnull(), default, chosen)


def _over(value: Any, *, scale: int, ratio: int) -> Any:
    """``value x scale / ratio``, rounded up."""
    return quotient(round_up(value * scale, ratio), ratio)


def _choose(steps: Steps[T], value: T, knob: MemoryKnob | CpuKnob) -> T:
    """The smallest value of a knob that is not below `value`; null if there is none."""
    if knob.values and knob.maximum is None:
        return steps.add(_first_at_least, value, values=knob.values)
    up = steps.add(_stepped, value, step=knob.step, minimum=knob.minimum)
    if knob.maximum is None:
        return up
    return steps.add(_up_to, up, value, maximum=knob.maximum, values=knob.values)


def _stepped(wanted: Any, *, step: int | None, minimum: int | None) -> Any:
    up = wanted if step is None else round_up(wanted, step)
    return up if minimum is None else at_least(up, minimum)


def _first_at_least(wanted: Any, *, values: Sequence[int]) -> Any:
    return cases(*((wanted <= value, value) for value in values), otherwise=None)


def _up_to(stepped: Any, wanted: Any, *, maximum: int, values: Sequence[int]) -> Any:
    listed = _first_at_least(wanted, values=values) if values else None
    return ifelse(stepped <= maximum, stepped, listed)
