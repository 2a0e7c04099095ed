"""Runs two experiment files in turn, several times each, so that their runs can be compared.

The two runs of a pair stand next to each other in time, so that what changes slowly (the machine's
clock, a neighbour that comes and goes) changes for both. Which of the two comes first alternates,
so that being first is no advantage; which comes first in the first pair is drawn from the seed.
Both runs of a pair have one seed, each pair its own: both sides see the same requests, and the
verdict is not one about a single schedule.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final, Literal

from uncia.errors import UnciaError
from uncia.experiment import runner
from uncia.experiment.plan import ExperimentPlan, Plan
from uncia.experiment.progress import Reporter, sends
from uncia.experiment.runner import Outcome
from uncia.experiment.sources import Sources
from uncia.runs.folder import RUN, check_over
from uncia.stats.gates import Gate

Name = Literal["base", "change"]
SIDES: Final[tuple[Name, Name]] = ("base", "change")

_INTERRUPTED: Final = 130
"""128 + SIGINT, as shells report it."""


@dataclass(frozen=True)
class Side:
    """What is run for one side."""

    plan: Plan
    sources: Sources


@dataclass
class Repeats:
    """The runs of both sides.

    Attributes:
        outcomes: by side, in the order in which they were run.
        interrupted: the exit code, when a signal ended them early.
        error: what stopped them, if something did.
    """

    outcomes: Mapping[Name, list[Outcome]] = field(
        default_factory=lambda: {name: [] for name in SIDES}
    )
    interrupted: int | None = None
    error: UnciaError | None = None

    @property
    def failures(self) -> list[str]:
        """A sentence for each run whose requests ended other than declared."""
        return [
            f"{outcome.folder}: {'; '.join(outcome.failures)}"
            for name in SIDES
            for outcome in self.outcomes[name]
            if outcome.failures
        ]


def order(repeats: int, seed: int) -> Iterator[tuple[Name, int]]:
    """The runs in their order: (side, number of the pair from 1)."""
    first = random.Random(seed).randrange(2)
    for pair in range(repeats):
        start = (first + pair) % 2
        yield SIDES[start], pair + 1
        yield SIDES[1 - start], pair + 1


def check(base: Plan, change: Plan, gates: Sequence[Gate]) -> None:
    """Check that two plans can be compared by conditions.

    Raises:
        UnciaError: they have no experiment in common, one sends other requests, or a condition
            names none that both have.
    """
    plans = [_results(plan) for plan in (base, change)]
    common = [name for name in plans[0] if name in plans[1]]
    if not common:
        names = " and ".join(", ".join(plan) for plan in plans)
        raise UnciaError(
            f"the two files have no experiment in common ({names}), so there is nothing to compare",
            hint="A gate runs the same experiments on two versions of a function.",
        )
    for name in common:
        before, after = (_load(plan[name]) for plan in plans)
        if before != after:
            raise UnciaError(
                f"experiment {name} sends {before} in BASE, but {after} in CHANGE",
                hint="A gate compares functions under the same load; let both files send the same.",
            )
    for gate in gates:
        if gate.experiment is not None and not any(
            fnmatchcase(name, gate.experiment) for name in common
        ):
            raise UnciaError(
                f"{gate.text}: there is no experiment {gate.experiment} in both files",
                hint=f"Both have {', '.join(common)}.",
            )


def interleave(
    sides: Mapping[Name, Side],
    *,
    repeats: int,
    seed: int,
    out: Path,
    reporter: Reporter,
    overwrite: bool = False,
) -> Repeats:
    """Run both sides in turn, without a report for each run.

    Args:
        sides: what to run.
        repeats: runs of each side.
        seed: of the first pair; each later pair has the next.
        out: the folder; run 1 of the base is ``base/01`` in it.
        reporter: receives progress updates.
        overwrite: runs of an earlier gate in ``out`` may be deleted.

    Returns:
        What was run: fewer than asked for when a run could not be carried out, or a signal came.
        Requests that fail do not stop it.

    Raises:
        UnciaError: ``out`` holds runs that may not be deleted.
    """
    _make_room(out, overwrite)
    result = Repeats()
    width = max(2, len(str(repeats)))
    for number, (name, pair) in enumerate(order(repeats, seed), 1):
        reporter.note(f"Run {number} of {2 * repeats}: {name} {pair}.")
        try:
            outcome = runner.execute(
                sides[name].plan,
                sides[name].sources,
                out=out / name / f"{pair:0{width}d}",
                reporter=reporter,
                seed=seed + pair - 1,
                with_report=False,
            )
        except KeyboardInterrupt:
            result.interrupted = _INTERRUPTED
            return result
        except UnciaError as error:
            result.error = error
            return result
        result.interrupted = outcome.interrupted
        result.error = outcome.error
        if outcome.interrupted is not None or outcome.error is not None:
            return result
        result.outcomes[name].append(outcome)
    return result


def _results(plan: Plan) -> dict[str, ExperimentPlan]:
    """The experiments that are results, by name."""
    return {item.name: item for item in plan.experiments if item.warmup_of is None}


def _load(experiment: ExperimentPlan) -> str:
    """What is sent to whom and when, in words that differ if the requests do."""
    stages = [stream.stage for stream in experiment.streams if stream.stage is not None]
    return sends(experiment) + (f" (stages {', '.join(stages)})" if stages else "")


def _make_room(out: Path, overwrite: bool) -> None:
    """Delete the runs of an earlier gate, if they may be."""
    if out.exists() and not out.is_dir():
        raise UnciaError(f"{out} is a file; the runs of a gate are written to a folder")
    folders = [
        folder for name in SIDES if (out / name).is_dir() for folder in (out / name).iterdir()
    ]
    if not folders:
        return
    if not overwrite:
        raise UnciaError(
            f"{out} already holds runs of a gate",
            hint="Choose another folder with --out, or add --overwrite to replace them.",
        )
    for folder in folders:
        if not (folder / RUN).exists():
            raise UnciaError(
                f"{folder} is not a run", hint="Choose another folder; nothing was deleted."
            )
        check_over(folder)
    for folder in folders:
        shutil.rmtree(folder)
