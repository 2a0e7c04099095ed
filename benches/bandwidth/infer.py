"""How often inference is right: on simulated profiles of known settings, and on published ones.

    python benches/bandwidth/infer.py [--every N] [--hz 250,1000] [--runs 6] [--seed 1]
                                      [--late-us 15] [--others 0] [--drift-ppm 0]
    python benches/bandwidth/infer.py --calibrate N [--seed 1]
    python benches/bandwidth/infer.py --published FOLDER

A period counts as right within 2 %, a quota within 5 %; of a provider's profile the quota is the
share of CPU time that the profile shows. Simulated are periods of 5 to 100 ms, shares of 5 to 95 %
of a CPU (quotas of 1 ms and more), CFS with refills at whole periods and EEVDF with refills at a
random offset, whose probe resumes ``--late-us`` late and as much more on average. ``--every`` takes
one of so many settings, evenly. ``--others`` adds so many gaps of other causes to a throttle, of
0.5 to 3 ms while the probe runs; ``--drift-ppm`` lets each run's clock begin anywhere and go so
much fast or slow, as a guest's may. ``--calibrate`` draws so many settings and noises at random,
with ticks that may have an offset from whole multiples of the tick, and prints, of what is reported
with each confidence, how much is right.
"""

from __future__ import annotations

import argparse
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import numpy as np

from uncia.bandwidth import profiles
from uncia.bandwidth.infer import infer_trace
from uncia.bandwidth.infer import trace as traces
from uncia.bandwidth.infer.trace import Trace
from uncia.bandwidth.simulate import Probe, Setting, throttles

MS: Final = 10**6
PERIODS_MS: Final = (5, 10, 20, 40, 50, 80, 100)
SHARES: Final = (5, 7.5, 10, 15, 20, 25, 30, 40, 50, 60, 70, 80, 90, 95)
KEYS: Final = ("period_us", "quota_us", "hz", "scheduler")
CONFIDENCES: Final = (0.0, 0.6, 0.7, 0.8, 0.9, 0.95, 0.97, 1.01)
WITHIN: Final = {"period_us": 0.02, "quota_us": 0.05}
PROVIDERS: Final = {
    "aws-128MB": {"period_us": 20_000, "quota_us": None, "hz": 250, "scheduler": "cfs"},
    "gcp-0.08vcpu": {"period_us": 100_000, "quota_us": None, "hz": 1000, "scheduler": "cfs"},
}
LOCAL: Final = re.compile(r"(CFS|EEVDF)-H(\d+)P(\d+)Q(\d+)")

