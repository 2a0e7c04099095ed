"""The kernel of the prediction: against a plain loop, the closed form and the simulator."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from uncia.bandwidth import closed_form, cpu_time
from uncia.bandwidth.predict import model
from uncia.bandwidth.predict.kernel import Kernel, durations, followed
from uncia.bandwidth.presets import PRESETS, Quantiles, preset
from uncia.bandwidth.simulate import Setting, Task, simulate

MS = 1_000_000


def plain(kernel: Kernel, begin: int, work: int, quota: int) -> int:
    """One task, event by event, without arrays."""
    if quota >= kernel.period_ns:
        return work
    now, pool, own, unpaid = begin, quota, 1, 0
    while True:
        refill = (now // kernel.period_ns + 1) * kernel.period_ns
        tick = (now // kernel.tick_ns + 1) * kernel.tick_ns
        event = min(refill, tick)
        if work <= event - now:
            return now + work - begin
        work, unpaid, now = work - (event - now), unpaid + event - now, event
        if now == refill:
            pool = quota
        if now != tick:
            continue
        own, unpaid = own - unpaid, 0
        if own <= 0:
            taken = min(pool, kernel.slice_ns - own)
            pool, own = pool - taken, own + taken
        while own <= 0:
            now = (now // kernel.period_ns + 1) * kernel.period_ns
            given = min(quota, 1 - own)
            pool, own = quota - given, own + given


@st.composite
def cases(draw: st.DrawFn) -> tuple[Kernel, int, int, int]:
    period = draw(st.sampled_from((10, 20, 100))) * MS
    kernel = Kernel(period, draw(st.sampled_from((1, 4))) * MS, 5 * MS)
    begin = draw(st.integers(0, kernel.grid_ns - 1) | st.just(0) | st.just(period - MS))
    quota = draw(st.integers(MS // 2, period) | st.sampled_from((MS, 4 * MS, 8 * MS)))
    return kernel, begin, draw(st.integers(1, 60 * MS)), quota


@settings(max_examples=60, deadline=None)
@given(st.lists(cases(), min_size=1, max_size=8))
def test_tasks_are_followed_event_by_event(drawn):
    for kernel in {case[0] for case in drawn}:
        own = [case for case in drawn if case[0] == kernel]
        begin, work, quota = (np.array([case[place] for case in own]) for place in (1, 2, 3))
        found = durations(kernel, begin, work, quota).tolist()
        assert found == [plain(*case) for case in own]


def test_the_smallest_lambda_runs_for_a_tick_and_waits_two_or_three_periods():
    # Published profile at 128 MB: runs of 4 ms, then gaps of 36 or 56 ms.
    kernel = Kernel(20 * MS, 4 * MS, 5 * MS)
    work = np.arange(4 * MS + 1, 60 * MS, 4 * MS)
    ends = durations(kernel, np.zeros_like(work), work, np.full_like(work, 1_447_000))
    # 1 ns of each task lies after the gap that it ends with.
    gaps = np.diff(np.concatenate(([0], ends - work)))
    assert set(gaps.tolist()) == {36 * MS, 56 * MS}
    assert np.mean(gaps == 36 * MS) == pytest.approx(0.25, abs=0.05)


def test_quick_ticks_lead_to_the_closed_form():
    kernel = Kernel(20 * MS, MS // 1_000, MS // 1_000)
    quotas = [3 * MS, 7 * MS, 11 * MS, 19 * MS]
    work = 41 * MS + 300_000
    found = durations(
        kernel, np.zeros(4, dtype=np.int64), np.full(4, work), np.array(quotas, dtype=np.int64)
    )
    exact = [closed_form.duration(20 * MS, quota, work) for quota in quotas]
    # Of what runs after the last account there may be a tick in each period.
    assert np.abs(found - exact).max() <= 15 * MS // 1_000


def test_a_whole_vcpu_is_no_limit():
    kernel = Kernel(20 * MS, 4 * MS, 5 * MS)
    assert durations(kernel, np.array([3]), np.array([90 * MS]), np.array([20 * MS])) == 90 * MS


@pytest.mark.parametrize(
    ("period", "hz", "quotas"),
    [(20, 250, (1_447_000, 4 * MS, 11_306_000, 15_000_001)), (100, 1000, (8 * MS, 25 * MS))],
)
@pytest.mark.parametrize("fresh", [False, True])
def test_the_simulator_says_the_same_to_the_nanosecond(period, hz, quotas, fresh):
    kernel = Kernel(period * MS, 1_000 * MS // hz, 5 * MS)
    work = [17_300_000, 200_000, 41 * MS, 3_999_999]
    runs = 120
    done = simulate(
        [
            Setting(
                name=str(quota),
                period_ns=kernel.period_ns,
                quota_ns=quota,
                hz=hz,
                runs=runs,
                work=Task(
                    cpu_ns=work, gap_ns=(8 * kernel.period_ns, 9 * kernel.period_ns), fresh=fresh
                ),
            )
            for quota in quotas
        ],
        seed=3,
    )
    begin = done.invocations["started"].to_numpy().reshape(len(quotas), runs)
    took = done.durations().reshape(len(quotas), runs)
    has, quota = np.zeros(len(quotas), dtype=np.int64), np.array(quotas)
    left = []
    for place in range(runs):
        need = np.full(len(quotas), work[place % len(work)])
        found, after = followed(kernel, begin[:, place], need, quota, has)
        assert found.tolist() == took[:, place].tolist()
        has = np.zeros_like(after) if fresh else after
        left.append(after)
    # What debts leave and what a CPU keeps at most were both met.
    met = set(np.concatenate(left).tolist())
    assert MS in met
    assert 1 in met or (fresh and period == 100)


def test_predictions_are_the_same_each_time_and_shorter_with_more_cpu():
    own = preset("aws")
    cpu = cpu_time.parse("p5=15ms,p50=17ms,p95=19ms")
    sizes = [128, 512, 1000, 1769, 3000]
    for arrivals in (model.RANDOM, model.Arrivals(own.think, "closed")):
        first = model.predict(own, cpu, sizes, arrivals, samples=500, seed=7)
        again = model.predict(own, cpu, sizes, arrivals, samples=500, seed=7)
        assert all(
            np.array_equal(a.durations, b.durations) for a, b in zip(first, again, strict=True)
        )
        assert [one.durations.size for one in first] == [500] * 5
        means = [one.mean_ns for one in first]
        assert means == sorted(means, reverse=True)
        assert means[-1] == pytest.approx(float(cpu.mean), rel=1e-3)
        assert means[-2] == means[-1]


def test_one_at_a_time_durations_and_pauses_add_up_to_whole_periods():
    own = dataclasses.replace(preset("aws"), lost_ns=0)
    pause = 158 * MS
    arrivals = model.Arrivals(Quantiles(((0.0, pause - MS), (1.0, pause + MS))), "closed")
    found = model.predict(own, cpu_time.constant(17 * MS), [870], arrivals)[0]
    whole = found.quantiles_ns((0.5,))[0] + pause
    assert abs((whole + 10 * MS) % (20 * MS) - 10 * MS) < 1.5 * MS
    free = model.predict(own, cpu_time.constant(17 * MS), [870])[0]
    assert free.mean_ns < found.mean_ns


def test_what_a_sandbox_uses_itself_makes_functions_wait():
    own = preset("gcp")
    bare = dataclasses.replace(own, before=None, lost_ns=0)
    cpu = cpu_time.constant(17 * MS)
    sizes = [100_000, 200_000, 400_000]
    with_it, without = (
        [one.mean_ns for one in model.predict(preset_, cpu, sizes)] for preset_ in (own, bare)
    )
    assert with_it[0] > without[0] * 1.3
    assert with_it[1] > without[1] * 1.3
    assert with_it[2] == without[2] == 17 * MS + own.outside_ns


def test_presets_fit_the_platforms():
    for name, own in PRESETS.items():
        assert own.name == name
        assert own.quota_ns(own.whole) == own.platform.period_ns
        for quantiles in (own.before, own.think):
            if quantiles is not None:
                shares, values = zip(*quantiles.points, strict=True)
                assert shares[0] == 0
                assert shares[-1] == 1
                assert list(shares) == sorted(shares)
                assert list(values) == sorted(values)
        if own.errors:
            assert own.errors[-1][0] == own.whole
            assert own.error_at(own.whole) is None
            assert own.error_at(own.platform.least) == own.errors[0][1]
