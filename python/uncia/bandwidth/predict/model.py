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
"""Invocations a size, as many as were published."""

SHARES: Final = (0.05, 0.25, 0.5, 0.75, 0.95)

_CHAINS: Final = 50
"""Closed arrivals: so many instances a size, each with its own CPU time, as instances have."""

_SETTLE: Final = 20
"""Invocations of a chain that are left out, until it has forgotten where it began."""

_KEPT_NS: Final = 1
"""Tasks find nothing of an earlier slice but what is left where debts were paid. With what Linux
keeps of it (1 ms) the error on published sizes is larger; see docs/reference/cpu-prediction.md."""

_NO_GAPS: Final = 10**15  # of which none is as long: when a task was throttled is not asked


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
    """As `predict`, for several CPU times, which meet the same random numbers.

    Returns:
        A list for each CPU time.
    """
    if not sizes:
        return [[] for _ in cpus]
    work = _random if arrivals.think is None else _closed
    each = [work(preset, cpu, arrivals.think, samples, np.random.default_rng(seed)) for cpu in cpus]
    quotas = [_quota(preset, size) for size in sizes]
    simulated = simulate.durations([setting for own in each for setting in own], quotas)
    found = []
    for own in each:
        part, simulated = simulated[: len(own)], simulated[len(own) :]
        visible = _in_rounds(part)[:, :samples] + preset.outside_ns
        found.append(
            [Predicted(size, durations) for size, durations in zip(sizes, visible, strict=True)]
        )
    return found


def _quota(preset: Preset, size: int) -> int | None:
    """What is left for the function; at one vCPU nothing holds it back."""
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
    """Tasks that have nothing to do with each other."""
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
        threshold_ns=_NO_GAPS,
    )
    return [_setting(preset, samples, begin, work)]


def _closed(
    preset: Preset, cpu: CpuTime, think: Quantiles | None, samples: int, rng: np.random.Generator
) -> list[simulate.Setting]:
    """Chains of tasks, one setting each."""
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
                threshold_ns=_NO_GAPS,
            ),
        )
        for chain in range(chains)
    ]


def _in_rounds(simulated: Sequence[Ints]) -> Ints:
    """Durations at each quota: of independent tasks in their order, of chains round by round once
    they have settled.

    Args:
        simulated: shape (quotas, tasks), an array a chain.

    Returns:
        Shape (quotas, invocations).
    """
    if len(simulated) == 1:
        return simulated[0]
    found = np.stack(simulated, axis=2)[:, _SETTLE:]
    return found.reshape(found.shape[0], -1)


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
