"""Which gaps are throttles, by the refills in them, and what is expected by the baseline."""

import pytest

from uncia.bandwidth.profiles import ProbeRun, Profile
from uncia.bandwidth.profiles import noise as profile_noise

MS = 1_000_000
PERIOD = 20 * MS
OFFSET = 7 * MS  # of the refills, on a clock that began elsewhere


def run(*gaps: tuple[int, int]) -> ProbeRun:
    """Gaps from ... to ..., in ns since a refill."""
    return ProbeRun(0, None, [(OFFSET + end, end - start) for start, end in gaps])


def throttles(count: int = 12) -> list[tuple[int, int]]:
    """4 ms of running, then throttled until a refill: one after 40 ms, the next after 60 ms."""
    gaps, refill = [], 0
    for number in range(count):
        start = refill + 4 * MS
        refill += 40 * MS + number % 2 * 20 * MS
        gaps.append((start, refill + 30_000 + number * 1_000))
    return gaps


def test_refills_are_counted_in_each_gap() -> None:
    result = profile_noise.refills_inside(run(*throttles()), PERIOD)
    assert result is not None
    assert result.tolist() == [2, 3] * 6


def test_a_pause_between_refills_is_no_throttle() -> None:
    gaps = throttles()
    pause = (gaps[3][1] + 1 * MS, gaps[3][1] + 2 * MS)
    result = profile_noise.refills_inside(run(*gaps[:4], pause, *gaps[4:]), PERIOD)
    assert result is not None
    assert result.tolist() == [2, 3, 2, 3, 0, 2, 3, 2, 3, 2, 3, 2, 3]


def test_many_short_pauses_do_not_hide_the_refills() -> None:
    gaps = throttles()
    pauses = [
        (end + at * MS // 7, end + at * MS // 7 + 30_000)
        for _, end in gaps
        for at in range(1, 22, 7)
    ]
    result = profile_noise.refills_inside(run(*sorted(gaps + pauses)), PERIOD)
    assert result is not None
    assert (result.sum(), (result == 0).sum()) == (30, len(pauses))


@pytest.mark.parametrize("late", [2 * MS, 9 * MS])
def test_a_throttle_that_ends_late_is_one(late: int) -> None:
    gaps = throttles()
    gaps[5] = (gaps[5][0], gaps[5][1] + late)
    gaps = [*gaps[:6], (gaps[5][1] + MS, gaps[6][1]), *gaps[7:]]
    result = profile_noise.refills_inside(run(*gaps), PERIOD)
    assert result is not None
    assert result.min() >= 2


def test_refills_on_both_sides_of_the_clock_s_whole_periods() -> None:
    # Ends just before and after a whole period are at one place.
    shifted = ProbeRun(
        0, None, [(end + PERIOD - OFFSET - 35_000, gap) for end, gap in run(*throttles()).events]
    )
    result = profile_noise.refills_inside(shifted, PERIOD)
    assert result is not None
    assert result.tolist() == [2, 3] * 6


def test_what_cannot_be_judged_is_not() -> None:
    assert profile_noise.refills_inside(run(*throttles(7)), PERIOD) is None
    # Of another period: ends stand anywhere.
    assert profile_noise.refills_inside(run(*throttles(40)), 17 * MS + 1) is None
    profile = Profile([run(*throttles(3))], "here", "ns")
    result = profile_noise.judge(profile, PERIOD, None, 10**9)
    assert result == {
        "gaps": 3,
        "judged": 0,
        "without_refill": None,
        "refills": None,
        "expected_false": None,
    }


def test_the_baseline_is_scaled_to_the_time_that_ran() -> None:
    profile = Profile([run(*throttles())], "here", "ns")
    baseline = {"jumps": 10, "cpu_ns": 2 * 10**9}
    result = profile_noise.judge(profile, PERIOD, baseline, 10**9)
    assert result["expected_false"] == 5
    assert (result["judged"], result["without_refill"], result["refills"]) == (12, 0, 30)
    assert (
        profile_noise.judge(profile, PERIOD, {"jumps": 0, "cpu_ns": 0}, 5)["expected_false"] is None
    )
