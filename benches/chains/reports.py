"""How long reports of suites take: of results that are there, and of a long history.

* *report*: `uncia suite report` of the results of a suite (`--results DIR`, as `uncia suite run`
  leaves them). Of a run with `--quick`, `--times 10` first writes its requests ten times over,
  which are about those of a whole one.
* *dashboard*: `uncia suite dashboard` of a made-up history of 500 times, each of 320 requests, of
  which one time is slower and one failed; nothing is derived from it before. And how large its
  pages are.

Run it on a machine that is otherwise idle:

    .venv/bin/python benches/chains/reports.py [--results stellar --times 10] [--runs 500]
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet

ROOT = Path(__file__).parents[2]
sys.path += [str(ROOT / "tests"), str(ROOT / "tests/suites")]

import history_rows  # noqa: E402

MOST_S = 60.0
MOST_BYTES = 5_000_000
REQUESTS = 320


def timed(*command: object) -> float:
    """How long a command of Uncia's takes, in s."""
    began = time.monotonic()
    subprocess.run(
        [sys.executable, "-m", "uncia", *map(str, command)], check=True, stdout=subprocess.DEVNULL
    )
    return time.monotonic() - began


def repeated(table: pa.Table, times: int) -> pa.Table:
    """The rows again and again, each time with other names of their invocations."""
    parts = []
    for turn in range(times):
        part = table
        for name in ("invocation", "parent"):
            if turn and name in table.column_names:
                texts = table[name].to_pylist()
                column = [None if it is None else f"{it}.{turn}" for it in texts]
                index = table.column_names.index(name)
                part = part.set_column(index, name, pa.array(column, pa.utf8()))
        parts.append(part.cast(parts[0].schema) if parts else part)
    return pa.concat_tables(parts)


def report(results: Path, times: int) -> float:
    """How long the report takes, in s."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "results"
        shutil.copytree(results, copy)
        rows = 0
        for name in ("invocations", "spans"):
            for path in copy.glob(f"*/*/{name}.parquet"):
                table = pyarrow.parquet.read_table(path)
                table = pa.table({it: plain(table[it]) for it in table.column_names})
                whole = repeated(table, times).replace_schema_metadata(
                    pyarrow.parquet.read_schema(path).metadata
                )
                rows += whole.num_rows if name == "invocations" else 0
                pyarrow.parquet.write_table(whole, path)
        took = timed("suite", "report", copy)
    print(f"report of {rows:,} rows: {took:.1f} s (at most {MOST_S:.0f})")
    return took


def plain(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """A column without a dictionary."""
    kind = column.type
    return column.cast(kind.value_type) if pa.types.is_dictionary(kind) else column


def dashboard(runs: int) -> tuple[float, int]:
    """How long a dashboard takes, in s, and how many bytes it has."""
    with tempfile.TemporaryDirectory() as folder:
        _, history = history_rows.make(Path(folder))
        for number in range(runs):
            failed = {"status": "failed", "failures": ["the disk was full"]}
            history_rows.add(
                history,
                history_rows.rows(
                    15.0 if number == runs // 2 else 12.0 + number % 5 / 50, REQUESTS
                ),
                **(failed if number == runs // 3 else {}),
            )
        took = timed("suite", "dashboard", history, "--out", Path(folder) / "site")
        size = sum(path.stat().st_size for path in (Path(folder) / "site").rglob("*"))
    print(
        f"dashboard of {runs} times: {took:.1f} s (at most {MOST_S:.0f}), {size / 1e6:.1f} MB"
        f" (at most {MOST_BYTES / 1e6:.0f})"
    )
    return took, size


def main() -> int:
    """Measure, and print; 1 if a figure misses."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--results", type=Path, help="of uncia suite run")
    parser.add_argument("--times", type=int, default=1, help="how often its rows are written")
    parser.add_argument("--runs", type=int, default=500, help="times of the history")
    arguments = parser.parse_args()
    is_late = arguments.results is not None and report(arguments.results, arguments.times) > MOST_S
    took, size = dashboard(arguments.runs)
    return int(is_late or took > MOST_S or size > MOST_BYTES)


if __name__ == "__main__":
    sys.exit(main())
