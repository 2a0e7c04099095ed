"""Azure Functions, two weeks of 2021: every invocation, with its end and duration.

The columns are ``app``, ``func`` (unique within an app only), ``end_timestamp`` and ``duration``,
both in seconds. A row becomes a row of the invocation table: ``ended`` and ``execution`` are these
two to the nearest nanosecond, and ``started`` is their difference, which is negative for an
invocation that ran before the trace began. The trace holds no failures, so every outcome is ok;
it says nothing of clients, instances, allocations or use, and these columns are null.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from uncia.traces import files
from uncia.traces.base import Imported, Issues
from uncia.traces.cells import Checks
from uncia.traces.csv import blocks
from uncia.traces.output import Names, Output, output
from uncia.units import NS_PER_S

NAME: Final = "azure2021"
DESCRIPTION: Final = (
    "Azure Functions Invocation Trace 2021: 2.0 million invocations in two weeks. License"
    " CC BY; https://github.com/Azure/AzurePublicDataset/blob/master/AzureFunctionsInvocationTrace2021.md;"
    " cite Zhang et al., Faster and Cheaper Serverless Computing on Harvested Resources, SOSP 2021."
)
TABLES: Final = ("invocations",)
OPTIONS: Final = ("keep_cut",)
FILES: Final = (files.Kind("invocations", ("app", "func", "end_timestamp", "duration")),)

_STAGE: Final = {
    "invocation": pa.int64(),
    "function": pa.int32(),
    "ended": pa.int64(),
    "execution": pa.int64(),
}
_SORTED: Final = """
    SELECT invocation, function, ended - execution AS started, ended, execution
    FROM invocations ORDER BY started, row
"""


def detect(paths: Iterable[Path]) -> bool:
    """Whether every file is of this trace, by its header."""
    return files.detect(paths, FILES)


def convert(
    paths: Iterable[Path | str], out: Path | str, *, strict: bool = False, keep_cut: bool = False
) -> Imported:
    """Write the trace as an invocation table, sorted by ``started``.

    ``function`` is ``app/func``; ``invocation`` is the row's number in the trace, from 1.

    Args:
        paths: the trace's files, or folders of them.
        out: a folder, or a file ``*.parquet``.
        strict: whether a bad row is an error; otherwise it is kept aside and counted.
        keep_cut: whether the whole rows of a file that is cut off are taken.

    Raises:
        UnciaError: a file is not of this trace or damaged, a cell is bad, or nothing can be
            written.
    """
    sources = files.sort(paths, FILES, NAME)
    issues = Issues(strict, keep_cut)
    functions = Names()
    with output(Path(out), TABLES, issues) as result:
        _read(sources.of("invocations"), result, functions, issues)
        for batch in _batches(result):
            result.write(
                "invocations",
                {
                    "platform": pa.array(["azure"] * batch.num_rows, pa.utf8()),
                    "function": functions.column(batch.column("function")),
                    "invocation": batch.column("invocation").cast(pa.utf8()),
                    "attempt": pa.array(np.ones(batch.num_rows, dtype=np.int64)),
                    "outcome": pa.array(["ok"] * batch.num_rows, pa.utf8()),
                    "started": batch.column("started"),
                    "ended": batch.column("ended"),
                    "execution": batch.column("execution"),
                },
            )
        return result.finish(sources.warnings)


def _read(paths: Iterable[Path], result: Output, functions: Names, issues: Issues) -> None:
    stage = result.stage("invocations", _STAGE)
    number = 0
    for path in paths:
        for block in blocks(path, FILES[0].columns, issues):
            checks = Checks(block)
            name = pc.binary_join_element_wise(
                checks.identifier("app"), checks.identifier("func"), "/"
            )
            ended, _ = checks.quantity("end_timestamp", NS_PER_S, "seconds", negative=True)
            duration, _ = checks.quantity("duration", NS_PER_S, "seconds, 0 or more")
            good = checks.good(issues)
            stage.write(
                {
                    "invocation": number + 1 + np.flatnonzero(good),
                    "function": functions.ids(name.filter(pa.array(good))),
                    "ended": ended[good],
                    "execution": duration[good],
                }
            )
            number += checks.rows


def _batches(result: Output) -> Iterator[pa.RecordBatch]:
    return result.query(_SORTED)
