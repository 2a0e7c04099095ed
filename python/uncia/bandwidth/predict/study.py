"""A whole prediction: durations, bills and advice for a list of sizes, and measured rows."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from uncia.bandwidth import closed_form, cpu_time
from uncia.bandwidth.predict import advice, bill, cpu, invert, measured, model
from uncia.bandwidth.predict.advice import Choice, Instead, Step
from uncia.bandwidth.predict.arrivals import choose
from uncia.bandwidth.predict.bill import Billed
from uncia.bandwidth.predict.cpu import Work, size_words
from uncia.bandwidth.predict.measured import Table
from uncia.bandwidth.predict.model import SHARES, Arrivals, Predicted
from uncia.bandwidth.presets import Preset
from uncia.errors import UnciaError
from uncia.tariffs import Tariff
from uncia.units import MICRO_PER_VCPU, NS_PER_MS

_MAX_MB: Final = 10_240
_MAX_MICRO: Final = 8 * MICRO_PER_VCPU


@dataclass(frozen=True)
class Study:
    """A prediction and its inputs.

    Attributes:
        preset: the platform.
        work: the CPU time.
        arrivals: when requests come.
        predicted: durations, one for each size, ascending.
        equation2_ms: Equation (2) at each size, of the mean duration at one vCPU.
        billed: the bill at each size.
        tariff: the tariff of the bill.
        measured: rows to compare with, if any.
    """

    preset: Preset
    work: Work
    arrivals: Arrivals
    predicted: Sequence[Predicted]
    equation2_ms: Sequence[float]
    billed: Sequence[Billed]
    tariff: Tariff
    measured: Table | None

    @property
    def tolerance(self) -> float:
        """The model's error: means that differ by no more than this share count as equal."""
        return max(advice.SPEED_TOLERANCE, self.preset.error or 0)

    def choices(self) -> list[Choice]:
        """List the sizes that have a price."""
        return [
            Choice(item.size, item.mean_ns / NS_PER_MS, billed.usd_per_million)
            for item, billed in zip(self.predicted, self.billed, strict=True)
            if billed.usd_per_million is not None
        ]

    def steps(self) -> list[Step]:
        """Find minima and maxima of the bill; see `uncia.bandwidth.predict.advice`."""
        return advice.steps(self.choices())

    def ladder(self) -> list[Choice]:
        """List the sizes worth taking, cheapest first."""
        return advice.ladder(self.choices(), self.tolerance)

    def reciprocal_ms(self, size: int) -> float:
        """Compute the duration in inverse proportion to the share."""
        return self.work.reported_ns / NS_PER_MS / min(1.0, float(self.preset.share(size)))

    def instead(self) -> dict[int, Instead]:
        """Map sizes to better ones, where something is saved."""
        choices = self.choices()
        result = zip(choices, advice.instead(choices, self.tolerance), strict=True)
        return {item.size: better for item, better in result if better is not None}

    def rows(self) -> list[dict[str, Any]]:
        """Make an object for each size, for JSON."""
        alternatives, means = self.instead(), self._measured()
        take = {item.size for item in self.ladder()}
        result = []
        for item, equation2, billed in zip(
            self.predicted, self.equation2_ms, self.billed, strict=True
        ):
            mean, better = item.mean_ns / NS_PER_MS, alternatives.get(item.size)
            measured_ms = means.get(item.size)
            result.append(
                {
                    **self.size(item.size),
                    "mean_ms": round(mean, 6),
                    **{
                        f"p{share * 100:g}_ms": round(value / NS_PER_MS, 6)
                        for share, value in zip(SHARES, item.quantiles_ns(), strict=True)
                    },
                    "reciprocal_ms": round(self.reciprocal_ms(item.size), 6),
                    "equation2_ms": round(equation2, 6),
                    "overallocation": round(self.reciprocal_ms(item.size) / mean, 6),
                    "billed_ms": billed.time_ms,
                    "cost_usd_per_million": billed.usd_per_million,
                    "fee_usd_per_million": billed.fee_usd_per_million,
                    "worth_taking": item.size in take,
                    "instead": None if better is None else self.size_number(better.size),
                    "instead_saves": None if better is None else round(better.saves, 6),
                    "model_error": self.preset.error_at(item.size),
                    "measured_mean_ms": measured_ms,
                    "error": None if measured_ms is None else round(mean / measured_ms - 1, 6),
                }
            )
        return result

    def size(self, size: int) -> dict[str, int | float]:
        """Make the key and number of a size in JSON."""
        return {"memory_mb" if self.preset.by_memory else "vcpu": self.size_number(size)}

    def size_number(self, size: int) -> int | float:
        """MB or vCPU."""
        return size if self.preset.by_memory else size / MICRO_PER_VCPU

    def errors(self) -> list[tuple[int, float, float, float]]:
        """Compute relative errors at measured sizes below one vCPU.

        Returns (size, error of the prediction, of Equation (2), of the reciprocal).
        """
        means = self._measured()
        result = []
        for item, equation2 in zip(self.predicted, self.equation2_ms, strict=True):
            measured_ms = means.get(item.size)
            if measured_ms is None or item.size >= self.preset.whole:
                continue
            result.append(
                (
                    item.size,
                    item.mean_ns / NS_PER_MS / measured_ms - 1,
                    equation2 / measured_ms - 1,
                    self.reciprocal_ms(item.size) / measured_ms - 1,
                )
            )
        return result

    def notes(self) -> list[str]:
        """Write what a reader must know of the figures."""
        notes = [f"Requests come {self.arrivals.words}.", *self.work.notes]
        errors = self.errors()
        if errors:
            shares = [sum(abs(row[index]) for row in errors) / len(errors) for index in (1, 2, 3)]
            notes.append(
                f"Against {len(errors)} measured sizes below one vCPU the mean duration is off by"
                f" {shares[0]:.1%} on average; Equation (2) by {shares[1]:.1%}, the reciprocal by"
                f" {shares[2]:.1%}."
            )
        if self.preset.error is None:
            notes.append(
                f"There is no published measurement of {self.preset.title}, so the error of the"
                " model is unknown."
            )
        else:
            notes.append(
                f"On published measurements of {self.preset.title} the mean duration was off by"
                f" {self.preset.error:.1%} on average; durations closer than {self.tolerance:.1%}"
                " count as equal in the advice."
            )
        why = {bill.why_not for bill in self.billed if bill.why_not is not None}
        notes += [
            f"Not every size has a price at {self.tariff.id}: {reason}." for reason in sorted(why)
        ]
        return notes

    def _measured(self) -> dict[int, float]:
        if self.measured is None:
            return {}
        return {row.size: row.mean_ns / NS_PER_MS for row in self.measured.rows}


