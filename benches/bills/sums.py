"""Exact sums of bills beside a bare scan of the same Parquet files.

Usage:
    python benches/bills/sums.py --rows 20000000 --dir /tmp/bills
    python benches/bills/sums.py --rows 558735833 --dir /tmp/bills --repeat 1 --memory-limit 3GB

Rows are made once (about a million a second) and kept in ``--dir``. Each measurement is a process
of its own, so that its peak memory is its own; they take turns, scan first, `--repeat` times, and
the medians are printed. What is measured: ``scan``, DuckDB's sums of five columns; ``one``, one
tariff; ``twelve``, twelve. Wall time counts from the open backend to the answer, and includes
making the query; CPU time is of the whole process in that span.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Final

import pyarrow.parquet as pq
import rows as bench_rows

ONE: Final = "aws-lambda-x86"
TWELVE: Final = (
    "alibaba-fc",
    "aws-lambda-x86",
    "azure-consumption",
    "azure-flex",
    "cloudflare-workers",
    "gcp-run-request",
    "huawei-functiongraph",
    "ibm-code-engine",
    "oracle-functions",
    "slim",
    "spfu",
    "vercel-functions",
)
SCAN: Final = (
    "SELECT sum(execution), sum(cpu_user), sum(memory_avg), sum(allocated_cpu),"
    " sum(allocated_memory) FROM read_parquet('{}/*.parquet')"
)
KINDS: Final = ("scan", "one", "twelve")


def measure(kind: str, folder: Path, memory_limit: str | None) -> dict[str, Any]:
    """One measurement in this process: seconds, CPU seconds, peak memory, rows seen."""
    from uncia.backends import connect

    with connect(memory_limit=memory_limit) as backend:
        if kind == "scan":
            import duckdb

            connection = duckdb.connect()
            if memory_limit:
                connection.execute(f"SET memory_limit = '{memory_limit}'")
        else:
            from uncia.tariffs import bill, equation  # noqa: F401  (Ibis is loaded before)
        wall, cpu = time.perf_counter(), time.process_time()
        if kind == "scan":
            answer: Any = [str(item) for item in connection.sql(SCAN.format(folder)).fetchall()[0]]
        else:
            lines = bill(folder, [ONE] if kind == "one" else list(TWELVE), backend=backend)
            answer = {line.tariff: [line.rows, str(line.cost_usd)] for line in lines}
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {"wall_s": wall, "cpu_s": cpu, "peak_mib": peak / 1024, "answer": answer}


def apart(kind: str, folder: Path, memory_limit: str | None) -> dict[str, Any]:
    """The same in a process of its own."""
    command = [sys.executable, __file__, "--dir", str(folder), "--only", kind]
    if memory_limit:
        command += ["--memory-limit", memory_limit]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=20_000_000)
    parser.add_argument("--dir", type=Path, help="where rows are made")
    parser.add_argument("--table", type=Path, help="a folder of Parquet files instead of made rows")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--memory-limit", default=None, help="of DuckDB, such as 3GB")
    parser.add_argument("--only", choices=KINDS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.only:
        print(json.dumps(measure(options.only, options.dir, options.memory_limit)))
        return
    if (options.dir is None) == (options.table is None):
        parser.error("one of --dir and --table is needed")
    if options.table is not None:
        folder, files = options.table, sorted(options.table.glob("*.parquet"))
        options.rows = sum(pq.read_metadata(path).num_rows for path in files)
    else:
        folder = options.dir / f"rows-{options.rows}-seed-{options.seed}"
        files = bench_rows.write(folder, options.rows, options.seed)
    size = sum(path.stat().st_size for path in files)
    print(f"{options.rows:,} rows, {size / 2**30:.2f} GiB of Parquet in {len(files)} files")
    print(
        f"{platform.machine()}, {os.cpu_count()} CPUs, load {os.getloadavg()[0]:.1f} at the start"
    )
    runs: dict[str, list[dict[str, Any]]] = {kind: [] for kind in KINDS}
    for _ in range(options.repeat):
        for kind in KINDS:
            runs[kind].append(apart(kind, folder, options.memory_limit))
    for kind, results in runs.items():
        assert all(result["answer"] == results[0]["answer"] for result in results), kind
    bare = {name: _median(runs["scan"], name) for name in ("wall_s", "cpu_s")}
    for kind, results in runs.items():
        wall, cpu = (_median(results, name) for name in ("wall_s", "cpu_s"))
        print(
            f"{kind:7} {wall:8.2f} s ({wall / bare['wall_s']:5.2f} x the scan)"
            f" {cpu:8.2f} CPU-s ({cpu / bare['cpu_s']:5.2f} x)"
            f" {_median(results, 'peak_mib'):7.0f} MiB peak"
            f" {options.rows / wall / 1e6:6.1f} M rows/s"
        )
    print(f"load {os.getloadavg()[0]:.1f} at the end; medians of {options.repeat}")


def _median(results: list[dict[str, Any]], name: str) -> float:
    return statistics.median(float(result[name]) for result in results)


if __name__ == "__main__":
    main()
