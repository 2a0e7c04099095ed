"""The closed form: how long a task takes under a quota that is enforced to the nanosecond.

Equation (2) of *Demystifying Serverless Costs on Public Platforms* (EuroSys'26, section 4.2), its
sweeps (Figure 11), and its extension to varying CPU times and to tasks that begin at any time. The
arithmetic is in Rust, in whole numbers (``crates/bandwidth``, ``closed_form`` and ``expected``);
this module makes the sizes, and derives figures from the answers. Kernels account at ticks and let
a task run past its quota: only the simulator knows that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Final, Literal, TypeAlias

from uncia.bandwidth import engine
from uncia.bandwidth.cpu_time import CpuTime, constant
from uncia.errors import UnciaError
from uncia.units import MICRO_PER_VCPU, NS_PER_MS, NS_PER_S, format_duration

FIGURE_11: Final = 51_800_000
"""CPU time of Figure 11 in ns: the mean of the Huawei trace's requests."""

FIGURE_11_PERIODS: Final = tuple(ms * NS_PER_MS for ms in (5, 10, 20, 40, 80, 100))

MIN_PERIOD: Final = NS_PER_MS
MAX_PERIOD: Final = NS_PER_S
MIN_QUOTA: Final = NS_PER_MS
"""The kernel's bounds (kernel/sched/core.c: min_cfs_quota_period, max_cfs_quota_period)."""

Phase: TypeAlias = int | Literal["random"]
"""When a task begins: so many ns after a period began (0: with it), or at a random time in it."""


@dataclass(frozen=True)
class Control:
    """A quota in a period, and the size that it comes from.

    Attributes:
        micro_vcpu: the share that was asked for; None if a quota or a memory size was.
        memory_mb: the memory size, likewise.
    """

    period_ns: int
    quota_ns: int
    micro_vcpu: int | None = None
    memory_mb: int | None = None

    @property
    def share(self) -> Fraction:
        """Quota over period: the vCPU that one pays for."""
        return Fraction(self.quota_ns, self.period_ns)


@dataclass(frozen=True)
class Expected:
    """The expected duration of a task under a control, exactly.

    Attributes:
        control: quota and period.
        sum_ns: sum of the durations of all cases (values of the CPU time, phases).
        cases: number of cases; the mean is the quotient.
        quantiles_ns: by share.
        cpu_ns: mean CPU time.
    """

    control: Control
    sum_ns: int
    cases: int
    quantiles_ns: dict[Fraction, int]
    cpu_ns: Fraction

    @property
    def mean_ns(self) -> Fraction:
        """The mean duration."""
        return Fraction(self.sum_ns, self.cases)

    @property
    def reciprocal_ns(self) -> Fraction:
        """CPU time over share: the duration in inverse proportion to the share."""
        return self.cpu_ns / self.control.share

    @property
    def factor(self) -> Fraction | None:
        """CPU time obtained over CPU time paid for; None for a task that needs none."""
        return self.reciprocal_ns / self.mean_ns if self.sum_ns else None


