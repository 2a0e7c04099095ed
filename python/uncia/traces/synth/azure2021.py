"""Synthetic files of Azure's invocation trace of 2021: ``app,func,end_timestamp,duration``.

The trace is of 14 days. Chosen: 424 functions of 119 applications, popularity by Zipf's law with
exponent 1, and durations lognormal about a median of the function's own, which is lognormal with
the parameters that Shahrad et al. (ATC 2020, section 3.4) fit to the functions of 2019: mean -0.38
and deviation 2.36 of the logarithm of seconds.
"""

from typing import Final

import numpy as np
import numpy.typing as npt

from uncia.traces.azure2021 import FILES
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
from uncia.traces.synth.text import Bytes, Ints, chosen, decimal, lines

KIND: Final = "azure2021"
DESCRIPTION: Final = "Invocations of two weeks, with application, function, end and duration."

_COLUMNS: Final = FILES[0].columns
_BLOCK: Final = 1 << 16
_APPS: Final = 119
_FUNCTIONS: Final = 424
_DAYS: Final = 14
_US: Final = 10**6
_MAX_SECONDS: Final = 600  # Azure's longest
_SPOILERS: Final[dict[str, spoil.Spoiler]] = {
    **spoil.numbers(_COLUMNS.index("duration")),
    **spoil.SHAPES,
}


def make(order: Order) -> Made:
    """Write ``AzureFunctionsInvocationTraceForTwoWeeksJan2021.txt``, or parts of it."""
    parts = spread(order.rows, order.files or 1)
    return Made([_write(order, i, *part, len(parts)) for i, part in enumerate(parts)])


def _write(order: Order, number: int, first: int, rows: int, parts: int) -> FileMade:
    made = FileMade("", rows)
    part = f"_{number}" if parts > 1 else ""
    name = f"AzureFunctionsInvocationTraceForTwoWeeksJan2021{part}.txt"
    line = 2
    with opened(order, name) as (file, made.path):
        file.write(",".join(_COLUMNS).encode() + b"\n")
        for block in range(first // _BLOCK, -(-(first + rows) // _BLOCK)):
            low = max(first - block * _BLOCK, 0)
            high = min(first + rows - block * _BLOCK, _BLOCK)
            text = lines([[part[low:high] for part in cell] for cell in _cells(order.seed, block)])
            bad = spoiled_rows(order, _BLOCK, block)
            bad = bad[(bad >= low) & (bad < high)] - low
            text = spoil.spoil(text, bad, line, block, _SPOILERS, made.planted)
            file.write(text)
            line += high - low
    return made


def _cells(seed: int, block: int) -> list[list[Bytes]]:
    names, medians = _functions(seed)
    rng = generator(seed, 1, block)
    function = rng.choice(_FUNCTIONS, _BLOCK, p=_popularity())
    z = np.clip(rng.standard_normal(_BLOCK), -4, 4)
    duration = medians.take(function) * np.exp(0.5 * z)
    whole: Ints = np.clip(np.rint(_US * duration), 1, _MAX_SECONDS * _US).astype(np.int64)
    end: Ints = rng.integers(0, _DAYS * 86_400 * _US, _BLOCK) + whole
    both = chosen([f"{app},{name}" for app, name in names], function)
    return [[both], decimal(end, 6), decimal(whole, 6)]


def _popularity() -> npt.NDArray[np.float64]:
    weights = 1 / np.arange(1, _FUNCTIONS + 1)
    shares: npt.NDArray[np.float64] = weights / weights.sum()
    return shares


def _functions(seed: int) -> tuple[list[tuple[str, str]], npt.NDArray[np.float64]]:
    """Application and name of each function, as hashes, and its median duration in s."""
    rng = generator(seed, 0)
    digits = rng.bytes(32 * (_APPS + _FUNCTIONS)).hex()
    hashes = [digits[i : i + 64] for i in range(0, len(digits), 64)]
    apps = np.concatenate([np.arange(_APPS), rng.integers(0, _APPS, _FUNCTIONS - _APPS)])
    z = np.clip(rng.standard_normal(_FUNCTIONS), -2, 2)
    names = [(hashes[app], hashes[_APPS + i]) for i, app in enumerate(apps.tolist())]
    return names, np.exp(-0.38 + 2.36 * z)
