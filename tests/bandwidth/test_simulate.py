"""The simulator from Python and from the command line, with the real engine."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from uncia.bandwidth import kernels
from uncia.bandwidth.simulate import Pattern, Probe, Setting, Task, durations, simulate, throttles
from uncia.cli import build
from uncia.errors import UnciaError

MS = 1_000_000


def smallest_lambda(runs: int = 3) -> Setting:
    return Setting(
        name="128 MB",
        period_ns=20 * MS,
        quota_ns=1_447_000,
        runs=runs,
        work=Probe(duration_ns=10_000 * MS),
    )


def test_the_tables_tell_the_published_example() -> None:
    result = simulate([smallest_lambda()], seed=3)
    rows, spans = result.invocations.to_pylist(), result.spans.to_pylist()
    assert [row["function"] for row in rows] == ["128 MB"] * 3
    for row in rows:
        selected = [span for span in spans if span["invocation"] == row["invocation"]]
        gaps = [span["end"] - span["start"] for span in selected]
        assert {gap // MS for gap in gaps[1:]} == {36, 56}
        assert row["execution"] == row["ended"] - row["started"]
        assert row["cpu_user"] + sum(gaps) == row["execution"]
        assert row["allocated_cpu"] == 72_350
        assert row["throttled_time"] == pytest.approx(sum(gaps), abs=56 * MS)
        assert row["throttled_count"] > 450  # of the 500 periods of 10 s


def test_the_seed_decides_and_settings_do_not_disturb_each_other() -> None:
    result, two = smallest_lambda(), smallest_lambda(1)
    assert simulate([result], seed=3).spans.equals(simulate([result], seed=3).spans)
    assert not simulate([result], seed=3).spans.equals(simulate([result], seed=4).spans)
    alone = simulate([result], seed=3).durations()
    both = simulate([result, two], seed=3).invocations
    assert both.num_rows == 4
    assert np.array_equal(both["execution"].to_numpy()[:3], alone)


def test_a_pattern_sleeps_and_runs() -> None:
    work = Pattern(duration_ns=1_000 * MS, threads=[[{"run_ns": 1 * MS}, {"sleep_ns": 9 * MS}]])
    result = simulate([Setting(period_ns=100 * MS, quota_ns=50 * MS, work=work)])
    row = result.invocations.to_pylist()[0]
    assert row["cpu_user"] == 100 * MS
    assert row["throttled_count"] == 0


def test_a_wrong_setting_is_named() -> None:
    bad = smallest_lambda().model_copy(update={"period_ns": 5})
    with pytest.raises(UnciaError, match=r"settings\[0\] \(128 MB\).*1 ms to 1 s"):
        simulate([bad])


def test_many_settings_under_many_quotas_are_the_same_as_each_alone() -> None:
    settings = [
        Setting(
            name=str(number),
            period_ns=20 * MS,
            quota_ns=None,
            hz=hz,
            runs=runs,
            work=Task(cpu_ns=[17 * MS, 30 * MS], fresh=fresh),
        )
        for number, (hz, runs, fresh) in enumerate(((250, 40, True), (1000, 30, False)))
    ]
    quotas = [1_447_000, 11 * MS, None]
    result = durations(settings, quotas, seed=5)
    assert [item.shape for item in result] == [(3, 40), (3, 30)]
    assert set(result[0][2].tolist()) == {17 * MS, 30 * MS}
    for index, quota in enumerate(quotas):
        rows = simulate(
            [setting.model_copy(update={"quota_ns": quota}) for setting in settings], seed=5
        )
        for number, item in enumerate(result):
            assert np.array_equal(item[index], rows.durations(str(number)))
    assert np.array_equal(durations(settings[:1], seed=5)[0], result[0][2:])
    assert durations([], quotas) == []


def test_throttles_of_many_runs_are_the_spans() -> None:
    none = smallest_lambda(1).model_copy(update={"quota_ns": None})
    settings = [smallest_lambda(), none, smallest_lambda(2)]
    result = throttles(settings, seed=3)
    assert [len(runs) for runs in result] == [3, 1, 2]
    assert [len(item) for item in result[1][0]] == [0, 0]
    spans = simulate(settings, seed=3).spans.to_pylist()
    selected = [
        (start, end)
        for runs in result
        for starts, ends in runs
        for start, end in zip(starts.tolist(), ends.tolist(), strict=True)
    ]
    assert selected == [(span["start"], span["end"]) for span in spans]
    assert throttles([]) == []


def test_what_is_given_is_simulated() -> None:
    """Starts, sleeps in turn, and what a CPU has: 1 ms more of it delays the throttle by a tick."""
    work = Task(cpu_ns=[8 * MS], sleeps_ns=[0, 91 * MS, 77 * MS], sleeps_in_turn=True)
    given = Setting(
        period_ns=20 * MS, quota_ns=None, runs=4, starts_ns=[40 * MS], kept_ns=0, work=work
    )
    assert simulate([given]).invocations["started"].to_pylist() == [
        40 * MS,
        139 * MS,
        224 * MS,
        232 * MS,
    ]
    # From 40 ms on, with ticks at 44 and 48: 3.5 ms are used up at 44, 4.5 ms are not.
    ends = []
    for remaining in (1, MS):
        setting = given.model_copy(update={"runs": 1, "remaining_ns": remaining})
        ends.append(durations([setting], [3 * MS + 500_000])[0].item())
    assert ends == [24 * MS, 8 * MS]


def test_a_wrong_setting_of_many_is_named() -> None:
    bad = smallest_lambda().model_copy(update={"period_ns": 5, "name": "short"})
    with pytest.raises(UnciaError, match=r"settings\[1\] \(short\).*1 ms to 1 s"):
        throttles([smallest_lambda(1), bad])
    with pytest.raises(UnciaError, match=r"settings\[0\] \(128 MB\).*nothing run"):
        durations([smallest_lambda(1)], [MS, 0])


@pytest.mark.parametrize(
    ("version", "scheduler", "throttling", "timer"),
    [
        ("5.10.201-amd64", "cfs", "group", "absolute"),
        ("6.2", "cfs", "group", "absolute"),
        ("6.5.0", "cfs", "group", "random"),
        ("6.8.0-1021-azure", "eevdf", "group", "random"),
        ("6.18.44", "eevdf", "task", "random"),
        ("7.0", "eevdf", "task", "random"),
    ],
)
def test_kernels_differ_by_version(
    version: str, scheduler: str, throttling: str, timer: str
) -> None:
    kernel = kernels.of_version(version)
    assert (kernel.scheduler, kernel.throttling, kernel.timer) == (scheduler, throttling, timer)


@pytest.mark.parametrize("version", ["4.19", "5.3", "linux", ""])
def test_kernels_that_are_not_modelled_are_refused(version: str) -> None:
    with pytest.raises(UnciaError):
        kernels.of_version(version)


def run(*arguments: str) -> str:
    done = CliRunner().invoke(build(), ["cpu", "simulate", *arguments])
    assert done.exit_code == 0, done.output
    return done.stdout


def test_the_command_gives_durations_of_tasks() -> None:
    given = ("--period", "20ms", "--quota", "10ms", "--cpu-time", "15ms", "--kernel", "6.2")
    result = json.loads(run(*given, "--hz", "250", "--runs", "400", "--json"))
    assert result["runs"] == 400
    assert result["cpu_time_mean_ms"] == 15.0
    assert 15.0 <= result["duration"]["p5_ms"] <= result["duration"]["mean_ms"] < 30
    assert result["duration"]["standard_error_ms"] > 0
    assert result["setting"]["scheduler"] == "cfs"
    assert "duration, ms: mean" in run(*given, "--runs", "10")


def test_the_command_gives_throttles_of_a_probe() -> None:
    given = ("--period", "20ms", "--vcpu", "0.07235", "--duration", "5s", "--kernel", "6.2")
    result = json.loads(run(*given, "--hz", "250", "--json"))
    assert result["throttle"]["p5_ms"] == 36.0
    assert result["throttle"]["p95_ms"] == 56.0
    assert result["cpu"]["p50_ms"] == 4.0
    whole = json.loads(run("--vcpu", "1", "--duration", "1s", "--kernel", "6.2", "--json"))
    assert whole["throttle"] == {
        "count": 0,
        "mean_ms": None,
        "p5_ms": None,
        "p25_ms": None,
        "p50_ms": None,
        "p75_ms": None,
        "p95_ms": None,
    }


def test_tasks_that_need_nothing_have_no_share() -> None:
    given = ("--quota", "5ms", "--cpu-time", "0ms", "--runs", "5")
    result = json.loads(run(*given, "--json"))
    assert (result["share"], result["duration"]["mean_ms"]) == (None, 0.0)
    assert "5 runs, 0 ticks\n" in run(*given)


def test_a_quota_that_no_kernel_takes_is_noted() -> None:
    given = ["cpu", "simulate", "--period", "20ms", "--duration", "1s", "--json"]
    for quota, noted in (("999us", True), ("1ms", False)):
        done = CliRunner().invoke(build(), [*given, "--quota", quota])
        assert json.loads(done.stdout)["setting"]["quota_ns"] == int(quota[:-2]) * (
            1_000 if noted else 1_000_000
        )
        assert ("EINVAL" in done.stderr) is noted


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--quota", "5ms"), "either tasks or a probe"),
        (("--cpu-time", "5ms"), "either a quota or a share"),
        (("--quota", "5ms", "--vcpu", "1", "--cpu-time", "5ms"), "either a quota or a share"),
        (("--quota", "5", "--cpu-time", "5ms"), "is not a duration"),
        (("--quota", "5ms", "--cpu-time", "5ms", "--period", "2s"), "1 ms to 1 s"),
        (("--quota", "5ms", "--cpu-time", "5ms", "--kernel", "4.4"), "not modelled"),
        (("--quota", "5ms", "--cpu-time", "5ms", "--threads", "2"), "--threads"),
        (("--quota", "5ms", "--cpu-time", "5ms", "--idle", "9ms..1ms"), "the longer"),
        (("--quota", "5ms", "--duration", "1s", "--idle", "1ms..9ms"), "--idle is for tasks"),
        (("--quota", "5ms", "--cpu-time", "5ms", "--burst", "6ms"), "burst"),
        (("--quota", "5ms", "--duration", "0s"), "--duration: 0s is too short"),
    ],
)
def test_what_makes_no_sense_is_told(arguments: tuple[str, ...], words: str) -> None:
    done = CliRunner().invoke(build(), ["cpu", "simulate", *arguments])
    assert done.exit_code != 0
    assert words in str(done.exception) or words in done.output


def test_a_profile_of_no_time_is_refused_before_anything_is_made(tmp_path: Path) -> None:
    out = tmp_path / "run"
    given = ["cpu", "profile", "--quota", "5ms", "--duration", "0s", "--out", str(out)]
    done = CliRunner().invoke(build(), given)
    assert "--duration: 0s is too short" in str(done.exception) + done.output
    assert not out.exists()