Truth = dict[str, Any]
Ints = np.ndarray[Any, np.dtype[np.int64]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--published", type=Path)
    parser.add_argument("--calibrate", type=int, metavar="N")
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--hz", default="250,1000")
    parser.add_argument("--runs", type=int, default=6)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--late-us", type=float, default=15)
    parser.add_argument("--others", type=float, default=0)
    parser.add_argument("--drift-ppm", type=float, default=0)
    given = parser.parse_args()
    if given.published is not None:
        published(given.published)
    elif given.calibrate is not None:
        calibrated(drawn(given.calibrate, given.seed))
    else:
        simulated([int(hz) for hz in given.hz.split(",")], given)


def published(folder: Path) -> None:
    """Whole profiles, and parts of them."""
    read = [(truth_of(path.name), profiles.read(path)) for path in sorted(folder.glob("*.json*"))]
    whole = [(truth, traces.from_profile(profile)) for truth, profile in read]
    parts = {
        "whole": (None, None),
        "10 runs": (10, None),
        "1 run": (1, None),
        "20 gaps of 1 run": (1, 20),
        "6 gaps of 1 run": (1, 6),
    }
    for name, (runs, gaps) in parts.items():
        tell(name, ((truth, part(trace, runs, gaps)) for truth, trace in whole))


def truth_of(name: str) -> Truth:
    """The setting that a published file's name tells."""
    match = LOCAL.search(name)
    if match is None:
        return PROVIDERS[name.split(".json")[0]]
    scheduler, hz, period, quota = match.groups()
    return dict(zip(KEYS, (int(period), int(quota), int(hz), scheduler.lower()), strict=True))


def part(trace: Trace, runs: int | None, gaps: int | None) -> Trace:
    """The first runs of a trace, and their first gaps."""
    kept = trace.runs[:runs]
    return traces.of([(run.end[:gaps], run.gap[:gaps]) for run in kept], trace.monotonic)


def simulated(rates: Sequence[int], given: argparse.Namespace) -> None:
    """The grid of settings."""
    rng = np.random.default_rng(given.seed)
    late_ns = round(given.late_us * 1e3)
    grid = [
        (period, period * share / 100, hz, scheduler, rng.uniform(0, period))
        for period in PERIODS_MS
        for share in SHARES
        for hz in rates
        for scheduler in ("cfs", "eevdf")
        if period * share >= 100
    ]
    cases = []
    for number, (period, quota, hz, scheduler, offset) in enumerate(grid[:: given.every]):
        setting = Setting.model_validate(
            {
                "name": f"{scheduler} {hz} Hz {quota:g} in {period:g} ms",
                "period_ns": period * MS,
                "quota_ns": round(quota * MS),
                "hz": hz,
                "scheduler": scheduler,
                "timer": "absolute" if scheduler == "cfs" else {"offset": round(offset * MS)},
                "wake_delay_ns": late_ns,
                "wake_jitter_ns": late_ns,
                "runs": given.runs,
                "work": Probe(duration_ns=10_000 * MS),
            }
        )
        pairs = throttles([setting], seed=given.seed + number)[0]
        truth = dict(zip(KEYS, (period * 1e3, quota * 1e3, hz, scheduler), strict=True))
        truth["name"] = setting.name
        runs = [with_others(starts, ends, given.others, rng) for starts, ends in pairs]
        trace = traces.of((ends, ends - starts) for starts, ends in runs)
        cases.append((truth, drifting(trace, given.drift_ppm, rng) if given.drift_ppm else trace))
    tell(f"{len(cases)} simulated settings", cases)


def drawn(count: int, seed: int) -> Iterator[tuple[Truth, Trace]]:
    """Profiles of random settings, of few or many runs, quiet or noisy."""
    for number in range(count):
        rng = np.random.default_rng([seed, number])
        period = float(rng.choice(PERIODS_MS))
        hz = int(rng.choice([100, 250, 300, 1000], p=[0.1, 0.45, 0.1, 0.35]))
        scheduler = str(rng.choice(["cfs", "eevdf"]))
        quota = max(1.0, period * float(rng.choice([*SHARES, rng.uniform(5, 95)])) / 100)
        late_ns = round(float(rng.choice([15, 60, 150])) * 1e3)
        # Ticks stand at whole multiples; or a part of a tick later, as with skew_tick or in kernels
        # before 6.4; or anywhere on a grid of milliseconds.
        offsets = [0.0, 0.0, rng.uniform(0, 1000 / hz), float(rng.integers(0, 1 + 1000 // hz))]
        setting = Setting.model_validate(
            {
                "name": f"{number}: {scheduler} {hz} Hz {quota:.4g} in {period:g} ms",
                "period_ns": round(period * MS),
                "quota_ns": round(quota * MS),
                "hz": hz,
                "scheduler": scheduler,
                "timer": "absolute"
                if scheduler == "cfs"
                else {"offset": round(rng.uniform(0, period) * MS)},
                "tick_offset_ns": round(float(rng.choice(offsets)) * MS) % round(1000 / hz * MS),
                "wake_delay_ns": late_ns,
                "wake_jitter_ns": late_ns,
                "runs": int(rng.choice([1, 3, 6])),
                "work": Probe(duration_ns=round(float(rng.choice([500, 2000, 10_000])) * MS)),
            }
        )
        pairs = throttles([setting], seed=number)[0]
        truth: Truth = dict(zip(KEYS, (period * 1e3, quota * 1e3, hz, scheduler), strict=True))
        truth["name"] = setting.name
        others = float(rng.choice([0, 0.03, 0.08]))
        runs = [with_others(starts, ends, others, rng) for starts, ends in pairs]
        trace = traces.of((ends, ends - starts) for starts, ends in runs)
        yield truth, drifting(trace, 50, rng) if rng.random() < 0.25 else trace


def calibrated(cases: Iterable[tuple[Truth, Trace]]) -> None:
    """Print, of what is told with each confidence, how much is right."""
    seen: dict[str, list[tuple[float, bool]]] = {key: [] for key in KEYS}
    nulls: Counter[str] = Counter()
    for truth, trace in cases:
        result = infer_trace(trace)
        answers = result.as_json()
        for key in KEYS:
            sure = result.confidence[key]
            if sure is None:
                nulls[key] += 1
                continue
            right = judged(key, answers[key], truth[key]) == "right"
            seen[key].append((sure, right))
            if not right:
                print(f"  {truth['name']}: {key} {answers[key]} with {sure}")
    for key, item in seen.items():
        print(f"{key}: {len(item)} told, {nulls[key]} null")
        for low, high in pairwise(CONFIDENCES):
            inside = [(sure, right) for sure, right in item if low <= sure < high]
            if inside:
                sure, right = np.mean(inside, axis=0)
                print(
                    f"  {low:.2f} to {high:.2f}: {len(inside)}, mean {sure:.3f}, right {right:.3f}"
                )


def with_others(
    starts: Ints, ends: Ints, share: float, rng: np.random.Generator
) -> tuple[Ints, Ints]:
    """The gaps of a run and, within the stretches between them, others; all in ascending order."""
    between = np.flatnonzero(rng.random(max(0, len(ends) - 1)) < share)
    length = rng.uniform(0.5 * MS, 3 * MS, len(between))
    room = starts[between + 1] - ends[between] - length
    fits = room > 0
    begin = (ends[between] + rng.random(len(between)) * room)[fits].astype(np.int64)
    end = begin + length[fits].astype(np.int64)
    all_starts, all_ends = np.concatenate([starts, begin]), np.concatenate([ends, end])
    order = np.argsort(all_ends)
    return all_starts[order], all_ends[order]


def drifting(trace: Trace, ppm: float, rng: np.random.Generator) -> Trace:
    """A trace whose runs have clocks of their own."""
    pairs = []
    for run in trace.runs:
        rate = 1 + rng.uniform(-ppm, ppm) / 1e6
        zero = rng.uniform(0, 1e12) - run.end[0]
        pairs.append(((run.end + zero) * rate, run.gap * rate))
    return traces.of(pairs, monotonic=False)


def tell(name: str, cases: Iterable[tuple[Truth, Trace]]) -> None:
    """Print how many answers are right, wrong and null."""
    counts: dict[str, Counter[str]] = {key: Counter() for key in KEYS}
    for truth, trace in cases:
        result = infer_trace(trace).as_json()
        for key in KEYS:
            right = truth[key]
            if right is None and result["period_us"] is not None:
                right = result["share"] * result["period_us"]
            message = judged(key, result[key], right)
            counts[key][message] += 1
            if message == "wrong":
                print(f"  {truth.get('name', truth)}: {key} {result[key]}")
    for key, counted in counts.items():
        figures = ", ".join(f"{counted[word]} {word}" for word in ("right", "wrong", "null"))
        print(f"{name}: {key}: {figures}")


def judged(key: str, found: Any, right: Any) -> str:
    """``right``, ``wrong`` or ``null``."""
    if found is None:
        return "null"
    if key in WITHIN:
        return "right" if abs(found / right - 1) <= WITHIN[key] else "wrong"
    return "right" if found == right else "wrong"


if __name__ == "__main__":
    main()
