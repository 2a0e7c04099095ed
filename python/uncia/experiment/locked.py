"""Warns of arrivals that meet the CPU quota's period at the same point every time.

A quota holds per period. Requests that come every whole number of periods find each period equally
far along, so that all of them take the same time, which may be far from that of others.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from typing import TYPE_CHECKING, Final

from uncia.experiment.model import ExperimentFile, Function
from uncia.experiment.plan import ExperimentPlan, Plan
from uncia.experiment.sources import Sources
from uncia.providers import LAMBDA_BYTES
from uncia.settings import PLATFORM_SETTINGS
from uncia.units import MICRO_PER_VCPU, NS_PER_MS, NS_PER_S, format_duration
from uncia.workload.arrivals.burst import Process as Burst
from uncia.workload.arrivals.constant import Process as Constant
from uncia.workload.arrivals.random_phase import Process as RandomPhase

if TYPE_CHECKING:
    import pyarrow as pa

_ADVICE: Final = "Use poisson arrivals, or a gap that is no multiple of the period."
_MIN_REQUESTS: Final = 10
"""Of fewer, a common divisor of the gaps may be chance."""


def expected(plan: Plan, sources: Sources) -> list[str]:
    """List the streams of a plan whose requests will come so, a sentence each.

    Whether it matters depends on what they compute: less than the quota is never held back.
    """
    warnings = []
    for experiment in _measured(plan):
        for stream in experiment.streams:
            function = plan.deployments[stream.deployment].function
            period = _period(function, plan.file)
            if period is None or not _is_held_back(function, sources):
                continue
            gap = None if stream.recorded is not None else _gap(stream.arrivals)
            if gap is not None and gap % period == 0:
                warnings.append(
                    f"{experiment.name}: requests of {stream.alias} come every"
                    f" {float(gap / NS_PER_MS):g} ms, a whole number of quota periods"
                    f" ({format_duration(period)}): if they use up their quota, all take the same"
                    f" time. {_ADVICE}"
                )
    return warnings


def observed(plan: Plan, rows: pa.Table) -> list[str]:
    """List the functions of a run whose requests came so, and used their quota up.

    Args:
        plan: what was carried out.
        rows: the run's invocations.
    """
    import pyarrow.compute as pc

    warnings = []
    for experiment in _measured(plan):
        of_experiment = rows.filter(pc.equal(rows["experiment"], experiment.name))
        periods: dict[str, set[int | None]] = {}
        for stream in experiment.streams:
            function = plan.deployments[stream.deployment].function
            periods.setdefault(stream.alias, set()).add(_period(function, plan.file))
        for alias, periods_of_alias in periods.items():
            period = periods_of_alias.pop()
            # Of deployments with different periods the rows do not say which is whose.
            if periods_of_alias or period is None:
                continue
            served = of_experiment.filter(pc.equal(of_experiment["function"], alias))
            gap, count = _common_gap(served), _over_quota(served, period)
            if not gap or gap % period or not count:
                continue
            warnings.append(
                f"{experiment.name}: requests of {alias} came at multiples of {gap / NS_PER_MS:g}"
                f" ms, a whole number of quota periods ({format_duration(period)}), and {count:,}"
                f" of {len(served):,} needed more CPU time than the quota of one: each met it at"
                " the same point of the period, so their durations are not those of requests at"
                f" other times. {_ADVICE}"
            )
    return warnings


def _measured(plan: Plan) -> Iterator[ExperimentPlan]:
    """The experiments whose durations are read: all but warm-ups of others."""
    return (experiment for experiment in plan.experiments if experiment.warmup_of is None)


def _over_quota(rows: pa.Table, period: int) -> int:
    """Count the rows whose CPU time is above the quota of one period, which holds them back."""
    import numpy as np
    import pyarrow.compute as pc

    used = pc.add(rows["cpu_user"], rows["cpu_system"])
    known = rows.append_column("used", used).filter(
        pc.and_(pc.is_valid(used), pc.is_valid(rows["allocated_cpu"]))
    )
    shares = known["allocated_cpu"].to_numpy() / MICRO_PER_VCPU
    is_over = known["used"].to_numpy() > shares * period
    return int(np.count_nonzero(is_over & (shares < 1)))


def _common_gap(rows: pa.Table) -> int:
    """The greatest common divisor of the times between scheduled requests, in ns; 0 of few."""
    import numpy as np

    times = np.sort(rows["scheduled"].drop_null().to_numpy())
    return int(np.gcd.reduce(np.diff(times))) if times.size >= _MIN_REQUESTS else 0


def _gap(loop: object) -> Fraction | None:
    """The gap of a process whose gaps are all the same, in ns."""
    if isinstance(loop, Constant | RandomPhase) and loop.expected_requests() > 1:
        return NS_PER_S / loop.rate
    if isinstance(loop, Burst) and loop.interval and loop.bursts > 1 and not loop.jitter:
        return Fraction(loop.interval)
    return None


def _is_held_back(function: Function, sources: Sources) -> bool:
    """Whether it has less than a whole vCPU, so that a thread of it can use up its quota."""
    cpu = function.declared().get("cpu")
    if cpu is not None:
        return int(cpu) < MICRO_PER_VCPU
    memory = function.memory
    if memory is None and function.source is not None:
        memory = sources.definition(function.source).memory
    return memory is not None and memory < LAMBDA_BYTES


def _period(function: Function, file: ExperimentFile) -> int | None:
    """The period of its quota, in ns; None where none is known."""
    if file.platform.kind != "embedded":
        return None
    setting = PLATFORM_SETTINGS["period"]
    chosen = function.declared().get(setting.name, getattr(file.platform, setting.name))
    return setting.from_engine(int(setting.default or 0)) if chosen is None else int(chosen)
