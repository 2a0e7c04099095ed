"""Runs of a suite that trace functions into predictors of branches, or into last-level caches.

A function does the same each time, but for the seed by which Python hashes texts
(``PYTHONHASHSEED``), on which the order of sets, and so the branches, depend. So that claims have
intervals, it is traced with several seeds.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

import pyarrow as pa
from pydantic import Field, ValidationInfo, field_validator

from uncia import locality, record, yamlio
from uncia.errors import UnciaError, failures
from uncia.forms import Form, Name
from uncia.locality import tools
from uncia.runs.folder import RunFolder
from uncia.runs.versions import versions
from uncia.units import parse_size

if TYPE_CHECKING:
    from uncia.experiment.progress import Reporter

_TABLE: Final = "locality"
_TIMEOUT_S: Final = 3_600.0
"""Of one seed."""

Line = Mapping[str, Any]


class LocalityFile(Form):
    """The file of such a run."""

    name: Name
    description: str
    structure: Literal["branch_predictor", "last_level_cache"]
    functions: dict[Name, str] = Field(
        min_length=1, description="Each as `uncia branches` takes it, by name"
    )
    models: list[str] = Field(
        min_length=1, description="Predictors, such as gshare-4KB, or sizes of caches, such as 2MB"
    )
    size: Literal["test", "small", "large"] = Field("small", description="Of events")
    invocations: int = Field(1, ge=1, description="Of each function, after its start")
    seeds: list[int] = Field(
        min_length=1, description="By which Python hashes texts; intervals take three or more"
    )

    @field_validator("functions")
    @classmethod
    def _each_is_another(cls, functions: dict[str, str]) -> dict[str, str]:
        written = list(functions.values())
        if twice := [text for text in written if written.count(text) > 1]:
            raise ValueError(f"{twice[0]} is there twice; each is to be another function")
        return functions

    @field_validator("models")
    @classmethod
    def _are_known(cls, models: list[str], info: ValidationInfo) -> list[str]:
        if info.data.get("structure") == "branch_predictor":
            known = tools.model_names()
            if unknown := [name for name in models if name not in known]:
                raise ValueError(f"no predictor {unknown[0]!r}; there are {', '.join(known)}")
        elif info.data.get("structure") == "last_level_cache":
            sizes = []
            for text in models:
                sizes.append(parse_size(text))
                try:
                    locality.Cache(sizes[-1]).ways  # noqa: B018  # raises where there is none
                except UnciaError as error:
                    raise ValueError(f"{error.message}. {error.hint}") from error
            if len(set(sizes)) < len(sizes):
                raise ValueError("a size is there twice")
        return models


def is_locality(document: yamlio.Document) -> bool:
    """Whether a file is of such a run."""
    return isinstance(document.data, Mapping) and "structure" in document.data


def experiments(document: yamlio.Document) -> tuple[str, ...]:
    """``FUNCTION@MODEL`` of each function and model of a file.

    Raises:
        UnciaError: the file is wrong.
    """
    file = yamlio.validate(LocalityFile, document)
    return tuple(f"{name}@{model}" for name in file.functions for model in file.models)


def lacks(document: yamlio.Document) -> str:
    """What is not installed here and a file needs, as a sentence; "" if nothing."""
    file = yamlio.validate(LocalityFile, document)
    checks = (
        (tools.require_architecture, tools.QEMU.find, tools.compiler)
        if file.structure == "branch_predictor"
        else (tools.VALGRIND.find,)
    )
    return failures(checks)


def execute(document: yamlio.Document, folder: Path, reporter: Reporter) -> None:
    """Trace the functions of a file, and write the rows and a description into a run's folder.

    Raises:
        UnciaError: a function failed, or the folder cannot be written.
    """
    file = yamlio.validate(LocalityFile, document)
    run = RunFolder.create(folder, overwrite=True)
    described: dict[str, Any] = {
        "name": file.name,
        "structure": file.structure,
        "simulated": True,
        "versions": versions() | tools.versions(caches=file.structure == "last_level_cache"),
    }
    run.write_run({"status": "running", **described})
    written = list(file.functions.values())
    tables = []
    for seed in file.seeds:
        reporter.note(f"Tracing {', '.join(file.functions)}, with the seed {seed}.")
        with locality.Work(_TIMEOUT_S) as work:
            targets = locality.prepare(written, file.size, None, work.folder, seed=seed)
            if file.structure == "last_level_cache":
                rows = locality.simulate(targets, work, [parse_size(it) for it in file.models])
            else:
                rows = locality.trace(targets, work, invocations=file.invocations)
        names = pa.array([f"seed-{seed}"] * rows.num_rows, pa.utf8())
        tables.append(rows.set_column(0, "run", names.dictionary_encode()))
    table = pa.concat_tables(tables, promote_options="permissive").unify_dictionaries()
    record.write(table, folder / f"{_TABLE}.parquet", _TABLE)
    run.write_run({"status": "complete", **described})


def lines(document: yamlio.Document, folder: Path) -> dict[str, list[Line]]:
    """What the rows in the folder of a run come to: by experiment, a line for each seed.

    Raises:
        UnciaError: the table is damaged.
    """
    file = yamlio.validate(LocalityFile, document)
    table = record.read(folder, _TABLE)
    runs = table["run"].cast(pa.utf8()).to_pylist()
    collected: dict[str, list[Line]] = {name: [] for name in experiments(document)}
    names = {text: name for name, text in file.functions.items()}
    for run in dict.fromkeys(runs):
        rows = table.filter(pa.array([it == run for it in runs]))
        if file.structure == "last_level_cache":
            models = {parse_size(text): text for text in file.models}
            for line in locality.cache_lines(rows):
                collected[f"{names[line['function']]}@{models[line['cache_bytes']]}"].append(line)
            continue
        for line in locality.branch_lines(rows):
            name = f"{names[line['function']]}@{line['predictor']}"
            if name in collected:
                collected[name].append(line)
    return collected
