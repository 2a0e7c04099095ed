"""Results of a suite: what each entry's runs say about its claims, from their rows alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Final

from uncia.errors import RunFailedError, UnciaError
from uncia.report import data, run_sets
from uncia.report.data import RunData
from uncia.stats import columns
from uncia.stats.columns import pc
from uncia.stats.comparison import Figure
from uncia.suites import claims, fits
from uncia.suites.catalogue import Suite, SuiteEntry
from uncia.suites.claims import DIFFERS, UNCHECKED, Finding, Measured
from uncia.suites.expressions import Comparison, Term, parse_value
from uncia.suites.forms import Claim
from uncia.suites.left_out import lacks_by_experiment
from uncia.suites.locality import Line, lines
from uncia.suites.metrics import Population, chains
from uncia.suites.perform import (
    RunState,
    State,
    damaged,
    run_document,
    run_now,
    write_text,
)
from uncia.suites.rows import SubjectRows
from uncia.suites.seeds import over_seeds
from uncia.suites.simulated import Simulated, SimulatedRows
from uncia.suites.target import Target
from uncia.suites.traced import TracedGroup, groups

CLAIMS = "claims.json"

_MOST_FAILED: Final = 0.1
"""If more than this part of the requests failed, figures are those of the survivors."""


@dataclass(frozen=True)
class EntryResults:
    """An entry with its runs.

    Attributes:
        entry: the entry.
        runs: what there is of each.
        tables: the contents of the runs on a platform that are whole, by name.
        simulations: the simulations that are whole, by name.
        traces: the groups of functions of the traces that were read, by name of the run.
        traced_functions: what became of the functions that were traced, by name of the run.
        target: where the runs are carried out, if not where their files say.
    """

    entry: SuiteEntry
    runs: list[RunState] = field(default_factory=list)
    tables: dict[str, RunData] = field(default_factory=dict)
    simulations: dict[str, Simulated] = field(default_factory=dict)
    traces: dict[str, Mapping[str, TracedGroup]] = field(default_factory=dict)
    traced_functions: dict[str, Mapping[str, Sequence[Line]]] = field(default_factory=dict)
    target: Target = field(default_factory=Target)

    @classmethod
    def read(cls, state: State, entry: SuiteEntry) -> EntryResults:
        """Read what there is of an entry's runs; of one that cannot be read there is that."""
        results = cls(entry, target=state.target)
        for name in entry.form.runs:
            run = run_now(state, entry, name)
            if run.status == "whole":
                try:
                    results._read_run(state, run)
                except UnciaError as error:
                    run = damaged(name, run.folder, error.message)
            results.runs.append(run)
        return results

    def _read_run(self, state: State, run: RunState) -> None:
        """Read a run that is whole by its description.

        Raises:
            UnciaError: it is damaged.
        """
        if run.name not in self.entry.without_platform:
            self.tables[run.name] = data.load(run.folder)
            return
        document = run_document(state, self.entry, run.name)
        if run.name in self.entry.simulated:
            simulation = Simulated(run.folder, document)
            simulation.check()
            self.simulations[run.name] = simulation
        elif run.name in self.entry.traced:
            self.traces[run.name] = groups(document, run.folder)
        else:
            self.traced_functions[run.name] = lines(document, run.folder)

    @property
    def damaged(self) -> list[str]:
        """A sentence for each run of which results are gone or cannot be read."""
        return [f"{run.name}: {run.reason}" for run in self.runs if run.is_damaged]

    @property
    def is_drawn(self) -> bool:
        """Whether a run is whole, so that there is something to draw."""
        return any(run.status == "whole" for run in self.runs)

    @property
    def was_not_run(self) -> bool:
        """Whether it has runs, and none of them was made."""
        return bool(self.runs) and all(run.status == "not run" for run in self.runs)

    @property
    def failures(self) -> list[str]:
        """A sentence for each run that failed."""
        return [f"{run.name}: {run.reason}" for run in self.runs if run.status == "failed"]

    @cached_property
    def noise(self) -> str:
        """What disturbed the machine while the runs went on; "" if nothing did."""
        return run_sets.disturbance(list(self.tables.values()))

    def subject(self, name: str) -> SubjectRows | None:
        """The rows of a subject; None if its run is not whole."""
        form = self.entry.subjects[name]
        of = self.entry.run_of(form)
        if of not in self.tables:
            return None
        if name not in self._subjects:
            is_scaled = self.entry.form.runs[of].capacity is not None
            self._subjects[name] = SubjectRows(name, form, self.tables[of], is_scaled)
        return self._subjects[name]

    @cached_property
    def _subjects(self) -> dict[str, SubjectRows]:
        return {}

    def figure(self, term: Term) -> Figure:
        """The figure of a term of an expression, computed once."""
        if term not in self._figures:
            self._figures[term] = self._compute(term)
        return self._figures[term]

    @cached_property
    def _figures(self) -> dict[Term, Figure]:
        return {}

    def _compute(self, term: Term) -> Figure:
        if term.metric.is_of_fits:
            points = self.entry.form.fits[term.subject].points()
            parsed = [(parse_value(x), parse_value(y)) for x, y in points]
            return fits.exponent(term.subject, parsed, self.figure)
        form = self.entry.subjects[term.subject]
        run = self.entry.run_of(form)
        state = next(state for state in self.runs if state.name == run)
        if state.status == "failed":
            return Figure(None, why=f"the run {run} failed: {state.reason}")
        if state.status == "not run":
            return Figure(None, why=self._lacking(run, form.experiment) or "not run")
        if run in self.simulations:
            return self._simulated(term, self.simulations[run])
        if run in self.traces:
            assert term.metric.profile is not None, "expressions were checked"
            return term.metric.profile(self.traces[run][form.experiment])
        if run in self.traced_functions:
            assert term.metric.locality is not None, "expressions were checked"
            values = map(term.metric.locality, self.traced_functions[run][form.experiment])
            return over_seeds(list(values), geometric=term.metric.is_geometric)
        rows = self.subject(term.subject)
        assert rows is not None, "its run is whole"
        assert term.metric.compute is not None, "expressions were checked"
        if form.experiment not in rows.run.experiments:
            lacking = self._lacking(run, form.experiment)
            return Figure(
                None, why=lacking or f"not run: {form.experiment} is left out with --quick"
            )
        return term.metric.compute(rows, term.tariff)

    def _simulated(self, term: Term, run: Simulated) -> Figure:
        """The figure of a term over the seeds of a simulation."""
        form = self.entry.subjects[term.subject]
        if term.subject not in self._simulated_subjects:
            self._simulated_subjects[term.subject] = run.subject(term.subject, form.experiment)
        seeds = self._simulated_subjects[term.subject]
        if seeds is None:
            return Figure(None, why=f"not run: {form.experiment} is left out with --quick")
        assert term.metric.simulate is not None, "expressions were checked"
        return over_seeds(term.metric.simulate(seeds), geometric=term.metric.is_geometric)

    @cached_property
    def _simulated_subjects(self) -> dict[str, SimulatedRows | None]:
        return {}

    def lacks(self, text: str) -> str:
        """What an expression lacks here, as a sentence; "" if nothing."""
        forms = [self.entry.subjects[term.subject] for term in parse_value(text).terms]
        sentences = (self._lacking(self.entry.run_of(it), it.experiment) for it in forms)
        return next((it for it in sentences if it), "")

    def _lacking(self, run: str, experiment: str) -> str:
        if run not in self._lacking_of_runs:
            self._lacking_of_runs[run] = lacks_by_experiment(self.entry, run, self.target)
        return self._lacking_of_runs[run].get(experiment, "")

    @cached_property
    def _lacking_of_runs(self) -> dict[str, Mapping[str, str]]:
        return {}

    def measure(self, text: str) -> Measured:
        """The value of an expression, with its interval."""
        return claims.measure(parse_value(text), self.figure)

    @cached_property
    def findings(self) -> list[Finding]:
        """A verdict for each claim."""
        return [
            self._find(identifier, claim, comparison)
            for identifier, (claim, comparison) in self.entry.claims.items()
        ]

    def _find(self, identifier: str, claim: Claim, comparison: Comparison | None) -> Finding:
        paper = f"{claim.paper} ({claim.place})"
        if comparison is None:
            why = claim.unavailable or ""
            return Finding(identifier, self.entry.name, paper, None, None, UNCHECKED, why)
        measured = claims.measure(comparison.value, self.figure)
        verdict, why = claims.judge(comparison, measured)
        subjects = [term.subject for term in self._terms(comparison)]
        if verdict == DIFFERS and claim.otherwise:
            why = f"{why}; {claim.otherwise}"
        if verdict != UNCHECKED and (survivors := self._survivors(comparison)):
            verdict = UNCHECKED
            why = f"{survivors}: {why}"
        if measured.value is not None and self._is_synthetic(subjects):
            verdict = UNCHECKED
            why = (
                f"of a synthetic trace, shown and not judged (--trace DIR reads a real one): {why}"
            )
        if measured.value is not None and not all(
            claim.only_on in (None, self._platform(subject)) for subject in subjects
        ):
            verdict = UNCHECKED
            why = f"times of {claim.only_on} itself, shown and not judged elsewhere: {why}"
        if self.noise and claim.quiet and verdict != UNCHECKED:
            verdict = UNCHECKED
            why = f"it needs a quiet machine: {why}"
        if self.noise and measured.value is not None:
            why = f"{why}; noisy machine: {self.noise}"
        return Finding(
            identifier, self.entry.name, paper, measured.value, measured.interval, verdict, why
        )

    def _is_synthetic(self, subjects: Sequence[str]) -> bool:
        """Whether one of these is of functions that were made."""
        forms = [self.entry.subjects[subject] for subject in subjects]
        return any(
            self.traces[run][form.experiment].is_synthetic
            for form in forms
            if (run := self.entry.run_of(form)) in self.traces
        )

    def _platform(self, subject: str) -> str | None:
        """The kind of platform that a subject's run was on; None if it does not say so."""
        run = self.tables.get(self.entry.run_of(self.entry.subjects[subject]))
        platform = None if run is None else run.meta.get("platform")
        return str(platform.get("kind")) if isinstance(platform, dict) else None

    def _terms(self, comparison: Comparison) -> list[Term]:
        """The terms of a claim; of a power law, those of its points."""
        terms: list[Term] = []
        for term in comparison.value.terms:
            if term.metric.is_of_fits:
                points = self.entry.form.fits[term.subject].points()
                terms += [
                    it for point in points for text in point for it in parse_value(text).terms
                ]
            else:
                terms.append(term)
        return terms

    def _survivors(self, comparison: Comparison) -> str:
        """Why what is left of requests is no sample of them; "" if it is, or all of them count."""
        for term in self._terms(comparison):
            if term.metric.kind == "share" or term.metric.counts_all:
                continue
            sent, ok, what = self._counts(term.subject, term.metric.of)
            if sent - ok > _MOST_FAILED * sent:
                return f"{sent - ok:,} of {sent:,} {what}, and are in no figure"
        return ""

    def _counts(self, subject: str, of: Population) -> tuple[int, int, str]:
        """How many of what a figure is of were sent and served, and what became of the others."""
        if (seeds := self._simulated_subjects.get(subject)) is not None:
            arrived, served = (
                sum(int(values[name]) for values in seeds.values) for name in ("arrived", "served")
            )
            return arrived, served, f"requests of {subject} were lost, rejected or unfinished"
        rows = self.subject(subject)
        if rows is None:
            return 0, 0, ""
        failed = f"requests of {subject} failed"
        if of == "complete" and (kinds := rows.once(chains.kinds)):
            begun, complete = sum(it.begun for it in kinds), sum(len(it.parts) for it in kinds)
            return begun, complete, f"chains of {subject} failed"
        if of != "rows":
            # Hops that went well do not make up for a request that did not.
            is_ok = columns.is_word(rows.requests, "outcome", "ok")
            if of == "chains":
                is_ok = pc.invert(rows.once(chains.failures))
            return rows.requests.num_rows, int(pc.sum(is_ok).as_py() or 0), failed
        # What became of a request whose attempt was preempted, the next attempt's row says.
        sent = rows.invocations.filter(pc.invert(columns.is_preempted(rows.invocations)))
        return sent.num_rows, rows.ok.num_rows, failed


