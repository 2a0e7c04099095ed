"""What of a suite cannot be carried out: on this machine, or on the platform that is named."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from uncia import yamlio
from uncia.errors import UnciaError
from uncia.experiment import checks
from uncia.experiment.planning import plan
from uncia.experiment.sources import Sources
from uncia.suites import emulated, locality, urls
from uncia.suites.catalogue import SuiteEntry, experiment_file
from uncia.suites.lacking import of_experiments, of_file, of_machine, without_lacking
from uncia.suites.target import Target

WHAT_TO_DO: Final = (
    "Such an entry is carried out where its file says, without --platform; or copy the file, change"
    " what is named, and `uncia run` the copy."
)
_MOST_SHOWN: Final = 3
_AS_FILES_SAY: Final = Target()


def check_served(entries: Iterable[SuiteEntry], target: Target) -> None:
    """Check that the platform which is named, if any, serves anything of some entries.

    Raises:
        UnciaError: there is no such platform, or it serves none of their runs: with the reasons.
    """
    target.check()
    if target.platform is not None:
        runs = [(entry, name) for entry in entries for name in entry.form.runs]
        refused = {f"{entry.name}/{name}": _refusal(entry, name, target) for entry, name in runs}
        _check_some(refused, target.platform)


def lacks(entry: SuiteEntry, name: str, target: Target = _AS_FILES_SAY) -> str:
    """What a run of an entry lacks on this machine and this platform, a sentence; "" if nothing."""
    lacking = of_machine(entry.form.needs)
    path = experiment_file(entry.form.runs[name].file, entry.document)
    if not lacking and name in entry.locality:
        return locality.lacks(yamlio.load(path))
    if lacking or name in entry.without_platform:
        return lacking
    return of_file(_for_target(entry, name, target)) or _refusal(entry, name, target)


def _refusal(entry: SuiteEntry, name: str, target: Target) -> str:
    """What the platform that is named does not take of a run's file; "" if it takes all of it."""
    if target.platform is None or name in entry.without_platform:
        return ""
    document = _for_target(entry, name, target)
    if urls.are_needed(document.data):
        lacking = of_experiments(document)
        if all(lacking.values()):
            return "; ".join(dict.fromkeys(lacking.values()))
    return _refusal_of(without_lacking(document), target.platform)


def _for_target(entry: SuiteEntry, name: str, target: Target) -> yamlio.Document:
    """The whole experiment file of a run on a platform, for that platform."""
    path = experiment_file(entry.form.runs[name].file, entry.document)
    return target.apply(emulated.expand(yamlio.load(path)))


def lacks_by_experiment(
    entry: SuiteEntry, name: str, target: Target = _AS_FILES_SAY
) -> dict[str, str]:
    """What each experiment of a run lacks here, as a sentence; "" if nothing."""
    lacking = lacks(entry, name, target)
    names = entry.experiments[name]
    if lacking or name in entry.without_platform:
        return dict.fromkeys(names, lacking)
    by_name = of_experiments(_for_target(entry, name, target))
    # Members of sweeps have longer names, and what neighbours are compared with ends in another.
    stems = sorted(by_name, key=len, reverse=True)
    return {it: next((by_name[stem] for stem in stems if it.startswith(stem)), "") for it in names}


def _refusal_of(document: yamlio.Document, kind: str) -> str:
    """What the platform does not take of an experiment file; "" if it takes all of it.

    Args:
        document: the file, already for that platform.
        kind: of the platform.

    Returns:
        A sentence with file, line and key of each thing, of the first few.
    """
    try:
        plan(checks.check(document), Sources(document, Path(document.name).resolve().parent))
    except UnciaError as error:
        lines = error.message.splitlines()
        more = len(lines) - _MOST_SHOWN
        shown = "; ".join(lines[:_MOST_SHOWN]) + (f"; and {more} more" if more > 0 else "")
        return f"the platform {kind} cannot serve it: {shown}"
    return ""


def _check_some(refused: Mapping[str, str], kind: str) -> None:
    """Check that anything can be carried out at all.

    Args:
        refused: by run, why the platform does not serve it; "" where it does.
        kind: of the platform.

    Raises:
        UnciaError: the platform serves none of the runs.
    """
    if refused and all(refused.values()):
        lines = [f"{run}: {sentence}" for run, sentence in refused.items()]
        raise UnciaError(
            "\n".join([f"--platform {kind}: nothing of this can be carried out", *lines]),
            hint=WHAT_TO_DO,
        )
