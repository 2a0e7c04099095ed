"""Synthetic files of Azure's trace of 2019: counts a minute, durations, memory; a file a day each.

What they are drawn from stands in ``azure2019.yaml`` with its sources: Shahrad et al., Serverless
in the Wild (ATC 2020), and the trace's size as Cao et al. report it (NSDI 2025). The shares of
triggers are those of section 3.1 of the former.
"""

from typing import Final

import numpy as np
import numpy.typing as npt

from uncia.traces.azure2019 import FILES
from uncia.traces.bb import forms
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
from uncia.units import MIB

KIND: Final = "azure2019"
DESCRIPTION: Final = "Invocations a minute, with durations of functions and memory of applications."

_COUNTS, _DURATIONS, _MEMORY = (kind.columns for kind in FILES)
_NAMES: Final = (
    "invocations_per_function_md.anon.d{:02d}.csv",
    "function_durations_percentiles.anon.d{:02d}.csv",
    "app_memory_percentiles.anon.d{:02d}.csv",
)
_DAYS: Final = 14
_MEMORY_DAYS: Final = 12
_MINUTES: Final = 1440
_BLOCK: Final = 128
_POPULATION: Final = forms.population()
_APP: Final = _POPULATION.functions_per_app
_LEAST_AND_MOST: Final = (-3.2, 3.2)  # minimum and maximum, beyond the percentiles of averages

_TRIGGERS: Final = {
    "http": 0.55,
    "queue": 0.152,
    "event": 0.022,
    "orchestration": 0.069,
    "timer": 0.156,
    "storage": 0.028,
    "others": 0.023,
}
_SPOILERS: Final[dict[str, spoil.Spoiler]] = {
    **spoil.numbers(100),
    **spoil.SHAPES,
}

Floats = npt.NDArray[np.float64]