@dataclass(frozen=True)
class Results:
    """The results of a suite.

    Attributes:
        folder: where they are.
        suite: the suite.
        quick: whether its experiments were shortened.
        entries: those of the suite, in order.
    """

    folder: Path
    suite: Suite
    quick: bool
    entries: Sequence[EntryResults]

    @property
    def findings(self) -> list[Finding]:
        """A verdict for each claim of each entry."""
        return [finding for entry in self.entries for finding in entry.findings]

    @property
    def failures(self) -> list[str]:
        """A sentence for each run that failed."""
        return [
            f"{entry.entry.name}/{sentence}"
            for entry in self.entries
            for sentence in entry.failures
        ]

    def check_undamaged(self, but: Sequence[SuiteEntry] = ()) -> None:
        """Check that all that was carried out can be read, so that nothing is judged by less.

        Args:
            but: entries that were just carried out: what is wrong with those has failed.

        Raises:
            RunFailedError: it cannot.
        """
        just_made = {entry.name for entry in but}
        lost = [
            f"{entry.entry.name}/{sentence}"
            for entry in self.entries
            if entry.entry.name not in just_made
            for sentence in entry.damaged
        ]
        if lost:
            raise RunFailedError(
                "\n".join(lost) + f"\n{self.folder} is left as it is: {CLAIMS} and the report are"
                " of what there was",
                hint="To carry such a run out again, delete its folder, then: uncia suite run"
                f" {self.suite.source}{self._options()} --resume --out {self.folder}",
            )

    def _options(self) -> str:
        """The options without which the results are not gone on with."""
        target = next((str(entry.target) for entry in self.entries), "")
        words = [*(["--quick"] if self.quick else []), *([target] if target else [])]
        return "".join(f" {word}" for word in words)

    def write_claims(self) -> Path:
        """Write ``claims.json``.

        Raises:
            RunFailedError: it cannot be written.
        """
        path = self.folder / CLAIMS
        write_text(path, claims.as_json(self.findings))
        return path


def read(state: State, suite: Suite) -> Results:
    """Read the results of a suite as far as they go; runs that are damaged have failed."""
    entries = [EntryResults.read(state, entry) for entry in suite.entries.values()]
    return Results(state.folder, suite, state.quick, entries)
