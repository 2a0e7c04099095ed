"""Over-allocation: durations by memory size, measured and modelled, and CPU time per paid time.

Figure 10 of "Demystifying Serverless Costs on Public Platforms" (EuroSys'26, section 4.1), from
rows of one function at many sizes. Every model knows only the rows at a whole vCPU or more; the
others test it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from uncia.errors import UnciaError
from uncia.profiles.cpu import LAMBDA
from uncia.providers import LAMBDA_MB
from uncia.stats.quantiles import quantiles_of
from uncia.units import MIB, MICRO_PER_VCPU, NS_PER_US, parse_duration

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

    Array = np.ndarray[Any, np.dtype[np.int64]]

KERNEL: Final = "kernel"
EVENT_DRIVEN: Final = "event-driven"

RECIPROCAL: Final = "reciprocal"
EQUATION: Final = "Equation (2)"
SIMULATED: Final = "simulated kernel"
ANY_PHASE: Final = "Equation (2), any phase"
"""The mean duration under an exactly enforced quota of a task that begins at a random time."""

_SIMULATED_RUNS: Final = 400
_SEED: Final = 20250515


@dataclass(frozen=True)
class Size:
    """The rows of one size.

    Attributes:
        enforcement: how the function is held to its quota: ``kernel`` or ``event-driven``.
        memory: bytes.
        cpu_micro: allocated CPU, millionths of a vCPU.
        durations: execution of each row, ns, ascending.
        cpu: CPU time of each row, ns, in the order of the rows; None if not measured.
        throttled: number of rows that the kernel throttled; None if not measured.
        overallocation: CPU time used over CPU time allocated (allocation x execution), sums over
            the rows; above 1: more than was paid for.
    """

    enforcement: str
    memory: int
    cpu_micro: int
    durations: Array
    cpu: Array | None
    throttled: int | None
    overallocation: float | None

    @property
    def rows(self) -> int:
        """Number of rows."""
        return len(self.durations)

    @property
    def whole(self) -> bool:
        """Whether it has a vCPU or more."""
        return self.cpu_micro >= MICRO_PER_VCPU

    @property
    def mean_ns(self) -> float:
        """Average execution."""
        return float(self.durations.mean())


@dataclass(frozen=True)
class Kernel:
    """The simulated kernel.

    Attributes:
        period_ns: of the quota.
        hz: ticks a second.
        scheduler: ``cfs`` or ``eevdf``.
        throttling: ``group`` or ``task``.
        timer: ``absolute`` or ``random``: the offset of the period timer.
    """

    period_ns: int
    hz: int
    scheduler: str
    throttling: str
    timer: str


@dataclass(frozen=True)
class Result:
    """Sizes, and the durations that models predict for them.

    Attributes:
        folder: the run.
        function: the function's name.
        kernel: the simulated kernel.
        sizes: ascending, those enforced by the kernel first.
        full: enforcement -> the rows that models use.
        models: enforcement -> model -> the duration at each of its sizes, ns.
        left_out: reason -> number of rows that do not count.
    """

    folder: Path
    function: str
    kernel: Kernel
    sizes: Sequence[Size]
    full: Mapping[str, Full]
    models: Mapping[str, Mapping[str, Sequence[float]]]
    left_out: Mapping[str, int]

    def of(self, enforcement: str) -> list[Size]:
        """Select the sizes under one enforcement."""
        return [size for size in self.sizes if size.enforcement == enforcement]

    def errors(self, enforcement: str) -> dict[str, float]:
        """Compute each model's mean absolute error over the sizes below a vCPU, as a share."""
        sizes = self.of(enforcement)
        return {
            name: error(
                [size.mean_ns for size in sizes if not size.whole],
                [
                    predicted
                    for predicted, size in zip(values, sizes, strict=True)
                    if not size.whole
                ],
            )
            for name, values in self.models[enforcement].items()
        }

    def enforcements(self) -> list[str]:
        """List the enforcements."""
        return list(dict.fromkeys(size.enforcement for size in self.sizes))


