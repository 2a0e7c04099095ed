"""Predicted durations: the same each time, and how arrivals and sandboxes change them."""

import dataclasses

import numpy as np
import pytest

from uncia.bandwidth import cpu_time
from uncia.bandwidth.predict import model
from uncia.bandwidth.presets import PRESETS, Quantiles, preset

MS = 1_000_000


def test_predictions_are_the_same_each_time_and_shorter_with_more_cpu():
    profile = preset("aws")
    cpu = cpu_time.parse("p5=15ms,p50=17ms,p95=19ms")
    sizes = [128, 512, 1000, 1769, 3000]
    for arrivals in (model.RANDOM, model.Arrivals(profile.think, "closed")):
        first = model.predict(profile, cpu, sizes, arrivals, samples=500, seed=7)
        again = model.predict(profile, cpu, sizes, arrivals, samples=500, seed=7)
        assert all(
            np.array_equal(a.durations, b.durations) for a, b in zip(first, again, strict=True)
        )
        assert [item.durations.size for item in first] == [500] * 5
        means = [item.mean_ns for item in first]
        assert means == sorted(means, reverse=True)
        assert means[-1] == pytest.approx(float(cpu.mean), rel=1e-3)
        assert means[-2] == means[-1]


def test_one_at_a_time_durations_and_pauses_add_up_to_whole_periods():
    profile = dataclasses.replace(preset("aws"), lost_ns=0)
    pause = 158 * MS
    arrivals = model.Arrivals(Quantiles(((0.0, pause - MS), (1.0, pause + MS))), "closed")
    result = model.predict(profile, cpu_time.constant(17 * MS), [870], arrivals)[0]
    whole = result.quantiles_ns((0.5,))[0] + pause
    assert abs((whole + 10 * MS) % (20 * MS) - 10 * MS) < 1.5 * MS
    free = model.predict(profile, cpu_time.constant(17 * MS), [870])[0]
    assert free.mean_ns < result.mean_ns


def test_what_a_sandbox_uses_itself_makes_functions_wait():
    profile = preset("gcp")
    bare = dataclasses.replace(profile, before=None, lost_ns=0)
    cpu = cpu_time.constant(17 * MS)
    sizes = [100_000, 200_000, 400_000]
    with_it, without = (
        [item.mean_ns for item in model.predict(preset_, cpu, sizes)] for preset_ in (profile, bare)
    )
    assert with_it[0] > without[0] * 1.3
    assert with_it[1] > without[1] * 1.3
    assert with_it[2] == without[2] == 17 * MS + profile.outside_ns


def test_several_cpu_times_are_predicted_at_once_as_each_alone():
    selected, sizes = preset("gcp"), [100_000, 1_000_000]
    cpus = [cpu_time.constant(item * MS) for item in (3, 16, 40)]
    for arrivals in (model.RANDOM, model.Arrivals(preset("aws").think, "closed")):
        each = model.predict_each(selected, cpus, sizes, arrivals, samples=120)
        for cpu, together in zip(cpus, each, strict=True):
            alone = model.predict(selected, cpu, sizes, arrivals, samples=120)
            assert [item.size for item in together] == sizes
            for entry, other in zip(together, alone, strict=True):
                assert np.array_equal(entry.durations, other.durations)
            assert set(together[1].durations.tolist()) == {cpu.points[0][0] + selected.outside_ns}
    assert model.predict_each(selected, cpus, []) == [[], [], []]


def test_requests_that_follow_at_once_find_what_the_last_one_left():
    """17 ms every 18 ms are more than a tenth of a CPU gives: each waits for the debts of all."""
    profile = preset("aws")
    soon = model.Arrivals(Quantiles(((0.0, MS), (1.0, MS))), "closed")
    cpu = cpu_time.constant(17 * MS)
    often, alone = (model.predict(profile, cpu, [177], when)[0] for when in (soon, model.RANDOM))
    assert often.mean_ns == pytest.approx(17 * MS / float(profile.share(177)), rel=0.02)
    assert alone.mean_ns < often.mean_ns * 0.95


def test_presets_fit_the_platforms():
    for name, item in PRESETS.items():
        assert item.name == name
        assert item.quota_ns(item.whole) == item.platform.period_ns
        for quantiles in (item.before, item.think):
            if quantiles is not None:
                shares, values = zip(*quantiles.points, strict=True)
                assert shares[0] == 0
                assert shares[-1] == 1
                assert list(shares) == sorted(shares)
                assert list(values) == sorted(values)
        if item.errors:
            assert item.errors[-1][0] == item.whole
            assert item.error_at(item.whole) is None
            assert item.error_at(item.platform.min_size) == item.errors[0][1]
