"""Carries out the entries of a suite, each run in a folder of its own, and goes on after a kill.

The folder of a suite's results has ``suite.json``, which says what is carried out; ``ENTRY/RUN``
for each run; ``claims.json`` and ``report.html``. A run is whole if its own description says so,
and if it was of the experiment file that there is now. Runs of several entries with the same
experiment file are one, to which the others are links.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

from uncia import yamlio
from uncia.errors import RunFailedError, UnciaError
from uncia.experiment import checks, cleanup, runner
from uncia.experiment.planning import plan
from uncia.experiment.progress import Reporter
from uncia.experiment.runner import Outcome
from uncia.experiment.sources import Sources
from uncia.runs.capacity import FILE as CAPACITY
from uncia.runs.folder import RUN, check_over, check_tables, read_run
from uncia.suites import (
    capacities,
    described,
    emulated,
    left_out,
    links,
    locality,
    pilot,
    simulated,
    traced,
)
from uncia.suites.catalogue import SuiteEntry, experiment_file
from uncia.suites.lacking import without_lacking
from uncia.suites.listener import FILE as HEARD
from uncia.suites.listener import VARIABLE, Listener
from uncia.suites.shorten import shorten
from uncia.suites.target import Target

STATE: Final = "suite.json"
_STATE_FORM: Final = 1
_STATE_KEYS: Final = {"form": int, "suite": str, "quick": bool, "files": dict, "errors": dict}

_UNFINISHED: Final = ""
"""The digest of a run that was begun and is not over."""

_INTERRUPTED: Final = 130
"""128 + SIGINT, as shells report it."""

Status = Literal["whole", "failed", "not run"]


@dataclass(frozen=True)
class RunState:
    """What there is of one run.

    Attributes:
        name: of the run in its entry.
        folder: of the run.
        status: whether its rows can be used.
        reason: why not; "" if they can.
        is_damaged: whether it was carried out, and what it wrote is gone or cannot be read.
    """

    name: str
    folder: Path
    status: Status
    reason: str = ""
    is_damaged: bool = False


@dataclass
class State:
    """``suite.json``.

    Attributes:
        folder: of the results.
        suite: the suite's name, or its folder.
        quick: whether experiments are shortened.
        files: digest of the experiment file that each run (``ENTRY/RUN``) is of; "" while it goes
            on.
        errors: why a run that left no folder could not be carried out.
        target: where it is carried out, if not where its files say.
        trace: the folder with the files of the trace that entries read; None if there are none.
    """

    folder: Path
    suite: str
    quick: bool = False
    files: dict[str, str] = field(default_factory=dict)
    errors: dict[str, str] = field(default_factory=dict)
    target: Target = field(default_factory=Target)
    trace: str | None = None

    def write(self) -> None:
        """Write the file atomically.

        Raises:
            RunFailedError: it cannot be written.
        """
        content = {
            "form": _STATE_FORM,
            "suite": self.suite,
            "quick": self.quick,
            "platform": self.target.platform,
            "like": self.target.like,
            "urls": self.target.urls,
            "trace": self.trace,
            "files": self.files,
            "errors": self.errors,
        }
        write_text(self.folder / STATE, json.dumps(content, indent=2) + "\n")

    @classmethod
    def read(cls, folder: Path) -> State:
        """Read the file.

        Raises:
            UnciaError: it is missing or damaged.
        """
        path = folder / STATE
        if folder.is_file():
            raise UnciaError(f"{folder} is a file, not the folder of a suite's results")
        if not path.exists():
            raise UnciaError(
                f"{folder} has no results of a suite",
                hint="They are made by: uncia suite run SUITE --out DIR",
            )
        content = described.read(path, _STATE_KEYS)
        if content["form"] != _STATE_FORM:
            raise UnciaError(
                f"{path} was written by another version of uncia (form {content['form']})"
            )
        for key in ("files", "errors"):
            for run, value in content[key].items():
                if not isinstance(value, str):
                    raise UnciaError(f"{path} is damaged: {key}, {run} is not a text")
        for key in ("platform", "like", "urls", "trace"):
            if not isinstance(content.get(key), str | None):
                raise UnciaError(f"{path} is damaged: {key} is not a text")
        return cls(
            folder,
            content["suite"],
            content["quick"],
            content["files"],
            content["errors"],
            Target(content.get("platform"), content.get("like"), content.get("urls")),
            content.get("trace"),
        )


def begin(
    folder: Path,
    suite: str,
    *,
    quick: bool,
    resume: bool,
    target: Target | None = None,
    trace: Path | None = None,
) -> State:
    """Make the folder of the results, or take up the results in it.

    Args:
        folder: of the results.
        suite: its name, or its folder.
        quick: whether experiments are shortened.
        resume: whether there may be results.
        target: where it is carried out, if not where its files say.
        trace: the folder with the files of the trace that entries read; without one, what results
            that are taken up are of.

    Raises:
        UnciaError: there is no such trace or platform, or the folder holds something else, or
            results that may not or cannot be taken up.
    """
    target = target or Target()
    target.check()
    if trace is not None and not trace.is_dir():
        raise UnciaError(f"--trace {trace}: there is no such folder")
    files = None if trace is None else str(trace.resolve())
    if (folder / STATE).is_file():
        if not resume:
            raise UnciaError(
                f"{folder} already holds results of a suite",
                hint="Add --resume to go on with them, or choose another folder with --out.",
            )
        state = State.read(folder)
        if (state.suite, state.quick, state.target) != (suite, quick, target):
            mode = f"{'with' if state.quick else 'without'} --quick {state.target}".rstrip()
            raise UnciaError(
                f"{folder} holds results of {state.suite}, run {mode}",
                hint="Resume with the same suite and options, or choose another folder with --out.",
            )
        if files is not None:
            state.trace = files
        return state
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UnciaError(
            f"{folder} is not empty and holds no results of a suite",
            hint="Choose another folder with --out; nothing was deleted.",
        )
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UnciaError(f"cannot write to {folder}: {error.strerror or error}") from error
    state = State(folder, suite, quick, target=target, trace=files)
    state.write()
    return state


def carry_out(
    state: State,
    entries: Sequence[SuiteEntry],
    reporter: Reporter,
    others: Iterable[SuiteEntry] = (),
) -> int | None:
    """Carry out what is not whole yet of some entries.

    A run that fails, or cannot be made, does not keep the others from being carried out.

    Args:
        state: of the results.
        entries: which.
        reporter: receives progress updates.
        others: the suite's other entries; what is whole of them may be shared.

    Returns:
        The exit code of a signal that came; None if all were carried out.

    Raises:
        UnciaError: the folder of the results cannot be written.
    """
    made: dict[str, Path] = {}

    def note_made(entry: SuiteEntry, name: str) -> None:
        if links.is_of_file(entry.form.runs[name]) and _is_whole(state, entry, name):
            digest = state.files[f"{entry.name}/{name}"]
            made.setdefault(digest, state.folder / entry.name / name)

    for entry in others:
        for name in entry.form.runs:
            key = f"{entry.name}/{name}"
            if key in state.files and not (state.folder / entry.name / name).is_symlink():
                note_made(entry, name)
    lacking = _note_left_out(state, entries, reporter)
    for entry in entries:
        for name in entry.form.runs:
            if f"{entry.name}/{name}" in lacking:
                continue
            code = _carry_out_run(state, entry, name, reporter, made)
            if code is not None:
                return code
            note_made(entry, name)
    return None


def _note_left_out(state: State, entries: Iterable[SuiteEntry], reporter: Reporter) -> set[str]:
    """Say which runs cannot be carried out, before the first of the others begins."""
    lacking = {
        f"{entry.name}/{name}": sentence
        for entry in entries
        for name in entry.form.runs
        if (sentence := left_out.lacks(entry, name, state.target))
    }
    for run, sentence in lacking.items():
        reporter.note(f"{run}: {sentence}; left out.")
    if lacking and state.target.platform is not None:
        reporter.note(left_out.WHAT_TO_DO)
    return set(lacking)


def _carry_out_run(
    state: State,
    entry: SuiteEntry,
    name: str,
    reporter: Reporter,
    made: Mapping[str, Path],
) -> int | None:
    """Carry out a run, unless it is whole; returns the exit code of a signal that came.

    Args:
        state: of the results.
        entry: whose run it is.
        name: of the run.
        reporter: receives progress updates.
        made: the folders of runs that are whole, by the digests of their files.
    """
    key = f"{entry.name}/{name}"
    path, document = _document(state, entry, name)
    digest = digest_of(document)
    if state.files.get(key) == digest and _is_whole(state, entry, name):
        reporter.note(f"{key} is whole.")
        return None
    # What is in the folder is of an earlier file until the run is over, and says so after a kill.
    state.files[key] = _UNFINISHED
    state.errors.pop(key, None)
    state.write()
    reporter.note(f"{entry.form.shows}, {key}.")
    folder = state.folder / entry.name / name
    if folder.is_symlink():
        # What it leads to is another entry's.
        folder.unlink()
    try:
        simulated.make_way(document, folder)
        if digest in made and links.is_of_file(entry.form.runs[name]):
            _settle(folder, reporter)
            links.link(folder, made[digest])
            reporter.note(f"Its requests are those of {made[digest]}.")
            state.files[key] = digest
            state.write()
            return None
        if name in entry.simulated:
            simulated.execute(document, folder, reporter, path.resolve().parent)
            state.files[key] = digest
            state.write()
            return None
        if name in entry.traced | entry.locality:
            of_kind = traced if name in entry.traced else locality
            of_kind.execute(document, folder, reporter)
            state.files[key] = digest
            state.write()
            return None
        document = _after_pilot(document, state, entry, name, reporter)
        searched = None
        if (form := entry.form.runs[name].capacity) is not None:
            base = path.resolve().parent
            searched = capacities.of_file(document, form, state.folder, base, reporter)
            document = capacities.scaled(document, form, searched.per_s)
        outcome = _execute(
            document,
            path,
            folder,
            reporter,
            listening=entry.form.runs[name].listener,
        )
        if searched is not None:
            searched.write(folder)
    except KeyboardInterrupt:
        return _INTERRUPTED
    except UnciaError as error:
        state.errors[key] = _sentences(error)
        state.write()
        return None
    state.files[key] = digest
    if outcome.error is not None:
        state.errors[key] = _sentences(outcome.error)
    state.write()
    return outcome.interrupted


def _sentences(error: UnciaError) -> str:
    """What went wrong, and what to do about it."""
    return error.message if error.hint is None else f"{error.message}. {error.hint}"


def _execute(
    document: yamlio.Document,
    path: Path,
    folder: Path,
    reporter: Reporter,
    *,
    listening: str | None,
) -> Outcome:
    """Carry out an experiment file, beside a listener if a function is to be given one.

    Raises:
        UnciaError: the file is wrong, a run goes on in the folder, or nothing could be started.
    """
    _settle(folder, reporter)
    with Listener() if listening is not None else nullcontext() as listener:
        if listener is not None and listening is not None:
            document = _with_listener(document, listening, listener.address)
        sources = Sources(document, path.resolve().parent)
        outcome = runner.execute(
            plan(checks.check(document), sources),
            sources,
            out=folder,
            reporter=reporter,
            overwrite=True,
        )
    if listener is not None:
        listener.write(folder)
    return outcome


def _settle(folder: Path, reporter: Reporter) -> None:
    """End what an earlier run in the folder has left.

    Raises:
        UnciaError: it goes on.
    """
    if folder.exists():
        cleanup.settle(folder, reporter.note)
        check_over(folder)


def _is_whole(state: State, entry: SuiteEntry, name: str) -> bool:
    """Whether a run needs not be made again."""
    run, form = run_state(state, entry.name, name), entry.form.runs[name]
    # What was heard, and the capacity that rates are shares of, are written last.
    needed = {HEARD: form.listener, CAPACITY: form.capacity}
    is_there = all((run.folder / file).is_file() for file, it in needed.items() if it is not None)
    return run.status == "whole" and is_there


def run_state(state: State, entry: str, name: str) -> RunState:
    """What there is of a run of the entry of this name, by its folder."""
    key = f"{entry}/{name}"
    folder = state.folder / entry / name
    if key in state.errors:
        return RunState(name, folder, "failed", state.errors[key])
    if state.files.get(key) == _UNFINISHED:
        return RunState(name, folder, "failed", "it was ended before it was whole")
    if not folder.exists() and key not in state.files:
        return RunState(name, folder, "not run", "it was not run")
    if not folder.is_dir():
        what = "is not a folder" if folder.exists() else "is missing"
        return damaged(name, folder, f"its folder {folder} {what}")
    try:
        lacking = simulated.sweep_lacks(folder)
        description = {} if lacking is not None else read_run(folder)
        check_tables(folder, description)
    except UnciaError as error:
        return damaged(name, folder, error.message)
    if lacking and state.files.get(key):
        # It was whole once: of a point that failed there is a sentence among the errors.
        return damaged(name, folder, lacking)
    if lacking is not None:
        return RunState(name, folder, "failed" if lacking else "whole", lacking)
    if not description:
        return damaged(name, folder, f"{folder / RUN} is missing")
    status = description.get("status")
    if status == "complete":
        return RunState(name, folder, "whole")
    failures = description.get("failures")
    reasons = [str(item) for item in failures] if isinstance(failures, list) else []
    if status == "running":
        reasons = ["it was ended before it was whole"]
    return RunState(name, folder, "failed", "; ".join(reasons) or f"the run is {status}")


def damaged(name: str, folder: Path, why: str) -> RunState:
    """What there is of a run that was carried out, and of which that cannot be read any more."""
    return RunState(name, folder, "failed", f"it is damaged: {why}", is_damaged=True)


def run_now(state: State, entry: SuiteEntry, name: str) -> RunState:
    """What there is of a run of the experiment file that there is now.

    One of another file says nothing of the claims, which may have changed with it.
    """
    run = run_state(state, entry.name, name)
    carried_out = state.files.get(f"{entry.name}/{name}")
    if run.status != "whole" or carried_out is None:
        return run
    _, document = _document(state, entry, name)
    if carried_out == digest_of(document):
        return run
    reason = "it is of an experiment file that has changed since; make it again with --resume"
    return RunState(name, run.folder, "failed", reason)


def write_text(path: Path, text: str) -> None:
    """Write a file atomically.

    Raises:
        RunFailedError: it cannot be written.
    """
    partial = path.with_name(f"{path.name}.partial")
    try:
        with partial.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    except OSError as error:
        partial.unlink(missing_ok=True)
        raise RunFailedError(f"cannot write {path}: {error.strerror or error}") from error


def run_document(state: State, entry: SuiteEntry, name: str) -> yamlio.Document:
    """The file of a run as it is carried out."""
    return _document(state, entry, name)[1]


def _document(state: State, entry: SuiteEntry, name: str) -> tuple[Path, yamlio.Document]:
    """The experiment file of a run, shortened if it is to be quick."""
    run = entry.form.runs[name]
    path = experiment_file(run.file, entry.document)
    if name in entry.simulated:
        document = yamlio.load(path)
        if state.quick:
            shorter = simulated.shorten(document, run.quick.only, run.quick.share)
            document = document.with_data(shorter)
        return path, document
    if name in entry.traced:
        document = traced.with_files(yamlio.load(path), state.trace)
        if state.quick:
            document = document.with_data(traced.shorten(document, run.quick.share))
        return path, document
    if name in entry.locality:
        return path, yamlio.load(path)
    document = yamlio.load(path)
    if emulated.is_emulation(document):
        if state.quick:
            document = document.with_data(emulated.shorten(document, run.quick.share))
        return path, state.target.apply(emulated.expand(document, state.trace))
    document = state.target.apply(document)
    if state.quick:
        quick = run.quick
        shorter = shorten(document.data, quick.only, quick.share, quick.warmup, quick.whole)
        document = document.with_data(shorter)
    return path, without_lacking(document)


def _after_pilot(
    document: yamlio.Document, state: State, entry: SuiteEntry, name: str, reporter: Reporter
) -> yamlio.Document:
    """The experiment file with the timeout that an earlier run of the entry gives, if one does.

    Raises:
        UnciaError: that run gives none.
    """
    form = entry.form.runs[name].pilot
    if form is None:
        return document
    earlier = run_now(state, entry, form.run)
    if earlier.status != "whole":
        raise UnciaError(f"its pilot, {entry.name}/{form.run}, has no result: {earlier.reason}")
    seconds, sentence = pilot.timeout_s(earlier.folder, form)
    reporter.note(sentence)
    return pilot.with_timeout(document, form, seconds)


def _with_listener(document: yamlio.Document, alias: str, address: str) -> yamlio.Document:
    """The file with the listener's address in the variables of a function."""
    functions: Mapping[str, Any] = document.data["functions"]
    function = dict(functions[alias])
    function["environment"] = {**function.get("environment", {}), VARIABLE: address}
    return document.with_data({**document.data, "functions": {**functions, alias: function}})


def digest_of(document: yamlio.Document) -> str:
    """The digest of an experiment file, by which entries share a run."""
    text = json.dumps(document.data, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()
