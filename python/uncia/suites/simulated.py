"""Simulations as runs of a suite: each point of a file's sweep under each model, over its seeds.

An experiment of such a run is a model at a point: ``npfu`` where the file has no sweep, otherwise
``npfu@spot=0.5`` or ``npfu@placement=hermod,workers=8``, with the last part of each name.
What is known of it is a value for each seed, so that intervals are over seeds, and thereby over
draws of what is drawn.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cached_property
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from uncia import yamlio
from uncia.errors import RunFailedError, UnciaError
from uncia.experiment import simulate, simulation, sweep
from uncia.experiment.simulation import Model, SimulationFile
from uncia.experiment.sweep import Point
from uncia.runs.folder import RUN, RunFolder

if TYPE_CHECKING:
    from uncia.experiment.progress import Reporter

_FEWEST_SEEDS: Final = 3
"""Of a shortened simulation: an interval needs several."""

_VALUE: Final = re.compile(r"[A-Za-z0-9._+-]+")


@dataclass(frozen=True)
class SimulatedRows:
    """A model at a point of a simulation.

    Attributes:
        name: of the subject.
        model: the billing model.
        base: the model that is first in the file, to which prices are calibrated.
        seeds: the seeds, in order.
        folder: the run that holds its rows.
        values: what ``simulation.json`` says of it, for each seed.
        base_values: the same of the base.
        is_repeated: whether experiments of the run are called by their seeds.
    """

    name: str
    model: str
    base: str
    seeds: Sequence[int]
    folder: Path
    values: Sequence[Mapping[str, Any]]
    base_values: Sequence[Mapping[str, Any]]
    is_repeated: bool

    def experiment(self, model: str, seed: int) -> str:
        """The name of a model's experiment in the run."""
        return f"{model}-{seed}" if self.is_repeated else model


@dataclass(frozen=True)
class Simulated:
    """A simulation that was carried out.

    Attributes:
        folder: of the run, or of the sweep.
        document: its file.
    """

    folder: Path
    document: yamlio.Document

    @cached_property
    def points(self) -> dict[str, tuple[Path, Model, SimulationFile]]:
        """By experiment: the run's folder, the model and what was simulated."""
        is_swept = has_sweep(self.document)
        return {
            experiment(model, point): (
                self.folder / point.folder if is_swept else self.folder,
                model,
                file,
            )
            for point, file in _checked(self.document)
            for model in file.models
        }

    def check(self) -> None:
        """Check that there is what was written of each point.

        Raises:
            UnciaError: it is missing or damaged.
        """
        for wanted in self.points:
            self.subject(wanted, wanted)

    def subject(self, name: str, wanted: str) -> SimulatedRows | None:
        """What is known of an experiment; None if it was left out.

        Raises:
            UnciaError: the folder of the run is damaged.
        """
        if wanted not in self.points:
            return None
        folder, model, file = self.points[wanted]
        path = folder / simulate.RESULT
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
            listed = {
                model: [content[simulation.experiment(file, model, seed)] for seed in file.seeds()]
                for model in {model, file.models[0]}
            }
        except OSError as error:
            raise UnciaError(f"{path} cannot be read: {error.strerror or error}") from error
        except ValueError as error:
            raise UnciaError(f"{path} is damaged: it is not JSON: {error}") from error
        except (TypeError, KeyError) as error:
            raise UnciaError(f"{path} is damaged: it has nothing of {wanted}") from error
        return SimulatedRows(
            name,
            model,
            file.models[0],
            list(file.seeds()),
            folder,
            listed[model],
            listed[file.models[0]],
            file.repeat > 1,
        )


def is_simulation(document: yamlio.Document) -> bool:
    """Whether a file is one of ``uncia simulate``, not of ``uncia run``."""
    return isinstance(document.data, Mapping) and "cluster" in document.data


def has_sweep(document: yamlio.Document) -> bool:
    """Whether a simulation's file is of several points."""
    return sweep.KEY in document.data


def experiments(document: yamlio.Document) -> tuple[str, ...]:
    """The names of a file's experiments.

    Raises:
        UnciaError: the file is wrong, or values of its sweep make no different names.
    """
    names = [
        experiment(model, point) for point, file in _checked(document) for model in file.models
    ]
    twice = {name for name in names if names.count(name) > 1}
    wrong = [name for name in names if not _VALUE.fullmatch(re.sub("[@,=]", "", name))]
    if twice or wrong:
        raise UnciaError(
            f"{document.name}: {sweep.KEY}: {min([*twice, *wrong])!r} does not name one experiment",
            hint="In a suite, values of a sweep are numbers or words, and no combination is there"
            " twice.",
        )
    return tuple(names)