def study(
    preset: Preset,
    cpu_text: str,
    sizes: Sequence[int],
    tariff: Tariff,
    *,
    arrivals: str | None = None,
    compare: Path | None = None,
    function: str | None = None,
    samples: int = model.SAMPLES,
    seed: int = 0,
) -> Study:
    """Predict durations and bills.

    Args:
        preset: the platform.
        cpu_text: a distribution of CPU time, or the path of a measured table or run.
        sizes: MB or micro-vCPU, ascending.
        tariff: the tariff of the bill.
        arrivals: ``random``, ``closed``, or ``closed:TIME``; by default as a run's rows tell, as
            a measured table was driven if the time between requests is known, and at random else.
        compare: a measured table to compare with; by default the one that the CPU time is from.
        function: the one of a run whose invocations count; needed if there are several.
        samples: invocations at each size.
        seed: of the random numbers.

    Raises:
        UnciaError: one of them is wrong.
    """
    _check(preset, sizes)
    path = Path(cpu_text)
    is_run = _is_table(path) and path.suffix != ".csv"
    if function is not None and not is_run:
        raise UnciaError(
            "--function names one of a run's, and --cpu-time is no run", "Leave out --function."
        )
    table = measured.read(path, preset, function) if _is_table(path) else None
    requests = choose(preset, arrivals, None if table is None else path, function)
    if table is None:
        distribution = cpu.parse(cpu_text)
        if distribution.points[0][0] <= 0:
            raise UnciaError("--cpu-time: a task of 0 ns needs no prediction")
        work = Work(distribution, "given", float(distribution.mean) + preset.outside_ns)
    else:
        work = cpu.from_full(table, preset) or invert.inverted(table, preset, requests)
    predicted = model.predict(preset, work.cpu, sizes, requests, samples=samples, seed=seed)
    compared = table if compare is None else measured.read(compare, preset, function)
    return Study(
        preset,
        work,
        requests,
        predicted,
        _equation2(preset, work, sizes),
        bill.billed(preset, predicted, tariff),
        tariff,
        compared,
    )


def _is_table(path: Path) -> bool:
    """Whether a path is a table of measurements by size, not a list of CPU times."""
    if path.is_dir() or path.suffix in (".parquet", ".arrows"):
        return True
    if path.suffix != ".csv":
        return False
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            head = [name.strip() for name in next(csv.reader(file), [])]
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is no text in UTF-8"
        raise UnciaError(f"--cpu-time: cannot read {path}: {why}") from error
    # A list of CPU times begins with a number.
    return not head or not head[0][:1].isdigit()


def _check(preset: Preset, sizes: Sequence[int]) -> None:
    smallest, largest = preset.platform.min_size, _MAX_MB if preset.by_memory else _MAX_MICRO
    option = "--memory" if preset.by_memory else "--vcpu"
    for size in sizes:
        if not smallest <= size <= largest:
            raise UnciaError(
                f"{option}: {preset.title} has no size of {size_words(preset, size)}",
                f"Its sizes are {size_words(preset, smallest)} to {size_words(preset, largest)}.",
            )


def _equation2(preset: Preset, work: Work, sizes: Sequence[int]) -> list[float]:
    period = preset.platform.period_ns
    controls = [closed_form.control_of_quota(period, preset.quota_ns(size)) for size in sizes]
    need = cpu_time.constant(round(work.reported_ns))
    return [float(row.mean_ns) / NS_PER_MS for row in closed_form.sweep(controls, need)]
