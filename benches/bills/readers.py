"""DuckDB's reader of CSV beside Uncia's: what each makes of odd lines, and CPU time a row.

    python benches/bills/readers.py [FILE]

FILE is a request table of Huawei's trace of 2025, such as `import.py --folder DIR` leaves in
DIR/raw; without it, only the odd lines are shown.
"""

from __future__ import annotations

import argparse
import gzip
import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import duckdb

from uncia.errors import UnciaError
from uncia.traces import csv
from uncia.traces.base import Issues
from uncia.traces.cells import Checks
from uncia.traces.huawei.requests import FILES

HEADER = b"name,seconds,note\n"
GOOD = b"x,1.5,a\ny,2,b\n"
ODD = {
    "no ASCII in a column not read": b"q,3,\xc3\xa4\n",
    "a NUL byte in a column not read": b"q,3,\0\n",
    "a carriage return within a row": b"q,3\r,c\n",
    "a cell too many": b"q,3,c,4\n",
    "spaces around a number": b"q, 3 ,c\n",
    "an underscore in a number": b"q,3_000,c\n",
}
NUMBERS = ("time_worker", "runtimeCost", "cpu_usage", "memory_usage")
TEXTS = ("requestID", "podID", "funcName", "userID", "requestBodySize")


def by_duckdb(
    path: Path,
    names: tuple[str, ...],
    numbers: tuple[str, ...],
    read: tuple[str, ...],
    *,
    strict: bool = True,
) -> tuple[int, int]:
    """Rows taken and rejected; in one thread, with exact decimals."""
    columns = {name: "DECIMAL(18,9)" if name in numbers else "VARCHAR" for name in names}
    with duckdb.connect(config={"threads": 1}) as connection:
        taken = connection.sql(
            f"SELECT {', '.join(read)} FROM read_csv('{path}', delim=',', quote='', escape='',"
            f" header=true, auto_detect=false, columns={columns}, store_rejects=true,"
            f" strict_mode={strict})"
        ).to_arrow_table()
        rejected = connection.sql("SELECT DISTINCT line FROM reject_errors").fetchall()
    return len(taken), len(rejected)


def by_uncia(path: Path, numbers: tuple[str, ...], read: tuple[str, ...]) -> tuple[int, int]:
    """The same; the numbers as exact nanoseconds."""
    issues = Issues()
    for block in csv.blocks(path, read, issues):
        checks = Checks(block)
        for name in numbers:
            checks.quantity(name, 10**9, "a number, 0 or more", optional=True)
        checks.good(issues)
    return issues.taken, issues.skipped


def described(reader: Callable[[], tuple[int, int]]) -> str:
    """What a reader makes of a file, in words."""
    try:
        taken, rejected = reader()
    except (duckdb.Error, UnciaError) as error:
        return f"refused: {str(error).splitlines()[0][:60]}"
    return f"{taken} taken, {rejected} rejected"


def show_odd(folder: Path) -> None:
    """Print what each reader makes of two good rows and an odd one."""
    whole = gzip.compress(HEADER + 999 * GOOD)
    broken = bytearray(whole)
    broken[-6] ^= 0xFF
    cases = {what: (".csv", HEADER + GOOD + line) for what, line in ODD.items()}
    cases["gzip data with a wrong checksum"] = (".csv.gz", bytes(broken))
    cases["gzip data that is cut off"] = (".csv.gz", whole[:-9])
    for what, (suffix, data) in cases.items():
        path = folder / f"odd{suffix}"
        path.write_bytes(data)
        names, read = ("name", "seconds", "note"), ("name", "seconds")
        print(what)
        duckdb_reader = partial(by_duckdb, path, names, read[1:], read)
        print("  DuckDB, strict:", described(duckdb_reader))
        print("  DuckDB, lenient:", described(partial(duckdb_reader, strict=False)))
        print("  Uncia:", described(partial(by_uncia, path, read[1:], read)))


def show_speed(path: Path) -> None:
    """Print the median CPU time a row of three runs of each reader, in turns."""
    read = NUMBERS + TEXTS
    sides = {
        "duckdb": lambda: by_duckdb(path, FILES[0].columns, NUMBERS, read),
        "uncia": lambda: by_uncia(path, NUMBERS, read),
    }
    times: dict[str, list[float]] = {side: [] for side in sides}
    for _ in range(3):
        for side, reader in sides.items():
            began = time.process_time()
            taken, rejected = reader()
            times[side].append((time.process_time() - began) / (taken + rejected) * 1e6)
    for side, measured in times.items():
        print(f"{side:7} {statistics.median(measured):.2f} us of CPU a row")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("file", nargs="?", type=Path)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        show_odd(Path(folder))
    if given.file is not None:
        show_speed(given.file)


if __name__ == "__main__":
    main()
