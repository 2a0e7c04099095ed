"""Traces as runs of a suite: the profiles of their functions, in groups by how long they run.

The file of such a run names a trace that Uncia imports. Its own files are read where
``uncia suite run --trace DIR`` gives them; otherwise a synthetic trace of the same form is made,
which is drawn from published distributions and so says nothing new of the provider: what is
computed of it is shown and never judged.
"""

from __future__ import annotations

import importlib
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt
from pydantic import Field

from uncia import record, traces, yamlio
from uncia.errors import UnciaError
from uncia.forms import Form, Name
from uncia.runs.folder import RunFolder, read_run
from uncia.runs.versions import versions
from uncia.stats import columns
from uncia.stats.columns import pc
from uncia.units import Duration

if TYPE_CHECKING:
    from uncia.experiment.progress import Reporter

_TABLE: Final = "profiles"
_FILES: Final = "files"
_FEWEST: Final = 1_000
"""Of a shortened synthetic trace: the groups have some each."""

Floats = npt.NDArray[np.float64]


class Group(Form):
    """The functions whose median execution time lies between."""

    above: Duration = Field(0, description="It is longer than this")
    below: Duration | None = Field(None, description="It is shorter than this")


class Synthetic(Form):
    """What is made where the trace's own files are not given."""

    functions: int = Field(ge=1, description="How many")
    seed: int = Field(ge=0)


class TraceFile(Form):
    """The file of a run that reads a trace."""

    name: Name
    description: str
    trace: str = Field(description="One that `uncia trace list` lists, with profiles")
    files: str | None = Field(None, description="Where its files are; synthetic ones if left out")
    synthetic: Synthetic
    groups: dict[Name, Group] = Field(min_length=1, description="Of functions")


@dataclass(frozen=True)
class TracedGroup:
    """Some functions of a trace.

    Attributes:
        name: of the subject.
        is_synthetic: whether they were made.
        tails: the 99th percentile over the median of each function's execution times.
    """

    name: str
    is_synthetic: bool
    tails: Floats


def is_trace(document: yamlio.Document) -> bool:
    """Whether a file is of a run that reads a trace."""
    return isinstance(document.data, Mapping) and "trace" in document.data


def experiments(document: yamlio.Document) -> tuple[str, ...]:
    """The names of a file's groups.

    Raises:
        UnciaError: the file is wrong, or there is no such trace.
    """
    file = yamlio.validate(TraceFile, document)
    if _TABLE not in traces.find(file.trace).TABLES:
        raise document.error(("trace",), f"{file.trace} has no {_TABLE}")
    return tuple(file.groups)


def shorten(document: yamlio.Document, share: float) -> dict[str, Any]:
    """The content of a file with fewer synthetic functions; of a real trace all are read."""
    synthetic = dict(document.data["synthetic"])
    fewest = min(_FEWEST, synthetic["functions"])
    synthetic["functions"] = max(fewest, int(synthetic["functions"] * share))
    return {**document.data, "synthetic": synthetic}


def with_files(document: yamlio.Document, folder: str | None) -> yamlio.Document:
    """The file with the place of the trace's own files, if there is one."""
    return document if folder is None else document.with_data({**document.data, _FILES: folder})


def execute(document: yamlio.Document, folder: Path, reporter: Reporter) -> None:
    """Write the profiles of a trace, and a description, into the folder of a run.

    Raises:
        UnciaError: files are missing or not of the trace, or the folder cannot be written.
    """
    file = yamlio.validate(TraceFile, document)
    run = RunFolder.create(folder, overwrite=True)
    described: dict[str, Any] = {
        "name": file.name,
        "trace": file.trace,
        "synthetic": file.files is None,
        "source": file.files or file.synthetic.model_dump(),
        "versions": versions(),
    }
    run.write_run({"status": "running", **described})
    with tempfile.TemporaryDirectory(prefix="uncia-trace-", dir=folder) as work:
        source = Path(file.files) if file.files is not None else Path(work) / "made"
        if file.files is None:
            made = file.synthetic
            reporter.note(f"Making a synthetic {file.trace} of {made.functions:,} functions.")
            _synthesizer().make(file.trace, made.functions, source, seed=made.seed, files=1)
        imported = traces.load([source], Path(work) / "tables", trace=file.trace)
        if _TABLE not in imported.tables:
            raise UnciaError(
                f"{source} has no files of durations, of which {_TABLE} are made",
                hint="Those of azure2019 are called function_durations_percentiles.anon.d01.csv.",
            )
        imported.tables[_TABLE].replace(folder / f"{_TABLE}.parquet")
    for warning in imported.warnings:
        reporter.note(warning)
    run.write_run({"status": "complete", **described, "warnings": imported.warnings})


def _synthesizer() -> ModuleType:
    """What makes synthetic traces, which is no part of the core.

    Raises:
        UnciaError: it is not installed.
    """
    try:
        return importlib.import_module("uncia.traces.synth")
    except ModuleNotFoundError as error:
        raise UnciaError(
            "no synthetic trace can be made: uncia's extras are not installed",
            hint="pip install 'uncia[extras]'; or give the trace's own files with --trace DIR.",
        ) from error


def groups(document: yamlio.Document, folder: Path) -> dict[str, TracedGroup]:
    """The groups of a file, by name, of the profiles in the folder of a run.

    Raises:
        UnciaError: the table is damaged.
    """
    file = yamlio.validate(TraceFile, document)
    medians, tails = _durations(folder)
    is_synthetic = bool(read_run(folder).get("synthetic", True))
    return {
        name: TracedGroup(
            name,
            is_synthetic,
            (tails / medians)[
                (medians > group.above)
                & (medians < (np.inf if group.below is None else group.below))
            ],
        )
        for name, group in file.groups.items()
    }


def _durations(folder: Path) -> tuple[Floats, Floats]:
    """Median and 99th percentile of each function, ns.

    Days are averaged, each by the number of its invocations. A median of 0 (shorter than the
    trace's millisecond) gives no ratio, and is left out.
    """
    table = record.read(folder, _TABLE)
    table = table.filter(pc.is_valid(table["duration"]))
    quantiles = []
    for quantile in (0.5, 0.99):
        rows = table.filter(pc.equal(table["quantile"], quantile))
        weight = pc.max_element_wise(columns.integers(rows, "count"), 1)
        weighted = rows.select(["duration"]).append_column("weight", weight)
        weighted = weighted.append_column("function", columns.words(rows, "function"))
        product = pc.multiply(pc.cast(rows["duration"], "float64"), pc.cast(weight, "float64"))
        weighted = weighted.append_column("product", product)
        summed = weighted.group_by("function").aggregate([("product", "sum"), ("weight", "sum")])
        values = np.asarray(summed["product_sum"]) / np.asarray(summed["weight_sum"])
        quantiles.append(dict(zip(summed["function"].to_pylist(), values.tolist(), strict=True)))
    medians, tails = quantiles
    both = sorted(name for name in medians.keys() & tails.keys() if medians[name] > 0)
    return np.array([medians[name] for name in both]), np.array([tails[name] for name in both])
