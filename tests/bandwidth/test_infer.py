"""Inference of settings: published profiles, simulated ones, and those that tell nothing."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from uncia.bandwidth import profiles
from uncia.bandwidth.infer import infer, infer_trace
from uncia.bandwidth.infer import trace as traces
from uncia.bandwidth.simulate import Probe, Setting, simulate
from uncia.errors import UnciaError

MS = 10**6
SECOND = 10**9
PUBLISHED = Path(__file__).parent.parent / "data" / "infer"

Pair = tuple[traces.Floats, traces.Floats]


def runs_of(setting: Setting, seed: int = 0) -> list[Pair]:
    """Ends and lengths of the throttles of each run of a setting, ns."""
    spans = simulate([setting], seed=seed).spans
    names = np.array(spans["invocation"].to_pylist())
    start, end = spans["start"].to_numpy(), spans["end"].to_numpy()
    result: list[Pair] = []
    for name in dict.fromkeys(names.tolist()):
        rows = names == name
        order = np.argsort(end[rows])
        ends = end[rows][order].astype(np.float64)
        result.append((ends, ends - start[rows][order].astype(np.float64)))
    return result


def setting(
    period_ms: float,
    quota_ms: float,
    hz: int,
    scheduler: str,
    *,
    offset_ms: float = 3.3,
    runs: int = 6,
) -> Setting:
    cfs = scheduler == "cfs"
    return Setting(
        period_ns=round(period_ms * MS),
        quota_ns=round(quota_ms * MS),
        hz=hz,
        scheduler="cfs" if cfs else "eevdf",
        timer="absolute" if cfs else {"offset": round(offset_ms * MS)},
        wake_delay_ns=15_000,
        wake_jitter_ns=30_000,
        runs=runs,
        work=Probe(duration_ns=5 * SECOND),
    )


@pytest.mark.parametrize(
    ("name", "period_us", "quota_us", "hz", "scheduler"),
    [
        ("aws-128MB", 20_000, 1_447, 250, "cfs"),
        ("cfs-1000hz-10ms-5ms", 10_000, 5_000, 1000, "cfs"),
        ("cfs-250hz-20ms-1.447ms", 20_000, 1_447, 250, "cfs"),
        ("eevdf-250hz-20ms-1.447ms", 20_000, 1_447, 250, "eevdf"),
    ],
)
def test_published_profiles(
    name: str, period_us: int, quota_us: int, hz: int, scheduler: str
) -> None:
    result = infer(profiles.read(PUBLISHED / f"{name}.json.gz"))
    assert result.period_us == pytest.approx(period_us, rel=0.02)
    assert result.quota_us == pytest.approx(quota_us, rel=0.05)
    assert (result.hz, result.scheduler) == (hz, scheduler)
    assert all(item is not None and item > 0.5 for item in result.confidence.values())


def shifted(period_ms: float, quota_ms: float, hz: int, ticks_ms: float) -> traces.Trace:
    """A profile under EEVDF whose ticks are so much later than whole multiples of the tick."""
    moved = setting(period_ms, quota_ms, hz, "eevdf", runs=2)
    changes = {"tick_offset_ns": round(ticks_ms * MS)}
    return traces.of(runs_of(moved.model_copy(update=changes)))


@pytest.mark.parametrize("ticks_ms", [0, 1, 2, 3, 1.7])
def test_ticks_that_are_shifted_by_milliseconds_are_no_finer_ticks(ticks_ms: float) -> None:
    result = infer_trace(shifted(20, 5, 250, ticks_ms))
    assert (result.period_us, result.hz) == (20_000, 250)


@pytest.mark.parametrize(("period_ms", "quota_ms"), [(20, 8), (40, 4), (100, 80)])
def test_whole_ticks_that_are_shifted_tell_no_rate_or_the_right_one(
    period_ms: float, quota_ms: float
) -> None:
    result = infer_trace(shifted(period_ms, quota_ms, 250, 1))
    assert result.period_us == period_ms * 1000
    assert result.hz in (None, 250)
    assert (result.confidence["hz"] is None) == (result.hz is None)


def test_a_late_probe_shows_no_random_offset() -> None:
    late = setting(50, 5, 250, "cfs").model_copy(
        update={"wake_delay_ns": 150_000, "wake_jitter_ns": 150_000}
    )
    result = infer_trace(traces.of(runs_of(late)))
    assert (result.period_us, result.scheduler) == (50_000, "cfs")


def test_a_clock_that_is_not_the_kernels_tells_period_and_ticks_but_no_scheduler() -> None:
    profile = profiles.read(PUBLISHED / "gcp-0.08vcpu.json.gz")
    result = infer(profile)
    interval, _, cpu = profile.arrays()
    assert result.period_us == pytest.approx(100_000, rel=0.02)
    assert result.share == pytest.approx(cpu.sum() / interval.sum(), rel=0.01)
    assert result.hz == 1000
    assert result.scheduler is None
    assert any("clock" in note for note in result.notes)


@pytest.mark.parametrize("scheduler", ["cfs", "eevdf"])
@pytest.mark.parametrize(
    ("period_ms", "quota_ms", "hz"),
    [
        (5, 1.3, 250),
        (5, 3.1, 1000),
        (10, 1.25, 250),
        (20, 5.787, 250),
        (20, 11.58, 250),
        (20, 1.447, 1000),
        (50, 22.3, 250),
        (80, 5.76, 1000),
        (100, 25, 250),
        (100, 62.5, 1000),
        (40, 13.1, 300),
        (50, 13, 100),
    ],
)
def test_simulated_settings(period_ms: float, quota_ms: float, hz: int, scheduler: str) -> None:
    runs = runs_of(setting(period_ms, quota_ms, hz, scheduler))
    result = infer_trace(traces.of(runs))
    assert result.period_us == pytest.approx(period_ms * 1000, rel=0.02)
    assert result.quota_us == pytest.approx(quota_ms * 1000, rel=0.05)
    assert (result.hz, result.scheduler) == (hz, scheduler)


def test_gaps_of_another_cause_change_nothing() -> None:
    rng = np.random.default_rng(4)
    mixed = []
    for end, gap in runs_of(setting(20, 5.787, 250, "eevdf")):
        kept = [(e, g) for e, g in zip(end, gap, strict=True)]
        for before, after, length in zip(end[:-1], end[1:], gap[1:], strict=True):
            lost = rng.uniform(0.5, 1.5) * MS
            if rng.random() < 0.1 and after - length - before > lost + 0.2 * MS:
                kept.append((rng.uniform(before + lost, after - length), lost))
        kept.sort()
        mixed.append((np.array([e for e, _ in kept]), np.array([g for _, g in kept])))
    result = infer_trace(traces.of(mixed))
    assert (result.period_us, result.hz) == (20_000, 250)
    assert result.quota_us == pytest.approx(5_787, rel=0.05)
    assert result.on_grid is not None
    assert result.on_grid < 0.97


def test_runs_on_other_clocks_are_not_laid_over_each_other() -> None:
    """The scheduler was known by the clock: with clocks of nobody it is not told."""
    rng = np.random.default_rng(1)
    moved = [
        (end + float(rng.integers(0, 10**13)), gap)
        for end, gap in runs_of(setting(20, 1.447, 250, "eevdf"))
    ]
    result = infer_trace(traces.of(moved))
    assert (result.period_us, result.hz, result.scheduler) == (20_000, 250, None)


def test_where_rates_look_the_same_none_is_told() -> None:
    """8 ms are two ticks of 250 Hz and eight of 1000: with exact ticks both throttle at 8 ms."""
    ends = [(np.arange(n, n + 60) * 100.0 + 0.03) * MS for n in (900, 1800, 2712)]
    gaps = np.full(60, 92.03 * MS)
    result = infer_trace(traces.of([(end, gaps) for end in ends]))
    assert result.period_us == 100_000
    assert result.quota_us == pytest.approx(8_000, rel=0.01)
    assert result.hz is None
    assert result.confidence["hz"] is None
    assert any("250 or 1000" in note for note in result.notes)


def test_a_quota_of_which_some_expires_is_a_range() -> None:
    """19 ms of 20 at 250 Hz: a queue that runs across refills loses what is left in the pool."""
    result = infer_trace(traces.of(runs_of(setting(20, 19, 250, "cfs"), seed=2)))
    assert result.share is not None
    assert result.share < 0.93
    assert result.quota_us == pytest.approx(19_000, rel=0.05)
    assert any("expires" in note for note in result.notes)


def test_a_share_that_varies_from_run_to_run_tells_no_quota() -> None:
    """As where some runs are scaled down, which no setting of one quota would show."""
    runs = runs_of(setting(20, 1.447, 250, "cfs")) + runs_of(setting(20, 11, 250, "cfs"), seed=1)
    result = infer_trace(traces.of(runs))
    assert result.period_us == 20_000
    assert result.share is not None
    assert (result.quota_us, result.confidence["quota_us"]) == (None, None)
    assert any("varies" in note for note in result.notes)


def test_few_throttles_tell_less_and_say_so() -> None:
    runs = runs_of(setting(20, 1.447, 250, "cfs", runs=1))
    few = infer_trace(traces.of([(end[:6], gap[:6]) for end, gap in runs]))
    many = infer_trace(traces.of(runs))
    assert many.period_us == 20_000
    assert few.period_us in (None, 20_000)
    assert (few.confidence["period_us"] or 0) < (many.confidence["period_us"] or 0)


@pytest.mark.parametrize(
    ("runs", "words"),
    [
        ([], "no gap"),
        ([([], []), ([], [])], "no gap"),
        ([([5.0 * SECOND], [36.0 * MS])], "two gaps"),
    ],
)
def test_nothing_is_told_of_nothing(
    runs: Sequence[tuple[list[float], list[float]]], words: str
) -> None:
    result = infer_trace(traces.of(runs))
    assert (result.period_us, result.quota_us, result.hz, result.scheduler) == (None,) * 4
    assert set(result.confidence.values()) == {None}
    assert words in result.notes[0]


def test_gaps_at_random_are_no_throttles() -> None:
    rng = np.random.default_rng(7)
    runs = [
        (np.sort(rng.uniform(0, 10 * SECOND, 60)) + n * 11 * SECOND, np.full(60, 0.8 * MS))
        for n in range(6)
    ]
    result = infer_trace(traces.of(runs))
    assert (result.period_us, result.hz, result.scheduler) == (None, None, None)
    assert result.share is not None


@pytest.mark.parametrize("others", [1, 2])
@pytest.mark.parametrize("most", [20, 100, None])
def test_turns_of_other_tasks_are_no_throttles(others: int, most: int | None) -> None:
    """Measured without any quota: gaps of a tick, or two, between ticks at which the loop ran."""
    trace = traces.from_profile(profiles.read(PUBLISHED / f"preempted-{others}.json.gz"))
    for runs in (trace.runs, *((run,) for run in trace.runs)):
        result = infer_trace(traces.of([(run.end[:most], run.gap[:most]) for run in runs]))
        assert (result.period_us, result.quota_us, result.hz, result.scheduler) == (None,) * 4
        assert result.notes


def test_refills_at_ticks_are_told_from_turns_by_the_grid_that_they_keep_to() -> None:
    """16 ms at 250 Hz: each gap begins and ends at a tick, as turns do."""
    kept = runs_of(setting(16, 6, 250, "cfs", runs=2))
    result = infer_trace(traces.of(kept))
    assert (result.period_us, result.scheduler) == (16_000, "cfs")
    rng = np.random.default_rng(3)
    # From here and there on a tick later, as after a turn that was longer.
    late = [(end + np.cumsum(rng.random(len(end)) < 0.05) * 4 * MS, gap) for end, gap in kept]
    result = infer_trace(traces.of(late))
    assert (result.period_us, result.quota_us, result.hz, result.scheduler) == (None,) * 4
    assert any("turns" in note for note in result.notes)


def test_without_the_engine_nothing_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    profile = profiles.read(PUBLISHED / "eevdf-250hz-20ms-1.447ms.json.gz")
    monkeypatch.setenv("UNCIA_ENGINE", str(tmp_path / "absent"))
    with pytest.raises(UnciaError, match="UNCIA_ENGINE names"):
        infer(profile)


@pytest.mark.parametrize("offset_ms", [0.0, 1.0, 10 / 3, 5.7])
def test_times_without_the_kernels_zero_tell_no_scheduler_and_no_wrong_rate(
    offset_ms: float,
) -> None:
    # As a function's run has them: from the run's epoch. Moved so that ticks of another rate would
    # seem to stand at whole multiples.
    pairs = runs_of(setting(100, 14.5, 250, "cfs", runs=1))
    moved = [(ends[:41] + offset_ms * MS, gaps[:41]) for ends, gaps in pairs]
    result = infer_trace(traces.of(moved, monotonic=False))
    assert result.period_us == pytest.approx(100_000, rel=0.02)
    assert result.hz in (250, None)
    assert result.scheduler is None
