"""The closed form from Python, and its command: against other arithmetic and published values."""

import json
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from uncia.bandwidth import closed_form, cpu_time
from uncia.cli import build
from uncia.errors import UnciaError

MS = 1_000_000


def oracle(period: int, quota: int, need: int, phase: int) -> int:
    """Period by period, without the formula."""
    now, left = phase, min(quota, period - phase)
    while need > left:
        need -= left
        now = (now // period + 1) * period
        left = quota
    return now + need - phase


@st.composite
def tasks(draw: st.DrawFn) -> tuple[int, int, int, int]:
    period = draw(st.integers(MS, 100 * MS))
    quota = draw(st.integers(1, 16)) * period // 16
    return period, quota, draw(st.integers(0, 300 * MS)), draw(st.integers(0, period - 1))


@settings(max_examples=25, deadline=None)
@given(st.lists(tasks(), min_size=1, max_size=20), st.data())
def test_a_task_is_followed_period_by_period(drawn: list[tuple[int, int, int, int]], data):
    period, quota, need, phase = data.draw(st.sampled_from(drawn))
    control = closed_form.control_of_quota(period, quota)
    result = closed_form.sweep([control], cpu_time.constant(need), phase)[0]
    assert result.mean_ns == oracle(period, quota, need, phase)
    assert closed_form.duration(period, quota, need) == oracle(period, quota, need, 0)


def test_published_durations_come_out():
    # 0.07 vCPU is 740.0 ms as published for the three shortest periods, which is what floating
    # point makes of a remainder that is 0 (see the Rust test).
    shares = [100_000, 250_000, 330_000, 500_000, 750_000, 1_000_000]
    published = {
        5: [515.3, 205.55, 155.65, 101.8, 68.05, 51.8],
        10: [510.8, 201.8, 152.3, 101.8, 66.8, 51.8],
        20: [501.8, 201.8, 145.6, 101.8, 66.8, 51.8],
        40: [483.8, 201.8, 132.2, 91.8, 61.8, 51.8],
        80: [483.8, 171.8, 105.4, 91.8, 51.8, 51.8],
        100: [501.8, 201.8, 118.8, 101.8, 51.8, 51.8],
    }
    cpu = cpu_time.constant(closed_form.FIGURE_11)
    for period, durations in published.items():
        controls = [closed_form.control_of_share(period * MS, share) for share in shares]
        result = [float(row.mean_ns / MS) for row in closed_form.sweep(controls, cpu)]
        assert result == durations, f"period {period} ms"


def test_a_distribution_begun_anywhere_is_the_mean_of_its_parts():
    control = closed_form.control_of_quota(10 * MS, 3 * MS)
    cpu = cpu_time.weighted([(4 * MS, 3), (25 * MS, 1)])
    whole = closed_form.sweep([control], cpu, "random", [Fraction(1, 2), Fraction(1)])[0]
    parts = [
        closed_form.sweep([control], cpu_time.constant(value), "random")[0].mean_ns
        for value in (4 * MS, 25 * MS)
    ]
    assert whole.mean_ns == (3 * parts[0] + parts[1]) / 4
    assert whole.cases == 4 * 10 * MS
    # Between two phases of a kind the duration is linear: these hold the slowest case.
    assert whole.quantiles_ns[Fraction(1)] == max(
        oracle(10 * MS, 3 * MS, 25 * MS, phase) for phase in range(0, 10 * MS, MS // 4)
    )
    assert whole.cpu_ns == Fraction(37 * MS, 4)
    assert whole.factor is not None
    assert whole.factor > 1


def test_nothing_to_do_takes_no_time_and_has_no_factor():
    row = closed_form.sweep(
        [closed_form.control_of_quota(10 * MS, MS)], cpu_time.constant(0), "random"
    )[0]
    assert row.sum_ns == 0
    assert row.factor is None


def test_jumps_of_a_platform_are_the_least_sizes_with_the_quota():
    jumps = closed_form.jumps(20 * MS, [17_263_000], 128 * 20 * MS // 1769, 20 * MS)[0]
    for jump in jumps:
        size = jump.memory_mb(1769)
        at = closed_form.control_of_memory(20 * MS, size, 1769)
        below = closed_form.control_of_memory(20 * MS, size - 1, 1769)
        assert below.quota_ns < jump.quota_ns <= at.quota_ns
        assert oracle(20 * MS, at.quota_ns, 17_263_000, 0) <= jump.periods * 20 * MS
        assert oracle(20 * MS, below.quota_ns, 17_263_000, 0) > jump.periods * 20 * MS
        share = closed_form.control_of_share(20 * MS, jump.micro_vcpu)
        assert share.quota_ns >= jump.quota_ns
        spare = 20 * MS - jump.quota_ns
        assert jump.below_ns - jump.at_ns == pytest.approx(spare, abs=100)
        formula = spare**2 / (20 * MS) / (2 if jump.periods == 1 else 1)
        assert float(jump.mean_below_ns - jump.mean_at_ns) == pytest.approx(formula, abs=200)
    assert [jump.periods for jump in jumps] == list(range(1, 12))


def test_sizes_above_a_vcpu_are_a_whole_one():
    control = closed_form.control_of_memory(20 * MS, 3008, 1769)
    assert control.quota_ns == control.period_ns
    assert control.share == 1


@pytest.mark.parametrize(
    ("period", "quota", "words"),
    [
        (MS - 1, MS // 2, "beyond what the kernel takes"),
        (1_000 * MS + 1, MS, "beyond what the kernel takes"),
        (20 * MS, 0, "nothing would run"),
        (20 * MS, 21 * MS, "above one vCPU"),
    ],
)
def test_what_is_no_control_is_told(period: int, quota: int, words: str):
    with pytest.raises(UnciaError, match=words):
        closed_form.control_of_quota(period, quota)


def test_a_phase_beyond_the_period_is_told():
    control = closed_form.control_of_quota(20 * MS, MS)
    with pytest.raises(UnciaError, match="does not lie within the period"):
        closed_form.sweep([control], cpu_time.constant(MS), 20 * MS)


def run(*arguments: str):
    return CliRunner().invoke(build(), ["cpu", "duration", *arguments])


def test_the_command_prints_exact_json():
    done = run("--period", "20ms", "--vcpu", "0.07,0.5", "--json")
    assert done.exit_code == 0, done.output
    result = json.loads(done.stdout)
    first = result["durations"][0]
    assert (first["sum_ns"], first["cases"], first["vcpu"]) == ("721400000", "1", "0.07")
    assert first["reciprocal_ms"] == 740.0
    assert first["over_allocation"] == pytest.approx(740 / 721.4)
    assert first["memory_mb"] is None
    assert [jump["periods"] for jump in result["jumps"]] == list(range(6, 38))
    assert result["jumps"][0]["quota_ns"] == str(-(-51_800_000 // 6))


def test_the_command_takes_sizes_of_a_platform_at_any_phase(tmp_path: Path):
    page = tmp_path / "d.html"
    done = run(
        *("--like", "aws", "--memory", "128..1769/100", "--cpu-time", "17.263ms"),
        *("--phase", "random", "--json", "--html", str(page)),
    )
    assert done.exit_code == 0, done.output
    result = json.loads(done.stdout)
    assert [row["memory_mb"] for row in result["durations"]] == list(range(128, 1770, 100))
    assert {row["period_ns"] for row in result["durations"]} == {"20000000"}
    assert all(int(row["p50_ns"]) <= int(row["p95_ns"]) for row in result["durations"])
    assert all(row["over_allocation"] >= 1 for row in result["durations"])
    html = page.read_text()
    assert "Over-allocation" in html
    assert "1,728 MB" in html


@pytest.mark.parametrize(
    ("like", "first", "last", "count"),
    [("aws", 128, 1769, 27), ("gcp", "0.08", "1", 93), ("ibm", "0.125", "1", 8)],
)
def test_a_platform_has_sizes_of_its_own(like: str, first: object, last: object, count: int):
    result = json.loads(run("--like", like, "--json").stdout)["durations"]
    sizes = [row["memory_mb"] or row["vcpu"] for row in result]
    assert (sizes[0], sizes[-1], len(sizes)) == (first, last, count)


def test_the_table_says_what_it_leaves_to_json():
    done = run("--period", "5ms", "--vcpu", "0.07..1/0.31")
    assert done.exit_code == 0, done.output
    assert "0.07 vCPU" in done.output
    assert "more jumps at smaller quotas: see --json" in done.output
    assert "1 of 4 quotas are below 1 ms" in done.output
    whole = run("--period", "20ms", "--vcpu", "1", "--cpu-time", "15ms")
    assert "No jump lies between these quotas" in whole.output


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--memory", "128"], "how much CPU comes with memory depends on the platform"),
        (["--memory", "128", "--like", "gcp"], "CPU does not scale with memory"),
        (["--like", "azure"], "the profile azure has no cpu"),
        (["--vcpu", "0.5", "--quota", "5ms"], "both set the size"),
        (["--period", "2s"], "beyond what the kernel takes"),
        (["--vcpu", "1.5"], "above one vCPU"),
        (["--quota", "30ms", "--period", "20ms"], "above one vCPU"),
        (["--phase", "sometimes"], "--phase"),
        (["--phase", "50ms"], "does not lie within the period"),
        (["--cpu-time", "fast"], "--cpu-time"),
        (["--html", "page.txt"], "not named *.html"),
    ],
)
def test_bad_options_are_told_in_words(arguments: list[str], words: str):
    with pytest.raises(UnciaError) as caught:
        CliRunner().invoke(build(), ["cpu", "duration", *arguments], catch_exceptions=False)
    assert words in str(caught.value)
    assert caught.value.exit_code == 2
