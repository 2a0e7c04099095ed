"""Every kind of arrivals, recomputed in plain Python from its documented formula alone."""

import heapq
import math
from collections.abc import Callable, Iterator
from decimal import Decimal, getcontext
from fractions import Fraction
from itertools import accumulate
from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter
from schedule_oracle import dry_run, integers

from uncia.workload.arrivals import ArrivalProcess, Arrivals, kinds

NS_PER_S = 1_000_000_000
getcontext().prec = 60

Arrival = tuple[int, int | None]
"""When, in ns, and the number of the burst."""


class Numbers:
    """The random numbers of a stream in their documented order."""

    def __init__(self, seed: int, label: str) -> None:
        self.seed = seed
        self.label = label
        self._integers = integers(seed, label)

    def part(self, index: int) -> "Numbers":
        return Numbers(self.seed, f"{self.label}/{index}")

    def exact(self) -> Fraction:
        """The uniform number, in [0, 1)."""
        return Fraction(next(self._integers) >> 11, 1 << 53)

    def uniform(self) -> float:
        return float(self.exact())

    def exponential(self) -> float:
        return -math.log(1 - self.uniform())

    def normal(self) -> float:
        """Box and Muller's, of which only the cosine is used."""
        return math.sqrt(2 * self.exponential()) * math.cos(2 * math.pi * self.uniform())

    def gamma(self, shape: float) -> float:
        """Marsaglia and Tsang's."""
        if shape < 1:
            larger = self.gamma(shape + 1)
            return larger * (1 - self.uniform()) ** (1 / shape)
        d = shape - 1 / 3
        c = 1 / math.sqrt(9 * d)
        while True:
            z = self.normal()
            v = (1 + c * z) ** 3
            if v <= 0:
                continue
            if math.log(1 - self.uniform()) < z * z / 2 + d - d * v + d * math.log(v):
                return d * v


def rounded(value: float) -> int:
    """To the nearest, halves away from zero; of numbers that are not negative."""
    return math.floor(value + 0.5)


def weibull_power(cv: float) -> float:
    """x = 1 / shape with 1 + cv^2 = Gamma(1 + 2x) / Gamma(1 + x)^2."""
    low, high = 0.0, 16.0
    for _ in range(200):
        middle = (low + high) / 2
        spread = math.lgamma(1 + 2 * middle) - 2 * math.lgamma(1 + middle)
        low, high = (middle, high) if spread < math.log1p(cv * cv) else (low, middle)
    return high


def draw(numbers: Numbers, gap: dict[str, Any]) -> int:
    """One gap of a distribution."""
    match gap["distribution"]:
        case "fixed":
            return int(gap["ns"])
        case "uniform":
            low, high = gap["min_ns"], gap["max_ns"]
            return low + (math.floor(numbers.exact() * (high - low + 1)) if low < high else 0)
        case "exponential":
            return gap.get("shift_ns", 0) + rounded(numbers.exponential() * gap["mean_ns"])
    mean, cv = gap["mean_ns"], gap["cv"]
    match gap["distribution"]:
        case "gamma":
            return rounded(numbers.gamma(1 / cv**2) * mean * cv**2)
        case "weibull":
            power = weibull_power(cv)
            scale = mean / math.gamma(1 + power)
            return rounded(numbers.exponential() ** power * scale)
        case "lognormal":
            variance = math.log1p(cv * cv)
            mu = math.log(mean) - variance / 2
            return rounded(math.exp(mu + math.sqrt(variance) * numbers.normal()))
    raise AssertionError(gap)


def renewal(numbers: Numbers, gap: dict[str, Any], duration: int) -> Iterator[Arrival]:
    time = draw(numbers, gap)
    while time < duration:
        yield time, None
        time += draw(numbers, gap)


def mean_gap(rate: str) -> float:
    exact = Fraction(rate)
    return 1e9 * exact.denominator / exact.numerator


def constant(given: dict[str, Any], phase: Fraction) -> Iterator[Arrival]:
    rate, k = Fraction(given["rate_per_s"]), 0
    while (time := math.floor((k + phase) * NS_PER_S / rate)) < given["duration_ns"]:
        yield time, None
        k += 1


