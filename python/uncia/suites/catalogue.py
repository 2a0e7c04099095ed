"""The suites that ship with Uncia: a folder each, found by its place, with a file per entry."""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Final, Literal

from uncia import yamlio
from uncia.errors import Mistakes, UnciaError
from uncia.paths import data
from uncia.suites import capacities, emulated
from uncia.suites.expressions import Comparison, Value, parse, parse_value
from uncia.suites.forms import Claim, Entry, EntryRun, Subject
from uncia.suites.forms import Suite as SuiteForm
from uncia.suites.locality import experiments as traced_functions
from uncia.suites.locality import is_locality
from uncia.suites.metrics import Metric
from uncia.suites.simulated import experiments as simulated_experiments
from uncia.suites.simulated import is_simulation
from uncia.suites.traced import experiments as traced_groups
from uncia.suites.traced import is_trace
from uncia.tariffs.catalogue import resolve
from uncia.text import nearest

HEADER: Final = "suite.yaml"

_PLATFORMS: Final = "rows of a platform"

_FOLDER: Final = Path(__file__).resolve().parent


@dataclass(frozen=True)
class _Kind:
    """A kind of run without a platform.

    Attributes:
        plural: what messages call such runs.
        attribute: of an entry, the names of its runs of this kind.
        describes: whether a file is of such a run.
        experiments: what such a file has.
        function: of a metric, what computes it from such a run; None if nothing does.
    """

    plural: str
    attribute: Literal["simulated", "traced", "locality"]
    describes: Callable[[yamlio.Document], bool]
    experiments: Callable[[yamlio.Document], tuple[str, ...]]
    function: Literal["simulate", "profile", "locality"]

    def has(self, entry: SuiteEntry, run: str) -> bool:
        """Whether a run of the entry is of this kind."""
        return run in getattr(entry, self.attribute)

    def measures(self, metric: Metric) -> bool:
        """Whether a metric is one of such runs."""
        return getattr(metric, self.function) is not None


_KINDS: Final = (
    _Kind("simulations", "simulated", is_simulation, simulated_experiments, "simulate"),
    _Kind("traces", "traced", is_trace, traced_groups, "profile"),
    _Kind("traced functions", "locality", is_locality, traced_functions, "locality"),
)


@dataclass(frozen=True)
class SuiteEntry:
    """An entry of a suite, checked.

    Attributes:
        name: of its file, without ``.yaml``.
        form: what the file says.
        document: the file.
        experiments: each of its runs' experiments: name of the run -> names.
        simulated: the runs that are simulations.
        traced: the runs that read a trace.
        locality: the runs that trace functions into predictors or caches.
    """

    name: str
    form: Entry
    document: yamlio.Document
    experiments: Mapping[str, tuple[str, ...]]
    simulated: frozenset[str] = frozenset()
    traced: frozenset[str] = frozenset()
    locality: frozenset[str] = frozenset()

    @property
    def without_platform(self) -> frozenset[str]:
        """The runs whose file is no experiment file."""
        return self.simulated | self.traced | self.locality

    @cached_property
    def subjects(self) -> Mapping[str, Subject]:
        """The subjects that it names, and each of its experiments under its own name."""
        by_name = {
            name: Subject(run=run, experiment=name)
            for run, names in self.experiments.items()
            for name in names
        }
        return {**by_name, **self.form.subjects}

    def run_of(self, subject: Subject) -> str:
        """The run that has a subject's experiment."""
        if subject.run is not None:
            return subject.run
        return next(run for run, names in self.experiments.items() if subject.experiment in names)

    @cached_property
    def claims(self) -> Mapping[str, tuple[Claim, Comparison | None]]:
        """Its claims by id, each with its expression; None for one that cannot be checked here."""
        return {
            f"{self.name}.{name}": (claim, None if claim.claim is None else parse(claim.claim))
            for name, claim in self.form.claims.items()
        }


@dataclass(frozen=True)
class Suite:
    """A suite.

    Attributes:
        name: of its folder.
        source: what `find` finds it by wherever the command runs: its name, or its folder.
        form: what ``suite.yaml`` says.
        entries: by name, in the order of their files.
    """

    name: str
    source: str
    form: SuiteForm
    entries: Mapping[str, SuiteEntry]

    def choose(self, only: Iterable[str]) -> list[SuiteEntry]:
        """The entries of these names; all if there is no name.

        Args:
            only: names, several of them between commas.

        Raises:
            UnciaError: there is no such entry, or a name is empty.
        """
        names = [name.strip() for text in only for name in text.split(",")]
        for name in names:
            if not name:
                raise UnciaError(
                    f"a name of an entry of {self.name} is missing in --only",
                    hint=f"Its entries are {', '.join(self.entries)}; without --only it is all.",
                )
            if name not in self.entries:
                raise UnciaError(
                    f"{self.name} has no entry {name!r}",
                    hint=f"Its entries are {', '.join(self.entries)}.",
                )
        return [entry for name, entry in self.entries.items() if not names or name in names]


