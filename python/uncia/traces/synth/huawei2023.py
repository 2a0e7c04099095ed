"""Synthetic files of Huawei's trace of 2023: requests a minute, a column a function, a file a day.

The release's own figures are 200 functions of the private cloud. Chosen: their rates, lognormal
over five powers of ten; the day's curve; and that 2% of the cells have no data.
"""

from typing import Final

import numpy as np

from uncia.errors import UnciaError
from uncia.traces.synth import spoil
from uncia.traces.synth.base import (
    FileMade,
    Made,
    Order,
    generator,
    opened,
    spoiled_rows,
    spread,
)

KIND: Final = "huawei2023"
DESCRIPTION: Final = "Requests a minute of 200 functions; rows are minutes, a file a day."

_FUNCTIONS: Final = 200
_MINUTES: Final = 1440
_BLOCK: Final = 240
_ABSENT: Final = 0.02
_SPOILERS: Final[dict[str, spoil.Spoiler]] = {**spoil.numbers(2), **spoil.SHAPES}


def make(order: Order) -> Made:
    """Write ``requests_minute/day_000.csv`` and so on, each from its midnight."""
    days = order.files or -(-order.rows // _MINUTES)
    if order.rows > days * _MINUTES:
        raise UnciaError(
            f"{order.rows:,} rows do not fit into {days} files: a day has {_MINUTES:,} minutes",
            hint="Ask for more files, or leave --files out.",
        )
    if order.files:
        sizes = [rows for _, rows in spread(order.rows, days)]
    else:
        sizes = [min(_MINUTES, order.rows - day * _MINUTES) for day in range(days)]
    return Made([_write(order, day, rows) for day, rows in enumerate(sizes)])


def _write(order: Order, day: int, rows: int) -> FileMade:
    made = FileMade("", rows)
    line, turn, absent = 2, day, 0
    with opened(order, f"requests_minute/day_{day:03d}.csv") as (file, made.path):
        file.write(",".join(["day", "time", *map(str, range(_FUNCTIONS))]).encode() + b"\n")
        for block in range(-(-rows // _BLOCK)):
            texts, without = _rows(order.seed, day, block)
            count = min(rows - block * _BLOCK, _BLOCK)
            absent += int(without[:count].sum())
            text = "\n".join(texts[:count]).encode() + b"\n"
            bad = spoiled_rows(order, _BLOCK, day, block)
            bad = bad[bad < count]
            file.write(spoil.spoil(text, bad, line, turn, _SPOILERS, made.planted))
            line, turn = line + count, turn + len(bad)
    made.natural = {"cells_without_data": absent}
    return made


def _rows(
    seed: int, day: int, block: int
) -> tuple[list[str], np.ndarray[tuple[int], np.dtype[np.int64]]]:
    rates = np.exp(generator(seed, 0).standard_normal(_FUNCTIONS) * 2.5 - 0.5)
    rng = generator(seed, 1, day, block)
    minute = block * _BLOCK + np.arange(_BLOCK)
    curve = 1 - 0.4 * np.cos(2 * np.pi * minute / _MINUTES)
    counts = rng.poisson(rates * curve[:, None])
    without = rng.random(counts.shape) < _ABSENT
    cells = np.where(without, "NaN", counts.astype(str))
    time = 60 * (day * _MINUTES + minute)
    rows = [
        f"{day},{at},{','.join(row)}" for at, row in zip(time.tolist(), cells.tolist(), strict=True)
    ]
    return rows, without.sum(axis=1)