def error(measured: Sequence[float], predicted: Sequence[float]) -> float:
    """Mean absolute percentage error as a share: the mean of ``|predicted - measured| / measured``.

    Raises:
        ValueError: there is nothing to compare, or a measured value is not above zero.
    """
    if not measured or len(measured) != len(predicted):
        raise ValueError("measured and predicted values must be as many, and at least one")
    if min(measured) <= 0:
        raise ValueError("a measured value is above zero")
    return sum(
        abs(guess - value) / value for value, guess in zip(measured, predicted, strict=True)
    ) / len(measured)


def overallocation(cpu_ns: int, execution_ns: int, cpu_micro: int) -> float | None:
    """Compute CPU time used over CPU time allocated; None if nothing was allocated."""
    allocated = execution_ns * cpu_micro
    return None if allocated <= 0 else cpu_ns * MICRO_PER_VCPU / allocated


def quota_ns(cpu_micro: int, period_ns: int) -> int:
    """Compute the quota that the embedded platform sets, in whole microseconds."""
    return period_ns // NS_PER_US * cpu_micro // MICRO_PER_VCPU * NS_PER_US


def sizes(rows: pa.Table, run: Mapping[str, Any]) -> tuple[list[Size], dict[str, int]]:
    """Group the rows by enforcement and size, and count those left out by reason.

    Left out are warm-ups, rows that did not end ok, cold starts, and rows without execution time.

    Args:
        rows: a run's invocation table.
        run: its ``run.yaml``.

    Raises:
        UnciaError: rows are of several functions, or none can be used.
    """
    import numpy as np

    enforced = _enforcement(run)
    warmups = {
        name
        for name, experiment in run.get("experiments", {}).items()
        if experiment.get("warmup_of") is not None
    }
    groups: dict[tuple[str, int, int], list[Mapping[str, Any]]] = {}
    left_out: dict[str, int] = {}
    functions: set[str] = set()
    for row in rows.to_pylist():
        if row["experiment"] in warmups:
            continue
        reason = _unusable(row)
        if reason is not None:
            left_out[reason] = left_out.get(reason, 0) + 1
            continue
        functions.add(row["function"])
        enforcement = enforced.get((row["experiment"], row["stage"]), KERNEL)
        key = enforcement, row["allocated_memory"], row["allocated_cpu"]
        groups.setdefault(key, []).append(row)
    if len(functions) > 1:
        raise UnciaError(f"the rows are of several functions: {', '.join(sorted(functions))}")
    if not groups:
        raise UnciaError(
            "no row can be used"
            + "".join(f"; {count} {reason}" for reason, count in left_out.items()),
            exit_code=1,
        )
    result = []
    order = sorted(groups, key=lambda key: (key[0] != KERNEL, key[0], key[1]))
    for enforcement, memory, cpu_micro in order:
        group = groups[enforcement, memory, cpu_micro]
        durations = np.array([row["execution"] for row in group], dtype=np.int64)
        used = [_cpu(row) for row in group]
        cpu = None if None in used else np.array(used, dtype=np.int64)
        throttled = [row["throttled_count"] for row in group]
        result.append(
            Size(
                enforcement,
                memory,
                cpu_micro,
                np.sort(durations),
                cpu,
                None if None in throttled else sum(count > 0 for count in throttled),
                None
                if cpu is None
                else overallocation(int(cpu.sum()), int(durations.sum()), cpu_micro),
            )
        )
    return result, left_out


def _unusable(row: Mapping[str, Any]) -> str | None:
    if row["outcome"] != "ok":
        return str(row["outcome"])
    if row["execution"] is None or row["allocated_cpu"] is None or row["allocated_memory"] is None:
        return "execution or allocation not known"
    if row["start"] not in ("warm", "thawed"):
        return f"start {row['start'] or 'not known'}"
    return None


