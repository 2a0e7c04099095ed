"""Durations at each size, from the CPU time, the kernel and when requests arrive.

Two kinds of arrivals:

* *random*: a request comes at any time of the period, whenever the last one was. So do those of
  independent users.
* *closed*: one request at a time, the next a certain time after the last one's end. An end that
  was held back lies shortly after a refill, so the next beginning is that time after a refill:
  beginnings lock on to the period, and duration and time between tend to add up to whole periods.
  The published measurements were driven in this way.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np

from uncia.bandwidth.cpu_time import CpuTime
from uncia.bandwidth.predict import kernel
from uncia.bandwidth.predict.cpu import values
from uncia.bandwidth.presets import SLICE_NS, Preset, Quantiles

if TYPE_CHECKING:
    Ints: TypeAlias = "np.ndarray[Any, np.dtype[np.int64]]"

SAMPLES: Final = 2_500
"""Invocations a size, as many as were published."""

SHARES: Final = (0.05, 0.25, 0.5, 0.75, 0.95)

_CHAINS: Final = 50
"""Closed arrivals: so many instances a size, each with its own CPU time, as instances have."""

_SETTLE: Final = 20
"""Invocations of a chain that are left out, until it has forgotten where it began."""

_CHUNK: Final = 500_000  # tasks at once

# Tasks find nothing of an earlier slice (`kernel.durations`): with what Linux keeps of it
# (`kernel.followed`) the error on published sizes is larger; see docs/reference/cpu-prediction.md.


@dataclass(frozen=True)
class Arrivals:
    """When requests come.

    Attributes:
        think: from the end of one to the beginning of the next; None: at random.
        words: for people.
    """

    think: Quantiles | None
    words: str


RANDOM: Final = Arrivals(None, "at random")


@dataclass(frozen=True)
class Predicted:
    """What to expect at a size.

    Attributes:
        size: MB or micro-vCPU.
        durations: ns as the platform would report them, shape (samples,).
    """

    size: int
    durations: Ints

    @property
    def mean_ns(self) -> float:
        """The mean duration."""
        return float(self.durations.mean())

    def quantiles_ns(self, shares: Sequence[float] = SHARES) -> list[float]:
        """Quantiles of the duration."""
        return [float(value) for value in np.quantile(self.durations, shares)]


def predict(
    preset: Preset,
    cpu: CpuTime,
    sizes: Sequence[int],
    arrivals: Arrivals = RANDOM,
    *,
    samples: int = SAMPLES,
    seed: int = 0,
) -> list[Predicted]:
    """The duration at each size.

    All sizes meet the same random numbers, so that they differ by their quota alone.

    Args:
        preset: the platform.
        cpu: the CPU time of an invocation.
        sizes: MB or micro-vCPU.
        arrivals: when requests come.
        samples: invocations at each size.
        seed: of the random numbers.

    Returns:
        One for each size, in their order.
    """
    if not sizes:
        return []
    own = kernel.Kernel(preset.platform.period_ns, preset.tick_ns, SLICE_NS)
    quotas = np.array(
        [_quota(preset, size) for size in sizes],
        dtype=np.int64,
    )
    run = _random if arrivals.think is None else _closed
    found = run(own, preset, cpu, quotas, arrivals.think, samples, np.random.default_rng(seed))
    return [
        Predicted(size, durations + preset.outside_ns)
        for size, durations in zip(sizes, found, strict=True)
    ]


def _quota(preset: Preset, size: int) -> int:
    """What is left for the function; at one vCPU nothing holds it back."""
    quota = preset.quota_ns(size)
    return quota if quota >= preset.platform.period_ns else max(1, quota - preset.lost_ns)


def _random(
    own: kernel.Kernel,
    preset: Preset,
    cpu: CpuTime,
    quotas: Ints,
    think: Quantiles | None,
    samples: int,
    rng: np.random.Generator,
) -> Ints:
    # One value in each part of equal probability, in any order: the least noise for their number.
    need = rng.permutation(values(cpu, samples))
    begin = rng.permutation((np.arange(samples) * own.grid_ns // samples).astype(np.int64))
    before = rng.permutation(_values(preset.before, samples))
    found = np.empty((quotas.size, samples), dtype=np.int64)
    step = max(1, _CHUNK // samples)
    for first in range(0, quotas.size, step):
        part = quotas[first : first + step]
        found[first : first + step] = _visible(own, part, begin, before, need)[0]
    return found


def _closed(
    own: kernel.Kernel,
    preset: Preset,
    cpu: CpuTime,
    quotas: Ints,
    think: Quantiles | None,
    samples: int,
    rng: np.random.Generator,
) -> Ints:
    chains = min(_CHAINS, samples)
    need = values(cpu, chains)
    rounds = -(-samples // chains)
    begin = np.broadcast_to(rng.integers(0, own.grid_ns, chains), (quotas.size, chains))
    kept = []
    for place in range(_SETTLE + rounds):
        before = rng.permutation(_values(preset.before, chains))
        pause = _values_at(think, rng.random(chains))
        visible, whole = _visible(own, quotas, begin, before, need)
        begin = (begin + whole + pause + preset.outside_ns) % own.grid_ns
        if place >= _SETTLE:
            kept.append(visible)
    return np.concatenate(kept, axis=1)[:, :samples]


def _visible(
    own: kernel.Kernel, quotas: Ints, begin: Ints, before: Ints, need: Ints
) -> tuple[Ints, Ints]:
    """Times from the handler's beginning to the end, and from the arrival to the end.

    Shapes: quotas (sizes,); the others (tasks,) or (sizes, tasks). Returns (sizes, tasks).
    """
    shape = np.broadcast_shapes((quotas.size, 1), begin.shape, need.shape)
    start, quota, first, work = (
        np.ascontiguousarray(np.broadcast_to(one, shape)).ravel()
        for one in (begin, quotas[:, None], before, need)
    )
    whole = kernel.durations(own, start, first + work, quota)
    until = np.zeros_like(whole)
    if first.any():
        until = kernel.durations(own, start, first, quota)
    return (whole - until).reshape(shape), whole.reshape(shape)


def _values(quantiles: Quantiles | None, count: int) -> Ints:
    if quantiles is None:
        return np.zeros(count, dtype=np.int64)
    return _values_at(quantiles, (np.arange(count) + 0.5) / count)


def _values_at(quantiles: Quantiles | None, shares: Any) -> Ints:
    if quantiles is None:
        return np.zeros(np.shape(shares), dtype=np.int64)
    places, found = zip(*quantiles.points, strict=True)
    drawn: Ints = np.rint(np.interp(shares, places, found)).astype(np.int64)
    return drawn