@dataclass(frozen=True)
class Jump:
    """A quota at which a task becomes faster at once.

    Attributes:
        periods: number of periods that the task needs from this quota on, if it begins with one.
        quota_ns: the smallest quota with which so many suffice.
        below_ns, at_ns: the duration with a quota 1 ns less, and with this one.
        mean_below_ns, mean_at_ns: the same for a task that begins at a random time. Its fall is
            smaller, (P - Q)^2 / P instead of P - Q, and half of that if it ends in one period; the
            rest of the fall is a slope.
    """

    period_ns: int
    periods: int
    quota_ns: int
    below_ns: int
    at_ns: int
    mean_below_ns: Fraction
    mean_at_ns: Fraction

    @property
    def micro_vcpu(self) -> int:
        """The smallest share in micro-vCPU with this quota."""
        return -(-self.quota_ns * MICRO_PER_VCPU // self.period_ns)

    def memory_mb(self, mb_per_vcpu: int) -> int:
        """Compute the smallest memory size, in MB, that comes with this quota."""
        return -(-self.quota_ns * mb_per_vcpu // self.period_ns)


def control_of_share(period_ns: int, micro_vcpu: int) -> Control:
    """Make the control for a share of one vCPU; the quota is rounded down to ns.

    Raises:
        UnciaError: the kernel allows no such control.
    """
    quota = period_ns * micro_vcpu // MICRO_PER_VCPU
    return _checked(Control(period_ns, quota, micro_vcpu=micro_vcpu))


def control_of_memory(period_ns: int, memory_mb: int, mb_per_vcpu: int) -> Control:
    """Make the control for a memory size; the quota is rounded down to ns.

    It is at most a whole vCPU, because one thread cannot use more.

    Raises:
        UnciaError: the kernel allows no such control.
    """
    quota = min(period_ns, period_ns * memory_mb // mb_per_vcpu)
    return _checked(Control(period_ns, quota, memory_mb=memory_mb))


def control_of_quota(period_ns: int, quota_ns: int) -> Control:
    """Make the control with this quota.

    Raises:
        UnciaError: the kernel allows no such control.
    """
    return _checked(Control(period_ns, quota_ns))


def sweep(
    controls: Sequence[Control],
    cpu: CpuTime,
    phase: Phase = 0,
    quantiles: Sequence[Fraction] = (),
) -> list[Expected]:
    """Compute the expected duration under each control, exactly.

    Args:
        controls: as the functions above make them.
        cpu: the CPU time that the task needs.
        phase: when in a period the task begins; ``"random"``: at any ns with equal probability.
        quantiles: shares (0 to 1, at most 6 decimals) whose quantiles to compute.

    Raises:
        UnciaError: the phase is not within a period, or a sum is beyond 128 bits.
    """
    answers = engine.ask(
        "duration",
        {
            "sweep": {
                "controls": [[control.period_ns, control.quota_ns] for control in controls],
                "cpu_ns": [list(point) for point in cpu.points],
                "phase_ns": None if phase == "random" else phase,
                "quantiles": [[share.numerator, share.denominator] for share in quantiles],
            }
        },
    )
    mean = cpu.mean
    return [
        Expected(
            control,
            int(answer["sum_ns"]),
            int(answer["cases"]),
            dict(zip(quantiles, map(int, answer["quantiles_ns"]), strict=True)),
            mean,
        )
        for control, answer in zip(controls, answers, strict=True)
    ]


def duration(period_ns: int, quota_ns: int, cpu_ns: int) -> int:
    """Compute Equation (2): the duration in ns of a task that begins with a period.

    Raises:
        UnciaError: there is no such control.
    """
    return sweep([control_of_quota(period_ns, quota_ns)], constant(cpu_ns))[0].sum_ns


def timeline(
    control: Control, cpu_ns: int, phase: int = 0, burst_ns: int = 0
) -> list[tuple[int, int]]:
    """Compute when a task runs: (from, to) in ns after it began, a pair for each period.

    The last pair ends with the duration that `sweep` computes. With a burst, the task finds quota
    and burst, and each period adds the quota up to their sum (kernel/sched/fair.c,
    `__refill_cfs_bandwidth_runtime`).

    Args:
        control: the quota and the period.
        cpu_ns: what the task needs.
        phase: ns after a period began at which the task begins.
        burst_ns: unused quota that the group may save (``cpu.max.burst``).
    """
    runs: list[tuple[int, int]] = []
    start, boundary = 0, control.period_ns - phase
    most = budget = control.quota_ns + burst_ns
    while cpu_ns > 0:
        run = min(cpu_ns, budget, boundary - start)
        runs.append((start, start + run))
        cpu_ns -= run
        budget = min(budget - run + control.quota_ns, most)
        start, boundary = boundary, boundary + control.period_ns
    return runs


def jumps(
    period_ns: int,
    cpu_ns: Sequence[int],
    least_ns: int,
    largest_ns: int,
    most: int = 1_000,
) -> list[list[Jump]]:
    """Find the jumps of each CPU time T: quotas from `least_ns` to `largest_ns` at T/n, rounded up.

    They are in descending order, at most `most` of them.

    Raises:
        UnciaError: the period is none that the kernel takes.
    """
    answers = engine.ask(
        "duration",
        {
            "jumps": {
                "period_ns": period_ns,
                "cpu_ns": list(cpu_ns),
                "least_ns": least_ns,
                "largest_ns": largest_ns,
                "most": most,
            }
        },
    )
    return [
        [
            Jump(
                period_ns,
                jump["periods"],
                jump["quota_ns"],
                int(jump["below_ns"]),
                int(jump["at_ns"]),
                Fraction(int(jump["mean_below_sum_ns"]), period_ns),
                Fraction(int(jump["mean_at_sum_ns"]), period_ns),
            )
            for jump in answer
        ]
        for answer in answers
    ]


def check_period(period_ns: int) -> None:
    """Check a period against the kernel's bounds.

    Raises:
        UnciaError: the kernel does not take it.
    """
    if not MIN_PERIOD <= period_ns <= MAX_PERIOD:
        raise UnciaError(
            f"a period of {format_duration(period_ns)} is beyond what the kernel takes",
            "It takes 1ms to 1s.",
        )


def _checked(control: Control) -> Control:
    """Check a control against the kernel's bounds and what one thread can use.

    A quota below the kernel's smallest passes: the formulas hold there, and providers' models need
    it.
    """
    period, quota = control.period_ns, control.quota_ns
    check_period(period)
    written = format_duration(period)
    if quota <= 0:
        raise UnciaError(f"in a period of {written} the quota is less than 1 ns: nothing would run")
    if quota > period:
        raise UnciaError(
            f"a quota of {format_duration(quota)} in a period of {written} is above one vCPU, which"
            " a single thread cannot use",
            "Take a quota of at most the period (--period), or at most 1 vCPU.",
        )
    return control
