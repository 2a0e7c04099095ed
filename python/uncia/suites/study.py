"""Carries out the experiment file of a study, which is made and not read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, TypeAlias

import pyarrow as pa

from uncia import yamlio
from uncia.experiment import checks, runner
from uncia.experiment.plan import Plan
from uncia.experiment.planning import plan
from uncia.experiment.progress import Reporter
from uncia.experiment.runner import Outcome
from uncia.experiment.sources import Sources
from uncia.units import NS_PER_MIN

SEED: Final = 20250515
"""Of every study, so that its schedule is the same each time."""

TIMEOUT_NS: Final = 15 * NS_PER_MIN
"""The client's patience with one request: Lambda's longest."""

Document: TypeAlias = Mapping[str, Any]
Continue: TypeAlias = Callable[[pa.Table, Reporter], Document]
"""Makes a longer file of the rows so far; it begins with the experiments of the one before."""


def measure(
    document: Document,
    *,
    out: Path | None,
    overwrite: bool,
    reporter: Reporter,
    go_on: Continue | None = None,
) -> Outcome:
    """Carry out the experiment file of a study.

    A request that fails is a row that says why, and the study goes on.

    Args:
        document: what the file says.
        out: the folder of the run; by default `uncia.experiment.runner.RESULTS` / its id.
        overwrite: an earlier run there may be replaced.
        reporter: receives progress updates.
        go_on: makes the rest of the file when its experiments are carried out, for a study whose
            requests depend on what was measured.

    Raises:
        UnciaError: the file is not right, or the folder cannot be written.
    """
    first, sources = planned(document)
    rest = iter([] if go_on is None else [go_on])

    def extend(rows: pa.Table) -> Plan | None:
        go_on = next(rest, None)
        return None if go_on is None else planned(go_on(rows, reporter))[0]

    return runner.execute(
        first, sources, out=out, overwrite=overwrite, reporter=reporter, extend=extend
    )


def planned(document: Document) -> tuple[Plan, Sources]:
    """The plan of an experiment file that was made.

    Raises:
        UnciaError: it is not right.
    """
    file = yamlio.Document(f"{document['name']}", dict(document), {})
    sources = Sources(file, Path.cwd())
    return plan(checks.check(file), sources), sources