def names() -> tuple[str, ...]:
    """The names of all suites, sorted."""
    return tuple(sorted(path.parent.name for path in _FOLDER.glob(f"*/{HEADER}")))


def find(text: str) -> Suite:
    """The suite that is called ``text``, or the one in that folder, if it has a ``/``.

    Raises:
        UnciaError: there is none, or one of its files is wrong; with file, line and key.
    """
    if "/" in text:
        return read(Path(text), str(Path(text).resolve()))
    if text not in names():
        close = nearest(text, names())
        hint = f"Did you mean {close}?" if close else f"The suites are {', '.join(names())}."
        raise UnciaError(f"there is no suite {text!r}", hint=hint)
    return read(_FOLDER / text, text)


def read(folder: Path, source: str) -> Suite:
    """Read and check the suite in a folder.

    Args:
        folder: with ``suite.yaml``.
        source: see `Suite`.

    Raises:
        UnciaError: a file is missing or wrong; all mistakes at once, with file, line and key.
    """
    document = yamlio.load(folder / HEADER)
    form = yamlio.validate(SuiteForm, document)
    entries: dict[str, SuiteEntry] = {}
    mistakes = Mistakes()
    for path in sorted(folder.glob("*.yaml")):
        if path.name != HEADER:
            with mistakes.collect():
                entries[path.stem] = _read_entry(path)
    mistakes.raise_all()
    _check_conclusions(document, form, entries)
    return Suite(folder.resolve().name, source, form, entries)


def _check_conclusions(
    document: yamlio.Document, form: SuiteForm, entries: Mapping[str, SuiteEntry]
) -> None:
    """That there are the claims by which a paper's conclusions are judged.

    Raises:
        UnciaError: with file, line and key.
    """
    known = [name for entry in entries.values() for name in entry.claims]
    for name, conclusion in form.conclusions.items():
        for pattern in conclusion.claims:
            if not fnmatch.filter(known, pattern):
                raise document.error(
                    ("conclusions", name, "claims"), f"no claim is called {pattern}"
                )


def experiment_file(name: str, document: yamlio.Document) -> Path:
    """Where the experiment file of an entry's run is.

    Args:
        name: below the folder ``experiments``, or beside the suite if it begins with ``./``.
        document: the entry's file.
    """
    if name.startswith("./"):
        return Path(document.name).parent / name
    return data("experiments") / name


def _read_entry(path: Path) -> SuiteEntry:
    document = yamlio.load(path)
    form = yamlio.validate(Entry, document)
    experiments, runs = _experiments(document, form)
    entry = SuiteEntry(path.stem, form, document, experiments, **runs)
    mistakes = Mistakes()
    with mistakes.collect():
        _check_kinds(entry)
        _check_pilots(document, form, experiments)
    for name, subject in form.subjects.items():
        with mistakes.collect():
            _check_subject(entry, name, subject)
    for key, text in form.expressions():
        with mistakes.collect():
            _check_value(entry, key, _located(document, key, text))
    for number, figure in enumerate(form.figures):
        with mistakes.collect():
            if figure.course is not None:
                key = ("figures", number, "course", "subject")
                _check_known(entry, key, figure.course.subject)
    for name, claim in form.claims.items():
        if claim.claim is not None:
            with mistakes.collect():
                key = ("claims", name, "claim")
                try:
                    comparison = parse(claim.claim)
                except UnciaError as error:
                    raise document.error(key, error.message, hint=error.hint) from error
                _check_value(entry, key, comparison.value)
    mistakes.raise_all()
    return entry


def _check_kinds(entry: SuiteEntry) -> None:
    """That runs without a platform have nothing that is of those on one."""
    for run in sorted(entry.without_platform):
        for name in ("pilot", "capacity", "listener"):
            if getattr(entry.form.runs[run], name) is not None:
                raise entry.document.error(
                    ("runs", run, name), "this is of runs that send requests to a platform"
                )


def _check_pilots(
    document: yamlio.Document, form: Entry, experiments: Mapping[str, tuple[str, ...]]
) -> None:
    """That pilots are earlier runs with these experiments, and the functions are in the file."""
    earlier: list[str] = []
    for name, run in form.runs.items():
        if run.capacity is not None:
            path = experiment_file(run.file, document)
            capacities.check(document, ("runs", name, "capacity"), run.capacity, path)
        if run.pilot is not None:
            key = ("runs", name, "pilot")
            if run.pilot.run not in earlier:
                raise document.error((*key, "run"), "it is no earlier run", tuple(earlier))
            for role in ("cold", "warm"):
                known = experiments[run.pilot.run]
                if getattr(run.pilot, role) not in known:
                    raise document.error((*key, role), "there is no such experiment", known)
            functions = tuple(yamlio.load(experiment_file(run.file, document)).data["functions"])
            for function in run.pilot.functions:
                if function not in functions:
                    raise document.error(
                        (*key, "functions"), f"no function {function!r}", functions
                    )
        earlier.append(name)