def make(order: Order) -> Made:
    """Write the three files of each day; the rows are those of the invocations."""
    days = order.files or min(_DAYS, max(1, order.rows // 50_000))
    made = []
    for day, (_, rows) in enumerate(spread(order.rows, days), start=1):
        made += [_counts(order, day, rows), _durations(order, day, rows)]
        if day <= _MEMORY_DAYS:
            made.append(_memory(order, day, -(-rows // _APP)))
    return Made(made)


def _functions(seed: int, block: int) -> tuple[list[str], list[str], Floats, Floats]:
    """Names and triggers of a block of functions, invocations a day, and average ms."""
    rng = generator(seed, 0, block)
    digits = rng.bytes(32 * (_BLOCK + 2 * _BLOCK // _APP)).hex()
    hashes = [digits[i : i + 64] for i in range(0, len(digits), 64)]
    owners, apps, functions = (
        hashes[: _BLOCK // _APP],
        hashes[_BLOCK // _APP : 2 * _BLOCK // _APP],
        hashes[2 * _BLOCK // _APP :],
    )
    names = [f"{owners[i // _APP]},{apps[i // _APP]},{name}" for i, name in enumerate(functions)]
    shares = np.array(list(_TRIGGERS.values()))
    kinds = rng.choice(len(shares), _BLOCK, p=shares / shares.sum())
    z = rng.standard_normal((2, _BLOCK))
    rule = _POPULATION.daily
    z[0] = np.where(z[0] > rule.max_deviations, -z[0], z[0])
    daily = np.exp(rule.log_mean + rule.log_deviation * z[0])
    triggers = list(_TRIGGERS)
    lasts = _POPULATION.durations
    average = 1000 * np.exp(
        lasts.log_mean
        + lasts.log_deviation * np.clip(z[1], lasts.deviations[0], lasts.deviations[1])
    )
    return names, [triggers[kind] for kind in kinds.tolist()], daily, average


def _written(
    order: Order, what: int, day: int, rows: int, columns: tuple[str, ...], made: FileMade
) -> None:
    line, turn = 2, day
    with opened(order, _NAMES[what].format(day)) as (file, made.path):
        file.write(",".join(columns).encode() + b"\n")
        per_block = _BLOCK // _APP if what == 2 else _BLOCK
        for block in range(-(-rows // per_block)):
            count = min(rows - block * per_block, per_block)
            text = "\n".join(_ROWS[what](order.seed, day, block)[:count]).encode() + b"\n"
            bad = np.zeros(0, dtype=np.int64) if what else spoiled_rows(order, _BLOCK, day, block)
            bad = bad[bad < count]
            file.write(spoil.spoil(text, bad, line, turn, _SPOILERS, made.planted))
            line, turn = line + count, turn + len(bad)


def _counts(order: Order, day: int, rows: int) -> FileMade:
    made = FileMade("", rows)
    _written(order, 0, day, rows, _COUNTS, made)
    return made


def _durations(order: Order, day: int, rows: int) -> FileMade:
    made = FileMade("", rows)
    _written(order, 1, day, rows, _DURATIONS, made)
    return made


def _memory(order: Order, day: int, rows: int) -> FileMade:
    made = FileMade("", rows)
    _written(order, 2, day, rows, _MEMORY, made)
    return made


def _count_rows(seed: int, day: int, block: int) -> list[str]:
    names, triggers, daily, _ = _functions(seed, block)
    rng = generator(seed, 1, day, block)
    minute = np.arange(_MINUTES)
    curve = 1 - _POPULATION.swing * np.cos(2 * np.pi * minute / _MINUTES)
    counts = rng.poisson(daily[:, None] * curve / curve.sum())
    return [
        f"{name},{trigger},{','.join(map(str, row))}"
        for name, trigger, row in zip(names, triggers, counts.tolist(), strict=True)
    ]


def _duration_rows(seed: int, day: int, block: int) -> list[str]:
    names, _, daily, average = _functions(seed, block)
    rng = generator(seed, 2, day, block)
    constant, varying = _POPULATION.durations.spread
    spread_by = np.abs(rng.standard_normal((_BLOCK, 1))) * varying + constant
    # Minimum, the percentiles of the averages, maximum: in the order that they must have.
    least, most = _LEAST_AND_MOST
    z = np.array([least, *(z for _, z in _POPULATION.durations.points), most])
    values = np.rint(average[:, None] * np.exp(spread_by * z)).astype(np.int64)
    mean = np.clip(np.rint(average * np.exp(spread_by[:, 0] ** 2 / 2)), values[:, 0], values[:, -1])
    invoked = np.maximum(1, daily).astype(np.int64)
    return [
        f"{name},{int(middle)},{n},{low},{high},{','.join(map(str, quantiles))}"
        for name, middle, n, (low, *quantiles, high) in zip(
            names, mean.tolist(), invoked.tolist(), values.tolist(), strict=True
        )
    ]


def _memory_rows(seed: int, day: int, block: int) -> list[str]:
    names, _, daily, _ = _functions(seed, block)
    rng = generator(seed, 3, block)
    rule = _POPULATION.memory
    uniform = np.clip(rng.random(_BLOCK // _APP), rule.uniform[0], rule.uniform[1])
    burr = ((1 - uniform) ** (-1 / rule.k) - 1) ** (1 / rule.c)
    megabytes = rule.scale / MIB * burr
    factors = np.array([factor for _, factor in rule.points])
    values = np.rint(megabytes[:, None] * factors).astype(np.int64)
    samples = np.maximum(1, np.minimum(daily[::_APP], 17_280)).astype(np.int64)
    apps = [name.rpartition(",")[0] for name in names[::_APP]]
    return [
        f"{app},{n},{row[3]},{','.join(map(str, row))}"
        for app, n, row in zip(apps, samples.tolist(), values.tolist(), strict=True)
    ]


_ROWS: Final = (_count_rows, _duration_rows, _memory_rows)
