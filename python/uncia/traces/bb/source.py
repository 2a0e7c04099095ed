"""Functions of an imported trace, for a BB Trace: counts a minute, durations and memory."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import duckdb
import pyarrow as pa

from uncia.errors import UnciaError
from uncia.record import parquet
from uncia.text import plural

_MOST: Final = (1 << 32) - 1  # invocations of a function in a minute
_MEMORY: Final = "512MB"  # of DuckDB; beyond it the disk is used

# Of several days, the profile of the day that the hour is in, or else of the one nearest before it,
# or after it. A function that a day has twice has the larger value of each quantile, so that they
# stay in order.
_PROFILES: Final = """
WITH days AS (
    SELECT {key} AS key, quantile, max({value}) AS value, coalesce(minute, 0) AS minute
    FROM profiles
    WHERE statistic = 'quantile' AND {value} IS NOT NULL AND {where}
    GROUP BY key, quantile, minute
), best AS (
    SELECT key, minute FROM (SELECT DISTINCT key, minute FROM days)
    QUALIFY row_number() OVER (PARTITION BY key
        ORDER BY (minute > {start})::INT, abs(minute - {start})) = 1
)
SELECT key, list(quantile ORDER BY quantile), list(value ORDER BY quantile)
FROM days JOIN best USING (key, minute) GROUP BY key
"""


@dataclass(frozen=True)
class Functions:
    """Functions as the engine takes them, and sentences on what was left out."""

    functions: list[dict[str, Any]]
    warnings: list[str]


def read(folder: Path, start: int, minutes: int, wanted: int, seed: int) -> Functions:
    """Sample functions of an import.

    The sample depends on the seed and on the functions' names alone: those whose hash is least.

    Args:
        folder: with ``arrivals.parquet`` and ``profiles.parquet``.
        start: the first minute.
        minutes: how many.
        wanted: functions.
        seed: of the sample.

    Raises:
        UnciaError: a table is missing or damaged, fewer functions have durations and memory than
            are wanted, or none of them is invoked in these minutes.
    """
    tables = {name: _files(folder, name) for name in ("arrivals", "profiles")}
    config: dict[str, Any] = {"memory_limit": _MEMORY}
    with duckdb.connect(config=config) as connection:
        try:
            for name, paths in tables.items():
                connection.read_parquet(paths, union_by_name=True).create_view(name)
            return _Reader(connection, folder, start, minutes).sample(wanted, seed)
        except duckdb.Error as error:
            reason = str(error).partition("\n")[0]
            raise UnciaError(f"{folder} cannot be read as an import: {reason}") from error


def _files(folder: Path, name: str) -> list[str]:
    path = folder / f"{name}.parquet"
    if not path.exists():
        raise UnciaError(
            f"{folder} has no table of {name}",
            hint="A BB Trace needs arrivals and profiles: import all files of azure2019, or use"
            " --synthetic.",
        )
    files = sorted(path.rglob("*.parquet")) if path.is_dir() else [path]
    parquet.verify(files)
    return [str(file) for file in files]


@dataclass
class _Reader:
    connection: duckdb.DuckDBPyConnection
    folder: Path
    start: int
    minutes: int

    def sample(self, wanted: int, seed: int) -> Functions:
        durations = self._profiles("function", "duration", "function IS NOT NULL")
        by_app = self._profiles("(owner, app)", "memory", "function IS NULL")
        by_function = self._profiles("function", "memory", "function IS NOT NULL")
        names = self.connection.sql(
            "SELECT function, any_value(owner), any_value(app) FROM arrivals GROUP BY function"
        ).fetchall()
        complete: dict[str, Any] = {}
        for function, owner, app in names:
            memory = by_function.get(function) or by_app.get((owner, app))
            if function in durations and memory:
                complete[function] = memory
        if len(complete) < wanted:
            raise UnciaError(
                f"{self.folder} has {plural(len(complete), 'function')} with durations and memory,"
                f" and {wanted:,} are wanted",
                hint=f"--functions {len(complete)}" if complete else "Import its other files too.",
            )
        chosen = sorted(sorted(complete, key=lambda name: _rank(seed, name))[:wanted])
        counts = self._counts(chosen)
        functions = [
            {
                "name": name,
                "counts": counts[name],
                "durations": durations[name],
                "memory": complete[name],
            }
            for name in chosen
        ]
        left = len(names) - len(complete)
        warnings = (
            [f"{plural(left, 'function')} without durations or memory cannot be in the sample"]
            if left
            else []
        )
        return Functions(functions, warnings)

    def _profiles(self, key: str, value: str, where: str) -> dict[Any, list[list[float]]]:
        sql = _PROFILES.format(key=key, value=value, where=where, start=self.start)
        rows = self.connection.sql(sql).fetchall()
        return {
            tuple(key.values()) if isinstance(key, dict) else key: [
                [quantile, int(value)] for quantile, value in zip(quantiles, values, strict=True)
            ]
            for key, quantiles, values in rows
        }

    def _counts(self, chosen: list[str]) -> dict[str, list[int]]:
        counts = {name: [0] * self.minutes for name in chosen}
        self.connection.register("chosen", pa.table({"function": pa.array(chosen, pa.utf8())}))
        end = self.start + self.minutes
        rows = self.connection.sql(
            "SELECT function, list(minute), list(count) FROM arrivals SEMI JOIN chosen"
            f" USING (function) WHERE minute >= {self.start} AND minute < {end} GROUP BY function"
        ).fetchall()
        for function, at, invocations in rows:
            for minute, count in zip(at, invocations, strict=True):
                if not 0 <= count <= _MOST:
                    raise UnciaError(
                        f"{self.folder}: the function {function!r} has {count:,} invocations in"
                        f" minute {minute:,}, which is not from 0 to {_MOST:,}"
                    )
                counts[function][minute - self.start] += count
        if not any(any(minutes) for minutes in counts.values()):
            (last,) = self.connection.sql("SELECT max(minute) FROM arrivals").fetchall()[0]
            raise UnciaError(
                f"{self.folder}: no function of the sample is invoked in minutes {self.start:,} to"
                f" {end - 1:,}",
                hint=f"The trace's last minute is {last:,}: --hour {last // 60 + 1} at most.",
            )
        return counts


def _rank(seed: int, name: str) -> bytes:
    return hashlib.sha256(f"{seed}/{name}".encode()).digest()
