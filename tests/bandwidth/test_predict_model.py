"""Predicted durations: the same each time, and how arrivals and sandboxes change them."""

import dataclasses

import numpy as np
import pytest

from uncia.bandwidth import cpu_time
from uncia.bandwidth.predict import model
from uncia.bandwidth.presets import PRESETS, Quantiles, preset

MS = 1_000_000


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


def test_several_cpu_times_are_predicted_at_once_as_each_alone():
    own, sizes = preset("gcp"), [100_000, 1_000_000]
    cpus = [cpu_time.constant(one * MS) for one in (3, 16, 40)]
    for arrivals in (model.RANDOM, model.Arrivals(preset("aws").think, "closed")):
        each = model.predict_each(own, cpus, sizes, arrivals, samples=120)
        for cpu, found in zip(cpus, each, strict=True):
            alone = model.predict(own, cpu, sizes, arrivals, samples=120)
            assert [one.size for one in found] == sizes
            for one, other in zip(found, alone, strict=True):
                assert np.array_equal(one.durations, other.durations)
            assert set(found[1].durations.tolist()) == {cpu.points[0][0] + own.outside_ns}
    assert model.predict_each(own, cpus, []) == [[], [], []]


def test_requests_that_follow_at_once_find_what_the_last_one_left():
    """17 ms every 18 ms are more than a tenth of a CPU gives: each waits for the debts of all."""
    own = preset("aws")
    soon = model.Arrivals(Quantiles(((0.0, MS), (1.0, MS))), "closed")
    cpu = cpu_time.constant(17 * MS)
    often, alone = (model.predict(own, cpu, [177], when)[0] for when in (soon, model.RANDOM))
    assert often.mean_ns == pytest.approx(17 * MS / float(own.share(177)), rel=0.02)
    assert alone.mean_ns < often.mean_ns * 0.95


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
            assert own.error_at(own.platform.min_size) == own.errors[0][1]
