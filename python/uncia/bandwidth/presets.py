"""Presets of providers: their bandwidth control, their sandboxes, and the evidence.

Periods, tick rates and sizes are those of `uncia.profiles`; the rest was measured in the data
published with the cost paper (*Demystifying Serverless Costs on Public Platforms*, EuroSys'26), as
the comment on each figure says.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Final

from uncia.errors import UnciaError
from uncia.profiles.cpu import PLATFORMS
from uncia.providers import LAMBDA_MB, Platform
from uncia.units import MIB, MICRO_PER_VCPU, NS_PER_MS, NS_PER_S

SLICE_NS: Final = 5 * NS_PER_MS
"""Runtime that a CPU takes from a group's pool at once: ``sched_cfs_bandwidth_slice_us``."""


@dataclass(frozen=True)
class Quantiles:
    """A distribution by some of its quantiles; between them its values rise evenly.

    Attributes:
        points: share (0 to 1) and value in ns, ascending, from 0 to 1.
    """

    points: tuple[tuple[float, int], ...]


@dataclass(frozen=True)
class Preset:
    """A provider.

    Attributes:
        name: ``aws``, ``gcp`` or ``ibm``.
        title: for people.
        platform: period, tick rate and sizes.
        scheduler: ``cfs`` or ``eevdf``, as the simulator calls it.
        lost_ns: part of each quota that other processes of the sandbox always use.
        before: CPU time of the sandbox from a request's arrival until the handler begins; it counts
            against the quota, but not in the reported duration.
        outside_ns: part of the reported duration that uses no CPU under the quota.
        think: time from the end of an invocation to the beginning of the next in the published
            runs, which were made one at a time; None if not measured.
        tariff: id of its tariff.
        memory: bytes of memory, if the vCPU is set independently.
        error: mean absolute error of the mean duration over the published sizes, from CPU time at
            one vCPU alone; None without data.
        errors: (bound, error): sizes below the bound, and not below the one before, have the error.
    """

    name: str
    title: str
    platform: Platform
    scheduler: str
    tariff: str
    lost_ns: int = 0
    before: Quantiles | None = None
    outside_ns: int = 0
    think: Quantiles | None = None
    memory: int | None = None
    error: float | None = None
    errors: tuple[tuple[int, float], ...] = ()

    @property
    def tick_ns(self) -> int:
        """Time between ticks."""
        return NS_PER_S // self.platform.hz

    @property
    def by_memory(self) -> bool:
        """Whether the size is a memory size, from which the vCPU follows."""
        return self.platform.mb_per_vcpu is not None

    @property
    def unit(self) -> str:
        """Unit of sizes, as shown."""
        return "MB" if self.by_memory else "vCPU"

    @property
    def whole(self) -> int:
        """The size with one vCPU: MB or micro-vCPU."""
        return self.platform.mb_per_vcpu or MICRO_PER_VCPU

    def share(self, size: int) -> Fraction:
        """Compute the vCPU at a size (MB or micro-vCPU)."""
        return Fraction(size, self.whole)

    def error_at(self, size: int) -> float | None:
        """Look up the error at a size; None if unknown, or with one vCPU or more."""
        return next((error for below, error in self.errors if size < below), None)

    def quota_ns(self, size: int) -> int:
        """Compute the quota at a size, at most a whole period, which is all a thread can use."""
        return min(self.platform.period_ns, self.platform.period_ns * size // self.whole)

    def allocation(self, size: int) -> tuple[int, int]:
        """Return (micro-vCPU, bytes of memory) at a size."""
        if self.platform.mb_per_vcpu is not None:
            return round(self.share(size) * MICRO_PER_VCPU), size * MIB
        return size, self.memory or 512 * MIB


def _ms(*points: tuple[float, float]) -> Quantiles:
    return Quantiles(tuple((share, round(value * NS_PER_MS)) for share, value in points))


PRESETS: Final = {
    "aws": Preset(
        name="aws",
        title="AWS Lambda",
        platform=PLATFORMS["aws"],
        scheduler="cfs",
        tariff="aws-lambda-x86",
        error=0.052,
        errors=((300, 0.077), (750, 0.080), (1400, 0.043), (LAMBDA_MB, 0.022)),
        # 499 gaps between 500 invocations in the published log of a 1000 MB function: from the end
        # of a handler to the next one's beginning, less 1.29 ms, the median of what the reported
        # Duration holds beyond the handler. 100.2 ms of it are the driver's pause.
        think=_ms(
            (0, 155.3),
            (0.05, 156.32),
            (0.1, 156.6),
            (0.25, 157.27),
            (0.5, 158.11),
            (0.75, 159.09),
            (0.9, 160.23),
            (0.95, 161.19),
            (0.99, 164.23),
            (1, 174.7),
        ),
    ),
    "gcp": Preset(
        name="gcp",
        title="Google Cloud Run functions, first generation",
        platform=PLATFORMS["gcp"],
        scheduler="cfs",
        tariff="gcp-run-request",
        error=0.048,
        errors=((100_000, 0.323), (200_000, 0.093), (300_000, 0.151), (1_000_000, 0.019)),
        # Published profile at 0.08 vCPU: 7.41 ms of CPU time a period, of a quota of 8 ms.
        lost_ns=600_000,
        # The same profile: before the first throttle, 56 of 60 runs got so much less than the
        # 7.41 ms of a period (the other 4 got more than that, a refill having come between).
        before=_ms(
            (0, 0.46),
            (0.05, 1.8),
            (0.1, 2.37),
            (0.25, 3.49),
            (0.5, 4.66),
            (0.75, 5.99),
            (0.9, 6.9),
            (0.95, 7.09),
            (1, 7.2),
        ),
        # Request latency less time in the function, both at one vCPU: 18.927 - 16.586 ms.
        outside_ns=2_341_000,
        memory=512 * MIB,
    ),
    "ibm": Preset(
        name="ibm",
        title="IBM Cloud Code Engine",
        platform=PLATFORMS["ibm"],
        scheduler="cfs",
        tariff="ibm-code-engine",
        memory=512 * MIB,
    ),
}


def preset(name: str, option: str = "--like") -> Preset:
    """Look up a provider by name.

    Raises:
        UnciaError: there is no such provider.
    """
    if name not in PRESETS:
        raise UnciaError(
            f"{option}: {name!r} is none of {', '.join(PRESETS)}",
            "Name the platform whose bandwidth control is to be assumed.",
        )
    return PRESETS[name]