def _cpu(row: Mapping[str, Any]) -> int | None:
    if row["cpu_user"] is None or row["cpu_system"] is None:
        return None
    return int(row["cpu_user"]) + int(row["cpu_system"])


def _enforcement(run: Mapping[str, Any]) -> dict[tuple[str, str | None], str]:
    """Look up the enforcement of each experiment and stage (None outside chains)."""
    overall = str(run.get("platform", {}).get("enforcement") or KERNEL)
    result: dict[tuple[str, str | None], str] = {}
    for name, experiment in run.get("experiments", {}).items():
        for stream in experiment.get("streams") or [{}]:
            enforcement = stream.get("settings", {}).get("enforcement")
            result.setdefault((name, stream.get("stage")), str(enforcement or overall))
    return result


def kernel_of(run: Mapping[str, Any], hz: int | None) -> Kernel:
    """Choose the kernel to simulate for a run: its platform's period, its kernel's scheduler.

    Args:
        run: its ``run.yaml``.
        hz: ticks a second; None: this machine's, if the run was made with its kernel and the
            rate is known, else 250, which most distributions and clouds have.

    Raises:
        UnciaError: the run does not name its kernel, or the kernel is too old to be modelled.
    """
    import platform

    from uncia.bandwidth import kernels

    version = str(run.get("versions", {}).get("kernel", "")).rpartition(" ")[2]
    kernel = kernels.of_version(version)
    if hz is None:
        is_local = version == platform.release()
        hz = (kernels.tick_rate() if is_local else None) or LAMBDA.hz
    period = run.get("platform", {}).get("period")
    period_ns = parse_duration(period) if period else LAMBDA.period_ns
    return Kernel(period_ns, hz, kernel.scheduler, kernel.throttling, kernel.timer)


def read(folder: Path, hz: int | None = None) -> Result:
    """Read a run, and compute the models.

    Args:
        folder: a run of one function, at sizes of which at least one has a whole vCPU.
        hz: tick rate of the simulated kernel; see `kernel_of`.

    Raises:
        UnciaError: it is no such run.
    """
    from uncia import record
    from uncia.runs.folder import read_run

    rows = record.read(folder)
    run = read_run(folder)
    measured, left_out = sizes(rows, run)
    kernel = kernel_of(run, hz)
    bases: dict[str, Full] = {}
    models: dict[str, dict[str, list[float]]] = {}
    for enforcement in dict.fromkeys(size.enforcement for size in measured):
        group = [size for size in measured if size.enforcement == enforcement]
        whole = [size for size in group if size.whole]
        if not whole or len(whole) == len(group):
            raise UnciaError(
                f"{folder}: models need rows at a whole vCPU ({LAMBDA_MB}MB), and rows below it to"
                f" be judged by; there are {len(whole)} sizes of the first and"
                f" {len(group) - len(whole)} of the second kind"
            )
        bases[enforcement] = full(whole)
        models[enforcement] = _models(group, bases[enforcement], kernel, enforcement)
    names = rows.column("function").unique().to_pylist()
    return Result(folder, str(names[0]), kernel, measured, bases, models, left_out)


@dataclass(frozen=True)
class Full:
    """The rows at a whole vCPU, which are all that models know.

    Attributes:
        cpu: CPU times, ns; if not measured, the executions.
        beyond_ns: mean execution beyond the CPU time (transfer of event and answer); no quota makes
            it longer, so every model adds it.
    """

    cpu: Array
    beyond_ns: float

    @property
    def mean_ns(self) -> float:
        """Mean CPU time."""
        return float(self.cpu.mean())


def full(whole: Sequence[Size]) -> Full:
    """Combine the rows at a whole vCPU or more, of all sizes."""
    import numpy as np

    durations = np.concatenate([size.durations for size in whole])
    measured = [size.cpu for size in whole if size.cpu is not None]
    if len(measured) < len(whole):
        return Full(durations, 0.0)
    cpu = np.concatenate(measured)
    return Full(cpu, max(0.0, float(durations.mean() - cpu.mean())))