def burst(numbers: Numbers, given: dict[str, Any]) -> list[Arrival]:
    gap = given.get("gap") or {"distribution": "fixed", "ns": given["interval_ns"]}
    jitter = given["jitter_ns"]
    start, result = 0, []
    for number in range(given["bursts"]):
        if number > 0:
            start += draw(numbers, gap)
        for _ in range(given["sizes"][number % len(given["sizes"])]):
            late = math.floor(numbers.exact() * jitter) if jitter else 0
            result.append((start + late, number))
    return sorted(result)


def counts(numbers: Numbers, given: dict[str, Any]) -> Iterator[Arrival]:
    bucket = given["bucket_ns"]
    for index, n in enumerate(given["counts"]):
        if n == 0:
            continue
        match given["placement"]:
            case "equidistant":
                shift = math.floor(numbers.exact() * bucket / n) if given["phase"] else 0
                within = [j * bucket // n + shift for j in range(n)]
            case "uniform":
                within = sorted(math.floor(numbers.exact() * bucket) for _ in range(n))
            case "exponential":
                drawn = [numbers.exponential() for _ in range(n + 1)]
                whole = sum(drawn)
                within = [math.floor(sum(drawn[: j + 1]) / whole * bucket) for j in range(n)]
        yield from ((index * bucket + time, None) for time in within)


def superposition(numbers: Numbers, given: dict[str, Any]) -> Iterator[Arrival]:
    parts = [
        list(schedule(numbers.part(index), part)) for index, part in enumerate(given["processes"])
    ]
    bursty = [has_bursts(part) for part in given["processes"]]
    keyed = []
    for index, part in enumerate(parts):
        rank = sum(bursty[:index])
        keyed.append(
            [
                (time, index, None if number is None else number * sum(bursty) + rank)
                for time, number in part
            ]
        )
    for time, _, number in heapq.merge(*keyed, key=lambda entry: entry[:2]):
        yield time, number


def on_off(numbers: Numbers, given: dict[str, Any]) -> Iterator[Arrival]:
    lengths = {True: given["mean_on_ns"], False: given["mean_off_ns"]}
    rates = {True: given["on_rate_per_s"], False: given["off_rate_per_s"]}
    match given["start"]:
        case "stationary":
            on = numbers.uniform() < lengths[True] / (lengths[True] + lengths[False])
        case start:
            on = start == "on"
    begin = 0
    while begin < given["duration_ns"]:
        end = begin + rounded(numbers.exponential() * lengths[on])
        time = begin
        while Fraction(rates[on]) > 0:
            time += rounded(numbers.exponential() * mean_gap(rates[on]))
            if time >= end:
                break
            if time >= given["duration_ns"]:
                return
            yield time, None
        begin, on = end, not on


PI = Decimal("3.14159265358979323846264338327950288419716939937510")


def cosine(turns: Fraction) -> Fraction:
    """cos(2 pi turns) to some 45 digits, by its series."""
    x = 2 * PI * Decimal(turns.numerator) / Decimal(turns.denominator)
    total, term, n = Decimal(0), Decimal(1), 0
    while abs(term) > Decimal("1e-48"):
        total += term
        n += 2
        term *= -x * x / (n * (n - 1))
    return Fraction(total)


def integral(given: dict[str, Any]) -> tuple[Callable[[int], Fraction], int]:
    """The integral of a rate that changes, as a function of ns, and the duration."""
    match given["kind"]:
        case "ramp":
            low, high = Fraction(given["from_per_s"]), Fraction(given["to_per_s"])
            duration = given["duration_ns"]
            return (
                lambda t: (low * t + (high - low) * t * t / (2 * duration)) / NS_PER_S
            ), duration
        case "steps":
            steps = [(Fraction(s["rate_per_s"]), s["duration_ns"]) for s in given["steps"]]
            ends = list(accumulate(length for _, length in steps))
            return (
                lambda t: (
                    sum(
                        (
                            rate * max(0, min(t, end) - (end - length))
                            for (rate, length), end in zip(steps, ends, strict=True)
                        ),
                        Fraction(0),
                    )
                    / NS_PER_S
                )
            ), ends[-1]
        case "sine":
            mean, swing = Fraction(given["mean_per_s"]), Fraction(given["amplitude_per_s"])
            period, phase = given["period_ns"], Fraction(given["phase"])
            # Of sin(2 pi (t / period + phase)): (cos(2 pi phase) - cos(...)) x period / (2 pi).
            scale = swing * period / (2 * Fraction(PI))
            start = cosine(phase)
            return (
                lambda t: (
                    (mean * t + scale * (start - cosine(Fraction(t % period, period) + phase)))
                    / NS_PER_S
                )
            ), given["duration_ns"]
    raise AssertionError(given)


def profile(numbers: Numbers, given: dict[str, Any]) -> Iterator[Arrival]:
    """Request k is at the largest whole time at which the integral is not above x_k."""
    total, duration = integral(given)
    level, low, k = Fraction(0), 0, 0
    while True:
        if given["placement"] == "even":
            level = Fraction(k)
        else:
            level += Fraction(rounded(numbers.exponential() * 2**32), 2**32)
        if total(duration) <= level:
            return
        high = duration
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if total(middle) <= level else (low, middle)
        yield low, None
        k += 1


def has_bursts(given: dict[str, Any]) -> bool:
    return given["kind"] == "burst" or any(
        map(has_bursts, [*given.get("processes", []), *filter(None, [given.get("process")])])
    )


def schedule(numbers: Numbers, given: dict[str, Any]) -> Iterator[Arrival]:
    """The arrivals of a process as the engine is given it."""
    match given["kind"]:
        case "constant":
            yield from constant(given, Fraction(0))
        case "random_phase":
            yield from constant(given, numbers.exact())
        case "poisson":
            mean = mean_gap(given["rate_per_s"])
            gap: dict[str, Any] = {"distribution": "exponential", "mean_ns": mean}
            yield from renewal(numbers, gap, given["duration_ns"])
        case "gamma" | "weibull" | "lognormal" as name:
            mean = mean_gap(given["rate_per_s"])
            gap = {"distribution": name, "mean_ns": mean, "cv": given["cv"]}
            yield from renewal(numbers, gap, given["duration_ns"])
        case "uniform":
            gap = {
                "distribution": "uniform",
                "min_ns": given["min_gap_ns"],
                "max_ns": given["max_gap_ns"],
            }
            yield from renewal(numbers, gap, given["duration_ns"])
        case "burst":
            yield from burst(numbers, given)
        case "times":
            yield from ((time, None) for time in given["times_ns"])
        case "gaps":
            yield from (
                (sum(given["gaps_ns"][: k + 1]), None) for k in range(len(given["gaps_ns"]))
            )
        case "counts":
            yield from counts(numbers, given)
        case "on_off":
            yield from on_off(numbers, given)
        case "ramp" | "steps" | "sine":
            yield from profile(numbers, given)
        case "superposition":
            yield from superposition(numbers, given)
        case "windows":
            yield from (
                arrival
                for arrival in schedule(numbers, given["process"])
                if any(begin <= arrival[0] < end for begin, end in given["windows_ns"])
            )
        case _:
            raise AssertionError(given)


def process(given: dict[str, Any]) -> ArrivalProcess:
    """The form of a process as a file has it."""
    return ADAPTER.validate_python(given)


ADAPTER: TypeAdapter[ArrivalProcess] = TypeAdapter(Arrivals)

FIXED = [
    {"kind": "constant", "rate": "7/min", "duration": "5min"},
    {"kind": "constant", "rate": "333.3/s", "duration": "1700ms"},
    {"kind": "random_phase", "rate": "333.3/s", "duration": "2s"},
    {"kind": "random_phase", "rate": "1/h", "duration": "500min"},
    {"kind": "uniform", "min_gap": "3ms", "max_gap": "8ms", "duration": "3s"},
    {"kind": "uniform", "min_gap": "1ms", "max_gap": "1ms", "duration": "50ms"},
    {"kind": "burst", "sizes": [1, 4], "interval": "1s", "bursts": 5},
    {"kind": "burst", "sizes": [9, 30], "interval": "1s", "bursts": 6, "jitter": "700ms"},
    # A jitter longer than the interval: bursts overlap.
    {"kind": "burst", "sizes": [20], "interval": "10ms", "bursts": 8, "jitter": "35ms"},
    {
        "kind": "burst",
        "sizes": [3, 2],
        "gap": {"distribution": "uniform", "min": "10ms", "max": "90ms"},
        "bursts": 30,
        "jitter": "50ms",
    },
    {
        "kind": "burst",
        "sizes": [2],
        "gap": {"distribution": "fixed", "interval": "40ms"},
        "bursts": 3,
    },
    {"kind": "times", "times": ["0s", "5ns", "5ns", "1h"]},
    {"kind": "gaps", "gaps": ["1ms", "0s", "3min", "1ns"]},
    {"kind": "counts", "counts": [0, 7, 100, 0, 1], "bucket": "1s", "placement": "uniform"},
    {"kind": "counts", "counts": [3, 0, 11], "bucket": "1min", "placement": "equidistant"},
    {
        "kind": "counts",
        "counts": [3, 0, 11],
        "bucket": "8571428571ns",
        "placement": "equidistant",
        "phase": False,
    },
    {"kind": "ramp", "from": "0/s", "to": "50/s", "duration": "10s"},
    {"kind": "ramp", "from": "100/s", "to": "7/min", "duration": "3s"},
    {
        "kind": "steps",
        "steps": [
            {"rate": "0/s", "duration": "1s"},
            {"rate": "10.5/s", "duration": "2s"},
            {"rate": "0/s", "duration": "1s"},
            {"rate": "1000/s", "duration": "100ms"},
            {"rate": "1/min", "duration": "1min"},
        ],
    },
    {
        "kind": "superposition",
        "processes": [
            {"kind": "burst", "sizes": [2, 3], "interval": "1s", "bursts": 4},
            {"kind": "random_phase", "rate": "20/s", "duration": "3s"},
            {
                "kind": "superposition",
                "processes": [
                    {"kind": "burst", "sizes": [1], "interval": "1s", "bursts": 3},
                    {"kind": "random_phase", "rate": "20/s", "duration": "3s"},
                    {"kind": "burst", "sizes": [5], "bursts": 1, "jitter": "1s"},
                ],
            },
        ],
    },
    {
        "kind": "windows",
        "windows": [["0s", "100ms"], ["500ms", "1s"], ["1s", "1001ms"], ["4s", "9s"]],
        "process": {"kind": "uniform", "min_gap": "0s", "max_gap": "20ms", "duration": "5s"},
    },
]
"""Computed in whole numbers: the same to the nanosecond."""

ROUNDED = [
    {"kind": "poisson", "rate": "200/s", "duration": "3s"},
    {"kind": "gamma", "rate": "100/s", "cv": 0.3, "duration": "3s"},
    {"kind": "gamma", "rate": "100/s", "cv": 1.0, "duration": "3s"},
    {"kind": "gamma", "rate": "100/s", "cv": 4.0, "duration": "10s"},
    {"kind": "weibull", "rate": "100/s", "cv": 0.3, "duration": "3s"},
    {"kind": "weibull", "rate": "100/s", "cv": 4.0, "duration": "10s"},
    {"kind": "lognormal", "rate": "100/s", "cv": 0.3, "duration": "3s"},
    {"kind": "lognormal", "rate": "100/s", "cv": 4.0, "duration": "10s"},
    *(
        {"kind": "burst", "sizes": [2, 3], "bursts": 40, "jitter": jitter, "gap": gap}
        for jitter, gap in (
            ("0s", {"distribution": "exponential", "mean": "100ms", "shift": "20ms"}),
            ("80ms", {"distribution": "exponential", "mean": "100ms"}),
            ("0s", {"distribution": "gamma", "mean": "100ms", "cv": 2.0}),
            ("80ms", {"distribution": "weibull", "mean": "100ms", "cv": 0.5}),
            ("80ms", {"distribution": "lognormal", "mean": "100ms", "cv": 1.5}),
        )
    ),
    {"kind": "counts", "counts": [5, 0, 80, 1], "bucket": "1min", "placement": "exponential"},
    *(
        {
            "kind": "on_off",
            "on_rate": "300/s",
            "off_rate": off,
            "mean_on": "150ms",
            "mean_off": "400ms",
            "duration": "6s",
            "start": start,
        }
        for start, off in (("on", "0/s"), ("off", "5/s"), ("stationary", "0/s"))
    ),
    {"kind": "ramp", "from": "100/s", "to": "0/s", "duration": "4s", "placement": "poisson"},
    {
        "kind": "steps",
        "steps": [
            {"rate": "30/s", "duration": "2s"},
            {"rate": "0/s", "duration": "2s"},
            {"rate": "90/s", "duration": "2s"},
        ],
        "placement": "poisson",
    },
    {
        "kind": "sine",
        "mean": "20/s",
        "amplitude": "18/s",
        "period": "1700ms",
        "phase": 0.3,
        "duration": "5s",
    },
    {
        "kind": "sine",
        "mean": "2/min",
        "amplitude": "1.5/min",
        "period": "24h",
        "duration": "1h",
        "placement": "poisson",
    },
    {
        "kind": "superposition",
        "processes": [
            {"kind": "poisson", "rate": "50/s", "duration": "2s"},
            {"kind": "poisson", "rate": "50/s", "duration": "2s"},
        ],
    },
    {
        "kind": "windows",
        "windows": [["1s", "1500ms"]],
        "process": {"kind": "gamma", "rate": "100/s", "cv": 2.0, "duration": "5s"},
    },
]
"""With logarithms, powers and sines, of which this machine's may round otherwise."""

CASES = [(given, 0) for given in FIXED] + [(given, 1) for given in ROUNDED]


@pytest.mark.parametrize("seed", [7, 2**64 - 1])
@pytest.mark.parametrize(
    ("given", "slack"), CASES, ids=[f"{case['kind']}-{i}" for i, (case, _) in enumerate(CASES)]
)
def test_a_schedule_is_the_documented_formula_s(
    engine_binary: Path, tmp_path: Path, given: dict[str, Any], slack: int, seed: int
) -> None:
    arrivals = process(given).engine()
    table = dry_run(engine_binary, tmp_path, seed, [{"label": "grüße", "arrivals": arrivals}])
    times, bursts = table["scheduled"].to_pylist(), table["burst"].to_pylist()
    expected = list(schedule(Numbers(seed, "grüße"), arrivals))
    assert len(times) == len(expected)
    assert bursts == [number for _, number in expected]
    off = [abs(time - right) for time, (right, _) in zip(times, expected, strict=True)]
    assert max(off, default=0) <= slack


def test_every_kind_is_recomputed() -> None:
    assert {str(given["kind"]) for given, _ in CASES} == set(kinds())


NOT_RANDOM = ("constant", "burst", "times", "gaps", "counts", "ramp", "steps", "sine")


@pytest.mark.parametrize(
    "given",
    [
        *(
            given
            for given, _ in CASES
            if given["kind"] in NOT_RANDOM and given.get("placement") != "poisson"
        ),
        {
            "kind": "windows",
            "windows": [["500ms", "2s"], ["3s", "100s"]],
            "process": {
                "kind": "superposition",
                "processes": [
                    {"kind": "ramp", "from": "3/s", "to": "20/s", "duration": "5s"},
                    {"kind": "constant", "rate": "7/s", "duration": "4s"},
                    {"kind": "burst", "sizes": [2, 5], "interval": "300ms", "bursts": 20},
                ],
            },
        },
    ],
    ids=lambda given: str(given["kind"]),
)
def test_the_number_of_requests_is_foretold(
    engine_binary: Path, tmp_path: Path, given: dict[str, Any]
) -> None:
    arrivals = process(given)
    table = dry_run(engine_binary, tmp_path, 1, [{"arrivals": arrivals.engine()}])
    assert arrivals.expected_requests() == table.num_rows
    if "gap" not in given:
        assert max(table["scheduled"].to_pylist()) <= arrivals.span_ns()


@pytest.mark.parametrize(
    "given",
    [
        given
        for given, _ in CASES
        if given["kind"] not in (*NOT_RANDOM, "windows")
        and (given["kind"] != "uniform" or given["min_gap"] != given["max_gap"])
    ],
    ids=lambda given: str(given["kind"]),
)
def test_two_functions_never_send_in_lockstep(
    engine_binary: Path, tmp_path: Path, given: dict[str, Any]
) -> None:
    arrivals = process(given).engine()
    table = dry_run(engine_binary, tmp_path, 1, [{"arrivals": arrivals}, {"arrivals": arrivals}])
    first, second = (
        {row["scheduled"] for row in table.to_pylist() if row["function"] == name}
        for name in ("f0", "f1")
    )
    if "processes" in arrivals:
        # Bursts at a fixed interval are where they are.
        first = {time for time in first if time % NS_PER_S}
    assert first
    assert len(first & second) <= len(first) // 100
