"""What the importers should make of a file, by plain Python: the csv module and fractions.

It shares nothing with the importers: it reads a row at a time and computes each cell on its own.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

S, MS, MIB = 10**9, 10**6, 1 << 20
NOTHING = ("", "NaN", "nan", "NA")
NUMBER = re.compile(r"([+-]?)([0-9]*)(?:\.([0-9]*))?(?:[eE]([+-]?[0-9]{1,4}))?")

Row = dict[str, Any]


class BadRowError(Exception):
    """A row that is to be refused."""


def fraction(text: str) -> Fraction:
    match = NUMBER.fullmatch(text)
    if match is None or not (match.group(2) or match.group(3)):
        raise BadRowError(text)
    sign, whole, after, exponent = match.groups()
    if whole == "" and after == "":
        raise BadRowError(text)
    digits = int((whole or "") + (after or ""))
    value = Fraction(digits) * Fraction(10) ** (int(exponent or 0) - len(after or ""))
    return -value if sign == "-" else value


def nearest(text: str, factor: int) -> int:
    value = fraction(text) * factor
    magnitude = int(abs(value) + Fraction(1, 2))  # int() cuts off
    if magnitude > 4 * 10**18:
        raise BadRowError(text)
    return -magnitude if value < 0 else magnitude


def whole(text: str) -> int:
    value = fraction(text)
    if value.denominator != 1 or value < 0 or value > 10**15:
        raise BadRowError(text)
    return int(value)


def positive(text: str, factor: int, most: int | None = None) -> int:
    value = nearest(text, factor)
    if value < 0 or (most is not None and value > most):
        raise BadRowError(text)
    return value


def name(text: str) -> str:
    if not re.fullmatch(r"[!#-.0-~]{1,200}", text):
        raise BadRowError(text)
    return text


def cells(path: Path, skip: bool = False) -> Iterator[tuple[int, Row]]:
    """Line and cells of each row; rows of another length than the header are passed over."""
    with path.open(newline="") as file:
        reader = csv.reader(file)
        header = next(reader)
        for number, row in enumerate(reader, start=2):
            if not row:
                continue
            if len(row) != len(header):
                if skip:
                    continue
                raise BadRowError(f"line {number}")
            yield number, dict(zip(header, row, strict=True))


def azure2021(paths: Iterable[Path]) -> list[Row]:
    rows: list[Row] = []
    number = 0
    for path in paths:
        for _, cell in cells(path):
            number += 1
            try:
                ended = nearest(cell["end_timestamp"], S)
                execution = positive(cell["duration"], S)
                function = f"{name(cell['app'])}/{name(cell['func'])}"
            except BadRowError:
                continue
            rows.append(
                {
                    "platform": "azure",
                    "function": function,
                    "invocation": str(number),
                    "attempt": 1,
                    "outcome": "ok",
                    "started": ended - execution,
                    "ended": ended,
                    "execution": execution,
                }
            )
    return sorted(rows, key=lambda row: row["started"])


def azure2019_arrivals(days: dict[int, Path]) -> dict[tuple[str, int], Row]:
    result: dict[tuple[str, int], Row] = {}
    for day, path in days.items():
        for _, cell in cells(path):
            try:
                owner, app = name(cell["HashOwner"]), name(cell["HashApp"])
                function = f"{owner}/{app}/{name(cell['HashFunction'])}"
                trigger = cell["Trigger"] if cell["Trigger"] in NOTHING else name(cell["Trigger"])
                counts = [whole(cell[str(minute)]) for minute in range(1, 1441)]
            except BadRowError:
                continue
            for index, count in enumerate(counts):
                if count:
                    key = (function, (day - 1) * 1440 + index)
                    row = result.setdefault(
                        key, {"count": 0, "owner": owner, "app": app, "triggers": set()}
                    )
                    row["count"] += count
                    row["triggers"].add(trigger)
    for row in result.values():
        triggers = row.pop("triggers")
        only = next(iter(triggers)) if len(triggers) == 1 else None
        row["trigger"] = None if only in NOTHING else only
    return result


def huawei2023(paths: Iterable[Path], step: int) -> tuple[dict[tuple[str, int], int], int]:
    result: dict[tuple[str, int], int] = {}
    without = 0
    seen: set[int] = set()
    for path in paths:
        for _, cell in cells(path):
            try:
                day, time = whole(cell.pop("day")), whole(cell.pop("time"))
                if day > 36_500 or time // 86_400 != day or time % step:
                    raise BadRowError(time)
                counts = {
                    function: None if text in NOTHING else whole(text)
                    for function, text in cell.items()
                }
            except BadRowError:
                continue
            if time in seen:
                continue
            seen.add(time)
            for function, count in counts.items():
                without += count is None
                if count:
                    key = (function, time // 60)
                    result[key] = result.get(key, 0) + count
    return result, without


def huawei2025(paths: Iterable[Path], starts: Iterable[Path] = ()) -> list[Row]:
    def maybe(text: str, read: Any, *further: Any) -> Any:
        return None if text in NOTHING else read(text, *further)

    cold: dict[tuple[str, str], int] = {}
    for path in starts:
        for _, cell in cells(path):
            try:
                key = (name(cell["requestID"]), name(cell["podID"]))
                cost = positive(cell["totalCost_cold_start"], S)
            except BadRowError:
                continue
            cold[key] = max(cost, cold.get(key, 0))
    rows: list[Row] = []
    for path in paths:
        for _, cell in cells(path):
            try:
                ended = maybe(cell["time_worker"], positive, S)
                request = name(cell["requestID"])
                function = f"{whole(cell['funcName'])}---{whole(cell['userID'])}"
                pod = maybe(cell["podID"], name)
                execution = maybe(cell["runtimeCost"], positive, S, 366 * 86_400 * S)
                cores = maybe(cell["cpu_usage"], positive, S, 1000 * S)
                memory = maybe(cell["memory_usage"], positive, MIB)
                body = maybe(cell["requestBodySize"], whole)
            except BadRowError:
                continue
            flavour = re.match(r"(.+)-(\d{1,6})-(\d{1,7})-.+", pod) if pod else None
            if flavour:
                function += f"---{flavour[1]}-{flavour[2]}-{flavour[3]}"
            ran = ended is not None and execution is not None
            used = None
            if cores is not None and execution is not None:
                used = int(Fraction(cores * execution, S) + Fraction(1, 2))
            rows.append(
                {
                    "function": function,
                    "invocation": request,
                    "request_id": request,
                    "attempt": 1,
                    "outcome": "ok",
                    "instance": pod,
                    "started": ended - execution if ran else None,
                    "ended": ended,
                    "execution": execution,
                    "cpu_user": used,
                    "memory_avg": memory,
                    "request_bytes": body,
                    "allocated_cpu": int(flavour[2]) * 1000 if flavour else None,
                    "allocated_memory": int(flavour[3]) * MIB if flavour else None,
                    "start": "cold" if (request, pod) in cold else None,
                    "initialization": cold.get((request, pod)),
                }
            )

    def place(row: Row) -> tuple[bool, int]:
        time = row["ended"] if row["started"] is None else row["started"]
        return (time is None, time or 0)

    return sorted(rows, key=place)