def _models(
    group: Sequence[Size], base: Full, kernel: Kernel, enforcement: str
) -> dict[str, list[float]]:
    """Compute the duration at each size by each model, ns.

    The last model is that of the enforcement: the kernel, or timers, which are exact.
    """
    from uncia.bandwidth.engine import ask

    limits = [quota_ns(size.cpu_micro, kernel.period_ns) for size in group]
    need, beyond = base.mean_ns, base.beyond_ns
    tasks = [
        {"period_ns": kernel.period_ns, "quota_ns": limit, "cpu_ns": round(need)}
        for limit, size in zip(limits, group, strict=True)
        if not size.whole
    ]
    exact = iter(ask("duration", {"tasks": tasks}))
    answers = [None if size.whole else next(exact) for size in group]
    last = ANY_PHASE if enforcement == EVENT_DRIVEN else SIMULATED
    shares = [min(1.0, size.cpu_micro / MICRO_PER_VCPU) for size in group]
    return {
        RECIPROCAL: [need / share + beyond for share in shares],
        EQUATION: [
            beyond + (need if answer is None else float(answer["ns"])) for answer in answers
        ],
        last: [
            beyond + (need if answer is None else int(answer["sum_ns"]) / int(answer["phases"]))
            for answer in answers
        ]
        if last == ANY_PHASE
        else _simulated(group, base, limits, kernel),
    }


def _simulated(
    group: Sequence[Size], base: Full, limits: Sequence[int], kernel: Kernel
) -> list[float]:
    """Simulate mean durations of tasks with the CPU times measured at a whole vCPU."""
    from uncia.bandwidth.simulate import Setting, Task, simulate

    limited = [number for number, size in enumerate(group) if not size.whole]
    work = Task(cpu_ns=[int(value) for value in base.cpu])
    settings = [
        Setting.model_validate(
            {
                "name": str(number),
                "period_ns": kernel.period_ns,
                "quota_ns": limits[number],
                "hz": kernel.hz,
                "scheduler": kernel.scheduler,
                "throttling": kernel.throttling,
                "timer": kernel.timer,
                "runs": max(_SIMULATED_RUNS, len(base.cpu)),
                "work": work,
            }
        )
        for number in limited
    ]
    simulated = simulate(settings, seed=_SEED)
    means = {number: float(simulated.durations(str(number)).mean()) for number in limited}
    return [base.beyond_ns + means.get(number, base.mean_ns) for number in range(len(group))]


def as_data(result: Result) -> dict[str, Any]:
    """Convert the result for JSON."""

    entries = []
    for enforcement in result.enforcements():
        group = result.of(enforcement)
        models = result.models[enforcement]
        for number, size in enumerate(group):
            p5, p50, p95 = quantiles_of(size.durations, [0.05, 0.5, 0.95])
            entries.append(
                {
                    "enforcement": enforcement,
                    "memory_mb": size.memory / MIB,
                    "vcpu": size.cpu_micro / MICRO_PER_VCPU,
                    "rows": size.rows,
                    "mean_ms": size.mean_ns / 1e6,
                    "p5_ms": p5 / 1e6,
                    "p50_ms": p50 / 1e6,
                    "p95_ms": p95 / 1e6,
                    "cpu_ms": None if size.cpu is None else float(size.cpu.mean()) / 1e6,
                    "throttled_share": None
                    if size.throttled is None
                    else size.throttled / size.rows,
                    "overallocation": size.overallocation,
                    "models_ms": {name: values[number] / 1e6 for name, values in models.items()},
                }
            )
    return {
        "run": str(result.folder),
        "function": result.function,
        "kernel": vars(result.kernel),
        "full_vcpu": {
            name: {"cpu_ms": base.mean_ns / 1e6, "beyond_ms": base.beyond_ns / 1e6}
            for name, base in result.full.items()
        },
        "mape": {name: result.errors(name) for name in result.enforcements()},
        "left_out": dict(result.left_out),
        "sizes": entries,
    }