def _experiments(
    document: yamlio.Document, form: Entry
) -> tuple[dict[str, tuple[str, ...]], dict[str, frozenset[str]]]:
    """The experiments of each run's file, and the runs of each kind, as the entry has them.

    A name stands in one of the files alone.
    """
    listed: dict[str, tuple[str, ...]] = {}
    runs: dict[str, frozenset[str]] = {kind.attribute: frozenset() for kind in _KINDS}
    for run, item in form.runs.items():
        path = experiment_file(item.file, document)
        if not path.is_file():
            raise document.error(("runs", run, "file"), f"there is no experiment file {path}")
        described = yamlio.load(path)
        kind = next((kind for kind in _KINDS if kind.describes(described)), None)
        if kind is None:
            listed[run] = _planned(document, run, item, path)
        else:
            runs[kind.attribute] |= {run}
            listed[run] = kind.experiments(described)
        for other, names in listed.items():
            shared = set(names) & set(listed[run])
            if other != run and shared:
                raise document.error(
                    ("runs", run, "file"),
                    f"the experiment {min(shared)} is in the run {other} as well; names of an entry"
                    " are of one experiment each",
                )
    return listed, runs


def _planned(document: yamlio.Document, run: str, item: EntryRun, path: Path) -> tuple[str, ...]:
    """The experiments of an experiment file, without warm-ups."""
    from uncia.experiment import checks
    from uncia.experiment.planning import plan
    from uncia.experiment.sources import Sources

    experiment_document = emulated.expand(yamlio.load(path))
    file = checks.check(experiment_document)
    if item.listener is not None and item.listener not in file.functions:
        raise document.error(
            ("runs", run, "listener"),
            f"{item.file} has no function {item.listener!r}",
            tuple(file.functions),
        )
    planned = plan(file, Sources(experiment_document, path.resolve().parent))
    return tuple(item.name for item in planned.experiments if item.warmup_of is None)


def _experiments_for(entry: SuiteEntry, subject: Subject) -> list[str]:
    """The experiments that a subject may be of."""
    return [
        name
        for run, names in entry.experiments.items()
        if subject.run in (None, run)
        for name in names
    ]


def _check_subject(entry: SuiteEntry, name: str, subject: Subject) -> None:
    key = ("subjects", name)
    if subject.run is not None and subject.run not in entry.experiments:
        raise entry.document.error(
            (*key, "run"), f"there is no run {subject.run!r}", tuple(entry.experiments)
        )
    known = _experiments_for(entry, subject)
    if subject.experiment not in known:
        raise entry.document.error(
            (*key, "experiment"), f"there is no experiment {subject.experiment!r}", known
        )
    run = entry.run_of(subject)
    if run not in entry.without_platform:
        _check_functions(entry, key, subject, run)


def _check_functions(entry: SuiteEntry, key: yamlio.KeyPath, subject: Subject, run: str) -> None:
    """That a subject's functions are in the file of its run."""
    path = experiment_file(entry.form.runs[run].file, entry.document)
    functions = tuple(emulated.expand(yamlio.load(path)).data["functions"])
    named = [("without", name) for name in subject.without]
    if subject.function is not None:
        named.append(("function", subject.function))
    for part, name in named:
        if name not in functions:
            raise entry.document.error((*key, part), f"there is no function {name!r}", functions)


def _located(document: yamlio.Document, key: yamlio.KeyPath, text: str) -> Value:
    try:
        return parse_value(text)
    except UnciaError as error:
        raise document.error(key, error.message, hint=error.hint) from error


def _check_value(entry: SuiteEntry, key: yamlio.KeyPath, value: Value) -> None:
    for term in value.terms:
        if term.metric.is_of_fits:
            known = tuple(entry.form.fits)
            if term.subject not in known:
                raise entry.document.error(key, f"there is no fit {term.subject!r}", known)
            continue
        _check_known(entry, key, term.subject)
        if term.tariff:
            try:
                resolve([term.tariff])
            except UnciaError as error:
                raise entry.document.error(key, error.message, hint=error.hint) from error
        subject = entry.subjects[term.subject]
        if subject.experiment not in _experiments_for(entry, subject):
            # The check of the subject itself reports this.
            continue
        run = entry.run_of(subject)
        of_run = next((kind.plural for kind in _KINDS if kind.has(entry, run)), _PLATFORMS)
        of_metric = next((kind.plural for kind in _KINDS if kind.measures(term.metric)), _PLATFORMS)
        if of_run != of_metric:
            raise entry.document.error(
                key,
                f"{term.metric.name} is a metric of {of_metric}, and {term.subject} is of {of_run}",
            )


def _check_known(entry: SuiteEntry, key: yamlio.KeyPath, subject: str) -> None:
    if subject not in entry.subjects:
        raise entry.document.error(
            key, f"there is no experiment or subject {subject!r}", tuple(entry.subjects)
        )
