"""CPUs that functions of an experiment file name: they are there, and the platform allows it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any, Final

from uncia import yamlio
from uncia.errors import Mistakes, UnciaError
from uncia.experiment.model import ExperimentFile, Settings
from uncia.settings.form import numbers

_KIND: Final = "embedded"
_HERE: Final = (_KIND, "docker")
"""Platforms on this machine whose functions may name CPUs."""
_SHARED: Final = (None, "unmanaged")


def all_settings(file: ExperimentFile) -> Iterator[tuple[yamlio.KeyPath, Settings]]:
    """Every place of a file at which functions have settings, with those."""
    for alias, function in file.functions.items():
        yield ("functions", alias), function
    for name, experiment in file.experiments.items():
        for index, stream in enumerate(experiment.streams()):
            at: yamlio.KeyPath = ("experiments", name)
            yield (
                (*at, "mix", index, "settings") if experiment.mix else (*at, "settings"),
                (stream.settings),
            )
    for name, chain in file.chains.items():
        for stage, form in chain.stages.items():
            yield ("chains", name, "stages", stage, "settings"), form.settings


def require(cpus: str) -> None:
    """Check that these CPUs are here.

    Raises:
        UnciaError: one is not.
    """
    there = sorted(os.sched_getaffinity(0))
    missing = [cpu for cpu in numbers(cpus) if cpu not in there]
    if missing:
        raise UnciaError(
            f"there is no CPU {missing[0]} here: this process may run on"
            f" {', '.join(map(str, there))}"
        )


def check(document: yamlio.Document, file: ExperimentFile) -> None:
    """Check that the CPUs which a file names are here, where its platform is.

    Raises:
        UnciaError: one is not; with file, line and key.
    """
    if file.platform.kind not in _HERE:
        return
    mistakes = Mistakes()
    for at, settings in all_settings(file):
        named = settings.declared().get("cpus")
        with mistakes.collect():
            try:
                if named is not None:
                    require(str(named))
            except UnciaError as error:
                raise document.error((*at, "cpus"), error.message) from error
    mistakes.raise_all()


def allowed(document: yamlio.Document, file: ExperimentFile) -> ExperimentFile:
    """Return the file with a platform that lets functions name their CPUs, where one does.

    Raises:
        UnciaError: the platform is told to divide them otherwise; with file, line and key.
    """
    if file.platform.kind != _KIND:
        return file
    platform: Any = file.platform
    names_cpus = False
    for at, settings in all_settings(file):
        declared = settings.declared()
        for key in ("cpus", "cpu_shares"):
            if key in declared and platform.cpu_sharing not in _SHARED:
                raise document.error(
                    (*at, key),
                    f"cpu_sharing: {platform.cpu_sharing} divides the CPUs of the platform; leave"
                    " one of the two out",
                )
        if "cpus" not in declared:
            continue
        names_cpus = True
        if platform.cpusets is False:
            raise document.error(
                (*at, "cpus"), "the platform has cpusets: false, with which none may be named"
            )
    if not names_cpus:
        return file
    return file.model_copy(update={"platform": platform.model_copy(update={"cpusets": True})})
