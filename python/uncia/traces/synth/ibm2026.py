"""Synthetic files of IBM Code Engine's traces of 2026: weekly pickles, and configurations.

``week_1.pickle`` and so on are pickles of a pandas DataFrame with a row for each application, whose
columns hold lists; ``app_configs.pickle`` has its allocation on each of 62 days. The release's own
figures are 1,780 applications, 62 days, ten weeks. Chosen: the other distributions; popularity by
Zipf's law, execution times lognormal about an application's own median of 10 ms to 1 s, waiting in
the platform 2 ms and, at the first request of a pod, a cold start of seconds.

A week is made in memory, as a pickle of lists cannot be written in pieces.
"""

import io
from collections.abc import Callable
from typing import Any, Final

import numpy as np

from uncia.traces.synth.base import (
    FileMade,
    Made,
    Order,
    generator,
    opened,
    spoiled_rows,
    spread,
)

KIND: Final = "ibm2026"
DESCRIPTION: Final = "Requests of 1,780 applications in weekly pickles, with pods and allocations."

_APPS: Final = 1780
_DAYS: Final = 62
_WEEKS: Final = 10
_ROWS_A_WEEK: Final = 1_000_000
_WEEK_MS: Final = 7 * 86_400_000
_PODS: Final = 40  # of an application in a week, at most
_SIZES: Final = ((0.125, 0.25), (0.25, 0.5), (0.25, 1.0), (0.5, 2.0), (1.0, 4.0), (2.0, 8.0))
_PROTOCOL: Final = 4

# A bad request: another value in one of its lists.
_Lists = tuple[list[Any], list[Any], list[Any], list[Any]]
_SPOILERS: Final[dict[str, Callable[[_Lists, int], None]]] = {
    "nan": lambda lists, i: lists[1].__setitem__(i, float("nan")),
    "negative": lambda lists, i: lists[1].__setitem__(i, -12.345),
    "absurd": lambda lists, i: lists[1].__setitem__(i, 1e30),
    "infinite": lambda lists, i: lists[0].__setitem__(i, float("inf")),
    "empty": lambda lists, i: lists[1].__setitem__(i, None),
    "text": lambda lists, i: lists[1].__setitem__(i, "12ms"),
}


def make(order: Order) -> Made:
    """Write the weeks and the configurations."""
    weeks = order.files or min(_WEEKS, -(-order.rows // _ROWS_A_WEEK))
    parts = spread(order.rows, weeks)
    made = [_week(order, number, rows) for number, (_, rows) in enumerate(parts, start=1)]
    return Made([*made, _configurations(order)])


def _names(seed: int) -> list[tuple[str, str]]:
    digits = generator(seed, 0).bytes(32 * _APPS).hex()
    return [
        (digits[64 * (i - i % 3) : 64 * (i - i % 3) + 32], digits[64 * i + 32 : 64 * i + 64])
        for i in range(_APPS)
    ]


def _week(order: Order, number: int, rows: int) -> FileMade:
    import pandas as pd

    made = FileMade("", rows)
    rng = generator(order.seed, 1, number)
    weights = 1 / np.arange(1, _APPS + 1)
    counts = rng.multinomial(rows, weights / weights.sum()).tolist()
    bad = set(spoiled_rows(order, rows, number).tolist())
    kinds = list(_SPOILERS)
    frame: dict[str, list[Any]] = {
        name: []
        for name in (
            "NamespaceHash",
            "AppHash",
            "NumEvents",
            "InvocationTimes",
            "AppExecTimes",
            "TotalExecTimes",
            "PodHash",
        )
    }
    done = 0
    for app, (names, count) in enumerate(zip(_names(order.seed), counts, strict=True)):
        if not count:
            continue
        lists = _requests(order.seed, number, app, count)
        for row in sorted(bad.intersection(range(done, done + count))):
            kind = kinds[sum(map(len, made.planted.values())) % len(kinds)]
            _SPOILERS[kind](lists, row - done)
            made.planted.setdefault(kind, []).append(row + 1)
        for name, value in zip(frame, (*names, count, *lists), strict=True):
            frame[name].append(value)
        done += count
    _write(order, f"week_{number}.pickle", pd.DataFrame(frame, dtype=object), made)
    return made


def _requests(seed: int, week: int, app: int, count: int) -> _Lists:
    """Times in s, execution and total in ms, and pods of an application's requests in a week."""
    rng = generator(seed, 2, week, app)
    rng_of_app = generator(seed, 3, app)
    median_us = 10_000 * 100 ** rng_of_app.random()
    z = np.clip(rng.standard_normal(count), -4, 4)
    execution = np.maximum(1, np.rint(median_us * np.exp(0.4 * z))).astype(np.int64)
    at = np.sort(rng.integers(0, _WEEK_MS, count)) + (week - 1) * _WEEK_MS
    pods = min(_PODS, 1 + count // 50)
    # A pod serves for a while, and is followed by the next.
    pod = np.minimum(np.arange(count) * pods // count, pods - 1)
    first = np.flatnonzero(np.diff(pod, prepend=-1))
    waiting = 2_000 + rng.integers(0, 1_000, count)
    waiting[first] += rng.integers(800_000, 20_000_000, len(first))
    digits = rng.bytes(16 * pods).hex()
    hashes = [digits[32 * i : 32 * i + 32] for i in range(pods)]
    return (
        (at / 1000).tolist(),
        (execution / 1000).tolist(),
        ((execution + waiting) / 1000).tolist(),
        [hashes[i] for i in pod.tolist()],
    )


def _configurations(order: Order) -> FileMade:
    import pandas as pd

    made = FileMade("", _APPS)
    rng = generator(order.seed, 4)
    frame: dict[str, list[Any]] = {
        name: []
        for name in (
            "NamespaceHash",
            "AppHash",
            "AppContainerRequestCpu",
            "AppContainerRequestMemory",
            "AppContainerConcurrency",
            "AppMinScale",
        )
    }
    for names in _names(order.seed):
        size, later = rng.integers(0, len(_SIZES), 2).tolist()
        changed = int(rng.integers(1, _DAYS)) if rng.random() < 0.05 else _DAYS
        days = [_SIZES[size]] * changed + [_SIZES[later]] * (_DAYS - changed)
        concurrency = 1 if rng.random() < 0.3 else 100
        scale = int(rng.random() < 0.1)
        for name, value in zip(
            frame,
            (
                *names,
                [cpu for cpu, _ in days],
                [memory for _, memory in days],
                [concurrency] * _DAYS,
                [scale] * _DAYS,
            ),
            strict=True,
        ):
            frame[name].append(value)
    _write(order, "app_configs.pickle", pd.DataFrame(frame, dtype=object), made)
    return made


def _write(order: Order, name: str, frame: Any, made: FileMade) -> None:
    import pandas as pd

    # As pandas before 3 has it, with which the release was written.
    frame.columns = pd.Index(list(frame.columns), dtype=object)
    text = io.BytesIO()
    frame.to_pickle(text, compression=None, protocol=_PROTOCOL)
    with opened(order, name) as (file, made.path):
        file.write(text.getbuffer())
