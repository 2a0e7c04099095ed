"""The model: durations at each size, from the CPU time, the kernel and the arrivals.

Two kinds of arrivals:

* *random*: requests arrive at random times of the period, like those of independent users.
* *closed*: one request at a time, each a certain time after the end of the one before. A throttled
  request ends shortly after a refill, so the next one begins that time after a refill: begins lock
  on to the period, and duration and pause tend to add up to whole periods. The published
  measurements were made in this way.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np

from uncia.bandwidth import simulate
from uncia.bandwidth.cpu_time import CpuTime
from uncia.bandwidth.predict.cpu import values
from uncia.bandwidth.presets import SLICE_NS, Preset, Quantiles
from uncia.stats.quantiles import quantiles_of

if TYPE_CHECKING:
    Ints: TypeAlias = "np.ndarray[Any, np.dtype[np.int64]]"

SAMPLES: Final = 2_500
"""Invocations at each size, as many as were published."""

SHARES: Final = (0.05, 0.25, 0.5, 0.75, 0.95)

_CHAINS: Final = 50
"""Instances at each size with closed arrivals; each has its own CPU time, as real ones do."""

_SETTLE: Final = 20
"""Invocations of a chain that are left out, until its initial phase no longer matters."""

_KEPT_NS: Final = 1
"""Runtime that a task finds of an earlier slice: what is left once debts are paid. With the 1 ms
that Linux keeps, the error on published sizes is larger; see docs/reference/cpu-prediction.md."""

_NO_THRESHOLD: Final = 10**15  # of which none is as long: when a task was throttled is not asked


@dataclass(frozen=True)
class Arrivals:
    """When requests arrive.

    Attributes:
        think: time from the end of a request to the begin of the next; None: at random.
        words: a description.
    """

    think: Quantiles | None
    words: str


RANDOM: Final = Arrivals(None, "at random")


@dataclass(frozen=True)
class Predicted:
    """The predicted durations at a size.

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
        return quantiles_of(self.durations, shares)


def predict(
    preset: Preset,
    cpu: CpuTime,
    sizes: Sequence[int],
    arrivals: Arrivals = RANDOM,
    *,
    samples: int = SAMPLES,
    seed: int = 0,
) -> list[Predicted]:
    """Predict the durations at each size.

    All sizes use the same random numbers, so that only their quotas differ.

    Args:
        preset: the platform.
        cpu: the CPU time of an invocation.
        sizes: MB or micro-vCPU.
        arrivals: when requests come.
        samples: invocations at each size.
        seed: of the random numbers.

    Returns:
        One for each size, in their order.

    Raises:
        UnciaError: the engine is not installed.
    """
    return predict_each(preset, [cpu], sizes, arrivals, samples=samples, seed=seed)[0]


def predict_each(
    preset: Preset,
    cpus: Sequence[CpuTime],
    sizes: Sequence[int],
    arrivals: Arrivals = RANDOM,
    *,
    samples: int = SAMPLES,
    seed: int = 0,
) -> list[list[Predicted]]:
    """Predict durations for several CPU times, which use the same random numbers.

    Returns:
        A list for each CPU time.
    """
    if not sizes:
        return [[] for _ in cpus]
    work = _random if arrivals.think is None else _closed
    by_cpu_time = [
        work(preset, cpu, arrivals.think, samples, np.random.default_rng(seed)) for cpu in cpus
    ]
    quotas = [_quota(preset, size) for size in sizes]
    simulated = simulate.durations([setting for group in by_cpu_time for setting in group], quotas)
    result = []
    for group in by_cpu_time:
        part, simulated = simulated[: len(group)], simulated[len(group) :]
        visible = _in_rounds(part)[:, :samples] + preset.outside_ns
        result.append(
            [Predicted(size, durations) for size, durations in zip(sizes, visible, strict=True)]
        )
    return result


def _quota(preset: Preset, size: int) -> int | None:
    """Compute the quota that is left for the function; None (no quota) at one vCPU."""
    quota = preset.quota_ns(size)
    return None if quota >= preset.platform.period_ns else max(1, quota - preset.lost_ns)


def _setting(preset: Preset, runs: int, starts: Ints, work: simulate.Task) -> simulate.Setting:
    return simulate.Setting(
        period_ns=preset.platform.period_ns,
        quota_ns=None,  # each size has its own
        hz=preset.platform.hz,
        slice_ns=SLICE_NS,
        kept_ns=_KEPT_NS,
        remaining_ns=_KEPT_NS,
        runs=runs,
        starts_ns=starts.tolist(),
        work=work,
    )


def _random(
    preset: Preset, cpu: CpuTime, think: Quantiles | None, samples: int, rng: np.random.Generator
) -> list[simulate.Setting]:
    """Make the setting of independent tasks."""
    # One value in each part of equal probability, in any order: the least noise for their number.
    grid = math.lcm(preset.platform.period_ns, preset.tick_ns)
    need = rng.permutation(values(cpu, samples))
    begin = rng.permutation((np.arange(samples) * grid // samples).astype(np.int64))
    before = rng.permutation(_values(preset.before, samples))
    work = simulate.Task(
        cpu_ns=need.tolist(),
        before_ns=before.tolist(),
        gap_ns=(0, 0),
        fresh=True,
        threshold_ns=_NO_THRESHOLD,
    )
    return [_setting(preset, samples, begin, work)]


def _closed(
    preset: Preset, cpu: CpuTime, think: Quantiles | None, samples: int, rng: np.random.Generator
) -> list[simulate.Setting]:
    """Make a setting for each chain of tasks."""
    chains = min(_CHAINS, samples)
    need = values(cpu, chains)
    rounds = _SETTLE - (-samples // chains)
    grid = math.lcm(preset.platform.period_ns, preset.tick_ns)
    begin = rng.integers(0, grid, chains)
    before, sleeps = [], [np.zeros(chains, dtype=np.int64)]
    for _ in range(rounds):
        before.append(rng.permutation(_values(preset.before, chains)))
        sleeps.append(_values_at(think, rng.random(chains)) + preset.outside_ns)
    befores, pauses = np.array(before), np.array(sleeps[:-1])
    return [
        _setting(
            preset,
            rounds,
            begin[chain : chain + 1],
            simulate.Task(
                cpu_ns=[int(need[chain])],
                before_ns=befores[:, chain].tolist(),
                sleeps_ns=pauses[:, chain].tolist(),
                sleeps_in_turn=True,
                threshold_ns=_NO_THRESHOLD,
            ),
        )
        for chain in range(chains)
    ]


def _in_rounds(simulated: Sequence[Ints]) -> Ints:
    """Order durations at each quota: chains round by round, once they have settled.

    Args:
        simulated: shape (quotas, tasks), an array a chain.

    Returns:
        Shape (quotas, invocations).
    """
    if len(simulated) == 1:
        return simulated[0]
    settled = np.stack(simulated, axis=2)[:, _SETTLE:]
    return settled.reshape(settled.shape[0], -1)


def _values(quantiles: Quantiles | None, count: int) -> Ints:
    if quantiles is None:
        return np.zeros(count, dtype=np.int64)
    return _values_at(quantiles, (np.arange(count) + 0.5) / count)


def _values_at(quantiles: Quantiles | None, shares: Any) -> Ints:
    if quantiles is None:
        return np.zeros(np.shape(shares), dtype=np.int64)
    known_shares, known_values = zip(*quantiles.points, strict=True)
    drawn: Ints = np.rint(np.interp(shares, known_shares, known_values)).astype(np.int64)
    return drawn