def experiment(model: str, point: Point) -> str:
    """The name of a model at a point."""
    values = ",".join(f"{name.split('.')[-1]}={value}" for name, value in point.values.items())
    return f"{model}@{values}" if values else model


def shorten(document: yamlio.Document, only: Sequence[str], share: float) -> dict[str, Any]:
    """The content of a file with fewer points and seeds.

    Args:
        document: the file.
        only: names and patterns of the experiments whose points stay; all if empty.
        share: of the seeds; rounded up, and three at least if there are as many.
    """
    data = dict(document.data)
    if "repeat" in data:
        data["repeat"] = min(data["repeat"], max(_FEWEST_SEEDS, ceil(data["repeat"] * share)))
    if only and has_sweep(document):
        kept = [
            point.values
            for point, file in _checked(document)
            if any(
                fnmatchcase(experiment(model, point), pattern)
                for model, pattern in itertools.product(file.models, only)
            )
        ]
        if not kept:
            raise UnciaError(f"{document.name}: no experiment is called {' or '.join(only)}")
        data[sweep.KEY] = {
            **{name: [values[name] for values in kept] for name in kept[0]},
            "zip": True,
        }
    return data


def make_way(document: yamlio.Document, folder: Path) -> None:
    """Delete what is in the folder of a run that a file became a sweep, or ceased to be one, since.

    Raises:
        UnciaError: it still goes on, or cannot be deleted.
    """
    if is_simulation(document) and has_sweep(document):
        # Whatever it says: a sweep has no such file, and a damaged one is in the way as well.
        if (folder / RUN).is_file():
            RunFolder.create(folder, overwrite=True).remove()
    elif sweep.is_there(folder):
        sweep.remove(folder)


def execute(document: yamlio.Document, folder: Path, reporter: Reporter, base: Path) -> None:
    """Carry out a simulation or a sweep; of the same sweep in the folder, what is done stays.

    Args:
        document: the file.
        folder: of the run or sweep.
        reporter: receives progress updates.
        base: the folder from which paths in the file go out.

    Raises:
        UnciaError: it cannot be simulated, or a point failed.
    """
    if not has_sweep(document):
        ((_, file),) = _checked(document)
        simulate.execute(file, folder, reporter, base=base, overwrite=True, with_report=False)
        return
    grid = sweep.points(document)
    is_same = sweep.can_resume(grid, folder)
    rows = sweep.execute(grid, folder, reporter, base=base, resume=is_same, overwrite=not is_same)
    failed = [str(row["error"]) for row in rows if row["error"] is not None]
    if failed:
        raise RunFailedError(f"{len(failed)} of {len(grid)} points failed: {failed[0]}")


def sweep_lacks(folder: Path) -> str | None:
    """Why the sweep in a folder is not whole, "" if it is; None if there is no sweep.

    Raises:
        UnciaError: its summary is damaged.
    """
    path = folder / sweep.SUMMARY
    try:
        rows = json.loads(path.read_text(encoding="utf-8"))
        failed = [str(row["error"]) for row in rows if row["error"] is not None]
    except FileNotFoundError:
        is_begun = any(folder.glob("point-*"))
        return f"{path} is missing, which is written last" if is_begun else None
    except OSError as error:
        raise UnciaError(f"{path} cannot be read: {error.strerror or error}") from error
    except (ValueError, TypeError, KeyError) as error:
        raise UnciaError(f"{path} is damaged: it has no list of points") from error
    if not rows:
        raise UnciaError(f"{path} is damaged: it has no list of points")
    return failed[0] if failed else ""


def _checked(document: yamlio.Document) -> Iterator[tuple[Point, SimulationFile]]:
    """The points of a file, each with what is simulated."""
    if not has_sweep(document):
        file = simulation.validate(document)
        yield Point(0, {}, dict(document.data)), file
        return
    for point in sweep.points(document):
        content = yamlio.load(yamlio.dump(point.data), document.name)
        yield point, simulation.validate(content)
