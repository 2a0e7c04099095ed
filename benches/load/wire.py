"""How far the arrivals at a server are from the schedule that a load generator was asked for.

Reads the log of ``wire record`` (benches/load/wire) and a schedule: a constant rate, or the table
that ``uncia load --dry-run`` writes. Any generator can be judged so, whatever it says of itself.

    python benches/load/wire.py ARRIVALS.csv --rate 5000 --seconds 60 [--json]
    python benches/load/wire.py ARRIVALS.csv --schedule schedule.parquet [--json]

*Error* is the absolute distance of an arrival from its scheduled time. Nobody knows when a
generator meant to start, so the schedule is moved to where the median error is zero: a constant
delay does not count, jitter does. Arrivals and schedule are paired in order. When their numbers
differ, the surplus entries of the longer side are left out where that makes the errors least, so
that one lost request does not shift all that follow it.

Two clocks: ``kernel`` is when the kernel received the request (on loopback: when the client wrote
it), ``read`` is when the server had read it, which includes the server's own lateness.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict, dataclass
from fractions import Fraction
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow.csv
import pyarrow.parquet as pq
from numpy.lib.stride_tricks import sliding_window_view

from uncia.stats.quantiles import quantile
from uncia.units import NS_PER_S

Times = npt.NDArray[np.int64]

QUANTILES = {
    "p50": Fraction(50, 100),
    "p90": Fraction(90, 100),
    "p99": Fraction(99, 100),
    "p999": Fraction(999, 1000),
    "max": Fraction(1),
}
MOST_STEPS = 10
BLOCK, MANY = 64, 10_000
"""Above MANY arrivals the offset is searched for with blocks of so many."""
MOST_UNPAIRED = 400
"""More missing or surplus requests than this, and no pairing is meaningful: no error is given."""


@dataclass(frozen=True)
class Log:
    """The arrivals at a server, Unix times in ns, each sorted; ``kernel`` is None if incomplete."""

    kernel: Times | None
    read: Times
    connections: int


@dataclass(frozen=True)
class Timing:
    """What the arrivals say of the generator.

    Attributes:
        asked: requests in the schedule.
        arrived: requests that arrived.
        missing: how many fewer arrived than were asked for.
        extra: how many more.
        asked_rate: per second, of the schedule.
        rate: per second, of the arrivals.
        errors_us: clock ("kernel", "read") to quantile to microseconds; without a clock that the
            log lacks, empty if too many requests are missing or surplus.
    """

    asked: int
    arrived: int
    missing: int
    extra: int
    asked_rate: float | None
    rate: float | None
    errors_us: dict[str, dict[str, float]]


def read_log(path: Path) -> Log:
    """The log that ``wire record`` wrote.

    Raises:
        SystemExit: the file is not such a log.
    """
    try:
        table = pyarrow.csv.read_csv(path)
        kernel, read = table["kernel_ns"], table["read_ns"].to_numpy()
        connections = len(table["connection"].unique())
    except (OSError, KeyError, pyarrow.ArrowInvalid) as error:
        raise SystemExit(f"{path} is not a log of wire record: {error}") from error
    if table.num_rows == 0:
        return Log(None, np.empty(0, dtype=np.int64), 0)
    known = None if kernel.null_count else np.sort(kernel.to_numpy())
    return Log(known, np.sort(read), connections)


def constant(rate: Fraction, duration_ns: int) -> Times:
    """The schedule of a constant rate: floor(k / rate), while less than the duration."""
    count = -(-duration_ns * rate.numerator // (NS_PER_S * rate.denominator))
    # Python's integers: k x 10^9 x denominator may exceed 64 bits.
    period = NS_PER_S * rate.denominator
    return np.array([k * period // rate.numerator for k in range(count)], dtype=np.int64)


def dry_run(path: Path) -> Times:
    """The schedule in the table of a dry run.

    Raises:
        SystemExit: the file is not such a table.
    """
    try:
        return np.sort(pq.read_table(path, columns=["scheduled"])["scheduled"].to_numpy())
    except (OSError, KeyError, pyarrow.ArrowInvalid) as error:
        raise SystemExit(f"{path} is not the table of a dry run: {error}") from error


def errors(arrivals: Times, schedule: Times) -> Times | None:
    """Absolute errors in ns of arrivals against their scheduled times, moved as said above.

    Args:
        arrivals: shape (n,), ascending.
        schedule: shape (m,), ascending.

    Returns:
        min(n, m) errors, not sorted; None if n and m differ by more than can be paired.
    """
    surplus = abs(arrivals.size - schedule.size)
    if surplus > MOST_UNPAIRED or min(arrivals.size, schedule.size) == 0:
        return None
    if arrivals.size <= schedule.size:
        difference = arrivals - schedule[_pair(arrivals, schedule)]
    else:
        difference = arrivals[_pair(schedule, arrivals)] - schedule
    distances: Times = np.abs(difference - _median(difference))
    return distances


def timing(log: Log, schedule: Times) -> Timing:
    """Judges a log by the schedule that was asked for."""
    result: dict[str, dict[str, float]] = {}
    for clock, arrivals in (("kernel", log.kernel), ("read", log.read)):
        distances = None if arrivals is None else errors(arrivals, schedule)
        if distances is not None:
            ordered = np.sort(distances)
            values = {name: quantile(ordered, p) for name, p in QUANTILES.items()}
            result[clock] = {name: ns / 1e3 for name, ns in values.items() if ns is not None}
    asked, arrived = schedule.size, log.read.size
    return Timing(
        asked=asked,
        arrived=arrived,
        missing=max(0, asked - arrived),
        extra=max(0, arrived - asked),
        asked_rate=_rate(schedule),
        rate=_rate(log.read if log.kernel is None else log.kernel),
        errors_us=result,
    )


def _rate(times: Times) -> float | None:
    if times.size < 2 or times[-1] == times[0]:
        return None
    return float((times.size - 1) * NS_PER_S / (times[-1] - times[0]))


def _median(values: Times) -> int:
    """The lower median: an integer, so that times stay exact."""
    return int(np.partition(values, (values.size - 1) // 2)[(values.size - 1) // 2])


def _pair(short: Times, long: Times) -> Times:
    """For each of ``short`` the index of its partner in ``long``: ascending, of least total error.

    The offset between the two is not known, so several are tried: as if the surplus of ``long``
    were all at its end, or all at its start, or as the first few say. From the best one on, offsets
    one usual gap to either side are tried, until none is better: at a constant rate an offset may
    be wrong by whole gaps, which then lack at one end.
    """
    n, surplus = short.size, long.size - short.size
    if surplus == 0:
        return np.arange(n)
    few = max(1, n // (surplus + 1))
    starts = {
        _median(short - long[:n]),
        _median(short - long[surplus:]),
        _median(short[:few] - long[:few]),
    }
    # For the offset it is enough, and much faster, to leave entries out between blocks only.
    block = BLOCK if n > MANY else 1
    total, indices = _best(short, long, starts, block)
    gap = _median(np.diff(long))
    for _ in range(MOST_STEPS):
        centre = _median(short - long[indices])
        result = _best(short, long, {centre, centre - gap, centre + gap}, block)
        if result[0] >= total:
            break
        total, indices = result
    return _align(short - _median(short - long[indices]), long, 1)[1]


def _best(short: Times, long: Times, offsets: set[int], block: int) -> tuple[int, Times]:
    """The best alignment over some offsets."""
    return min(
        (_align(short - offset, long, block) for offset in sorted(offsets)),
        key=lambda found: found[0],
    )


def _align(short: Times, long: Times, block: int) -> tuple[int, Times]:
    """The pairing of least total absolute distance, by dynamic programming: (total, indices).

    After i of ``short`` and j entries of ``long`` left out, the partner of i is i + j. A row of the
    table follows from the one before: add the distances, then let an entry be left out wherever
    that was cheaper. Only the choices are kept, one bit each. Entries are left out before every
    ``block``-th of ``short`` only.
    """
    n, surplus = short.size, long.size - short.size
    starts = range(0, n, block)
    total = np.zeros(surplus + 1, dtype=np.int64)
    left_out = np.empty((len(starts), surplus // 8 + 1), dtype=np.uint8)
    for row, start in enumerate(starts):
        some = short[start : start + block]
        partners = sliding_window_view(long[start : start + some.size + surplus], surplus + 1)
        before = np.abs(partners - some[:, np.newaxis]).sum(axis=0)
        before += total
        np.minimum.accumulate(before, out=total)
        left_out[row] = np.packbits(total < before)
    shifts = np.empty(len(starts), dtype=np.int64)
    j = surplus
    for row in range(len(starts) - 1, -1, -1):
        choices = left_out[row]
        while choices[j >> 3] & (0x80 >> (j & 7)):
            j -= 1
        shifts[row] = j
    return int(total[-1]), np.arange(n) + np.repeat(shifts, block)[:n]


def lines(found: Timing) -> list[str]:
    """The figures for people."""
    asked, rate = (
        "unknown" if value is None else f"{value:,.1f}/s"
        for value in (found.asked_rate, found.rate)
    )
    text = [
        f"asked {found.asked:,} at {asked}, arrived {found.arrived:,} at {rate}; "
        f"missing {found.missing:,}, extra {found.extra:,}"
    ]
    for clock, quantiles in found.errors_us.items():
        values = ", ".join(f"{name} {value:,.1f}" for name, value in quantiles.items())
        text.append(f"error by the {clock} clock, us: {values}")
    if "kernel" not in found.errors_us and "read" in found.errors_us:
        text.append("the kernel gave no times for some requests")
    if not found.errors_us:
        text.append(f"no errors: more than {MOST_UNPAIRED} requests are missing or surplus")
    return text


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("log", type=Path, help="CSV file of wire record")
    parser.add_argument("--rate", type=Fraction, help="constant rate, per second")
    parser.add_argument("--seconds", type=Fraction, help="duration of the constant rate")
    parser.add_argument("--schedule", type=Path, help="Parquet file of a dry run")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if options.schedule is not None and options.rate is None and options.seconds is None:
        schedule = dry_run(options.schedule)
    elif options.schedule is None and options.rate is not None and options.seconds is not None:
        if options.rate <= 0 or options.seconds <= 0:
            parser.error("--rate and --seconds must be greater than 0")
        schedule = constant(options.rate, int(options.seconds * NS_PER_S))
    else:
        parser.error("give either --rate and --seconds, or --schedule")
    result = timing(read_log(options.log), schedule)
    if options.json:
        json.dump(asdict(result), sys.stdout, indent=2)
        print()
    else:
        print("\n".join(lines(result)))


if __name__ == "__main__":
    main()
