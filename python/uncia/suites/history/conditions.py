"""Conditions of a history, before anything is run: each is about something that is carried out."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterator, Sequence
from pathlib import Path

from uncia import yamlio
from uncia.errors import UnciaError
from uncia.experiment import checks, simulation
from uncia.experiment.planning import plan
from uncia.experiment.simulation import SimulationFile
from uncia.experiment.sources import Sources
from uncia.stats import gates
from uncia.suites import left_out, perform
from uncia.suites.catalogue import Suite, SuiteEntry, experiment_file
from uncia.tariffs.catalogue import resolve


def check(
    suite: Suite,
    entries: Sequence[SuiteEntry],
    conditions: Sequence[str],
    tariffs: Sequence[str],
    *,
    quick: bool,
) -> None:
    """Check that each condition is about something that is carried out.

    Args:
        suite: the suite.
        entries: those of it that are carried out.
        conditions: the gates.
        tariffs: ids, of costs.
        quick: whether experiments are shortened.

    Raises:
        UnciaError: a condition is none, or names an experiment or tariff that no time will have.
    """
    parsed = [gates.parse(text) for text in conditions]
    ids = [tariff.id for tariff in resolve(tariffs)]
    for gate in parsed:
        if gate.tariff is not None and not fnmatch.filter(ids, gate.tariff):
            raise UnciaError(
                f"--fail-on {gate.text}: there are no costs under {gate.tariff}",
                hint=f"Costs are under {', '.join(ids)}; add another with --tariff.",
            )
    if all(gate.experiment is None for gate in parsed):
        return
    state = perform.State(Path(), suite.source, quick)
    experiments: list[str] = []
    runs: list[str] = []
    for entry in entries:
        for run in entry.form.runs:
            if not left_out.lacks(entry, run):
                runs.append(f"{entry.name}/{run}")
                names = _experiments(entry, run, perform.run_document(state, entry, run))
                experiments += [f"{entry.name}.{name}" for name in names]
    for gate in parsed:
        known = [*experiments, *runs] if gate.metric == "cost" else experiments
        if gate.experiment is not None and not fnmatch.filter(known, gate.experiment):
            raise UnciaError(
                f"--fail-on {gate.text}: no experiment that is carried out is called"
                f" {gate.experiment}",
                hint=f"They are called {', '.join(known)}.",
            )


def _experiments(entry: SuiteEntry, run: str, document: yamlio.Document) -> Iterator[str]:
    """The names of a run's experiments, as its rows have them."""
    if run in entry.simulated:
        file = yamlio.validate(SimulationFile, document)
        for model in file.models:
            yield from (simulation.experiment(file, model, seed) for seed in file.seeds())
        return
    base = experiment_file(entry.form.runs[run].file, entry.document).resolve().parent
    planned = plan(checks.check(document), Sources(document, base))
    yield from (item.name for item in planned.experiments if item.warmup_of is None)
