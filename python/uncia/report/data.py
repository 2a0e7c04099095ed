"""`RunData`: the tables, description and summaries of a run folder, as the report reads them."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from uncia import record, yamlio
from uncia.errors import UnciaError
from uncia.runs.folder import check_tables
from uncia.runs.warnings import by_importance
from uncia.stats import columns, summary


@dataclass(frozen=True)
class RunData:
    """The contents of a run folder.

    Attributes:
        path: the folder.
        meta: `run.yaml` as plain data; empty if it is missing.
        stored: `summary.json` as plain data; empty if it is missing.
        invocations, spans, instances, machine, bill: the tables; empty if missing.
        missing: sentences about what the folder lacks.
    """

    path: Path
    meta: Mapping[str, Any]
    stored: Mapping[str, Any]
    invocations: pa.Table
    spans: pa.Table
    instances: pa.Table
    machine: pa.Table
    bill: pa.Table
    missing: tuple[str, ...]

    @property
    def name(self) -> str:
        """The run's name: what it says of itself, else that of its folder."""
        return str(self.meta.get("run") or self.stored.get("run") or self.path.resolve().name)

    @property
    def title(self) -> str:
        """The name of the run's folder, as its reader knows it."""
        return self.path.name or self.path.resolve().name

    @property
    def requests(self) -> int:
        """How many requests clients made: rows that are no hops and no preempted attempts."""
        return int(columns.pc.sum(columns.is_request(self.invocations)).as_py() or 0)

    @cached_property
    def all_summaries(self) -> dict[str, dict[str, Any]]:
        """The summary of every experiment, warm-ups included, computed from the rows."""
        return summary.experiments(self.invocations, self.meta)

    @cached_property
    def summaries(self) -> dict[str, dict[str, Any]]:
        """The summaries of the experiments that are results, in the run's order."""
        return {name: self.all_summaries[name] for name in self.experiments}

    @cached_property
    def experiments(self) -> list[str]:
        """The names of the experiments that are results, in the run's order."""
        names = dict.fromkeys([*self.experiment_meta, *self.rows_of])
        return [name for name in names if not name.endswith(summary.WARMUP_SUFFIX)]

    @cached_property
    def rows_of(self) -> dict[str, pa.Table]:
        """The invocations of each experiment that has some, warm-ups included."""
        return columns.by_word(self.invocations, "experiment")

    def by_experiment(self, rows: pa.Table) -> dict[str, pa.Table]:
        """Split invocations by experiment, without warm-ups."""
        parts = self.rows_of if rows is self.invocations else columns.by_word(rows, "experiment")
        return {name: parts[name] for name in self.experiments if name in parts}

    def summarise_each(
        self, rows: pa.Table, summarise: Callable[[pa.Table, Any], list[dict[str, Any]]]
    ) -> list[dict[str, Any]]:
        """Summarise the invocations of every experiment, whose name is added as ``experiment``.

        Args:
            rows: invocations.
            summarise: computes summaries from an experiment's rows and its description, which is
                None where the run has none.
        """
        return [
            {**item, "experiment": name}
            for name, part in self.by_experiment(rows).items()
            for item in summarise(part, self.experiment_meta.get(name))
        ]

    @cached_property
    def experiment_meta(self) -> dict[str, dict[str, object]]:
        """The description of each experiment, by name."""
        return columns.experiments_of(self.meta)

    @property
    def tariffs(self) -> dict[str, dict[str, Any]]:
        """`summary.json`'s ``tariffs``: totals under each tariff, by id."""
        totals = self.stored.get("tariffs")
        return {str(k): dict(v) for k, v in totals.items()} if isinstance(totals, Mapping) else {}

    @cached_property
    def warnings(self) -> list[str]:
        """The warnings that the run recorded and those of the summaries, by importance."""
        recorded = [
            str(item)
            for source in (self.meta, self.stored)
            for key in ("failures", "warnings")
            if isinstance(items := source.get(key), list)
            for item in items
        ]
        computed = summary.warnings(self.all_summaries)
        return by_importance([*self.missing, *recorded, *computed])


def load(run_dir: Path) -> RunData:
    """Read a run folder, or the rows of one in a file (``*.parquet``, ``*.arrows``).

    What the folder lacks is computed where it can be: without ``summary.json``, the bills.

    Raises:
        UnciaError: it is neither, or a file is damaged or was cut off.
    """
    if run_dir.is_file() and run_dir.suffix in record.SUFFIXES:
        return _load_file(run_dir)
    if not run_dir.is_dir():
        raise UnciaError(
            f"{run_dir} is not a folder" if run_dir.exists() else f"{run_dir} does not exist",
            hint="Give the folder of a run, as `uncia run` and `uncia load --out DIR` write it, or"
            " a file of rows (*.parquet, *.arrows).",
        )
    missing = []
    meta: Mapping[str, Any] = {}
    description = run_dir / "run.yaml"
    if description.is_file():
        content = yamlio.load(description).data
        if not isinstance(content, Mapping):
            raise UnciaError(f"{description}: the description of a run is a mapping of keys")
        meta = content
    else:
        missing.append("run.yaml is missing: what was run is unknown, only its rows are there.")
    # Of a load there are no spans and instances.
    check_tables(run_dir, meta, ("invocations",))
    stored: Mapping[str, Any] = {}
    totals = run_dir / "summary.json"
    if totals.is_file():
        try:
            content = json.loads(totals.read_text(encoding="utf-8"))
        except (ValueError, OSError) as error:
            raise UnciaError(
                f"{totals}: this is not valid JSON: {error}",
                hint="Remove it and price the run again: uncia bill RUN.",
            ) from error
        if not isinstance(content, Mapping):
            raise UnciaError(
                f"{totals}: the summary of a run is an object with keys",
                hint="Remove it and price the run again: uncia bill RUN.",
            )
        stored = content
    tables = {name: record.read(run_dir, name) for name in _TABLES}
    if (run_dir / "invocations.arrows").is_file() and not (
        run_dir / "invocations.parquet"
    ).is_file():
        missing.append(
            "This run was not closed; these are the rows before a crash (uncia recover)."
        )
    if not totals.is_file():
        stored = _priced(tables["invocations"])
    return RunData(run_dir, meta, stored, **tables, missing=tuple(missing))


def _load_file(file: Path) -> RunData:
    """Read a file of rows as a run of which nothing else is known."""
    rows = record.read(file)
    record.check_whole(file)
    tables = {name: record.empty(name) for name in _TABLES}
    return RunData(
        file,
        {"run": file.stem},
        _priced(rows),
        **{**tables, "invocations": rows},
        missing=(f"Of {file.name} only the rows are known: what was run, and where, is not.",),
    )


def _priced(rows: pa.Table) -> Mapping[str, Any]:
    """What ``summary.json`` says of bills, for rows that nobody billed yet."""
    if rows.num_rows == 0:
        return {}
    from uncia import tariffs

    return {"tariffs": tariffs.summary(tariffs.bill(rows))}


_TABLES: Final = ("invocations", "spans", "instances", "machine", "bill")
