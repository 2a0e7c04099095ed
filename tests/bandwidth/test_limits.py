"""What a container's CPU limit does: computed, and read from a group under load."""

import json
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from uncia.bandwidth import closed_form, limits, throttling
from uncia.bandwidth.cpu_time import constant
from uncia.bandwidth.throttling import Episode, Reading
from uncia.cli import build
from uncia.doctor.host import Host
from uncia.errors import UnciaError

MS = 1_000_000


def test_cpus_are_written_as_in_kubernetes() -> None:
    assert [limits.parse_cpu(text) for text in ("250m", "0.25", "2", "1.5")] == [
        250,
        250,
        2000,
        1500,
    ]
    assert [limits.cpu_text(milli) for milli in (250, 1000, 1500)] == ["250m", "1", "1500m"]
    for text in ("", "250x", "-1", "0.0001", "0", "0m", "1e3"):
        with pytest.raises(UnciaError):
            limits.parse_cpu(text)


def test_weights_are_the_kubelets() -> None:
    # KEP-2254: 1 CPU is 1024 shares, a weight of 39; the least is 2 shares, a weight of 1.
    assert (limits.shares(1000), limits.weight(1000)) == (1024, 39)
    assert (limits.shares(1), limits.weight(1)) == (2, 1)
    assert (limits.shares(10**9), limits.weight(10**9)) == (262_144, 10_000)


def test_small_limits_get_the_least_quota() -> None:
    assert limits.limit_of(1).quota_ns == MS
    assert limits.limit_of(250).cpu_max == "25000 100000"


@given(
    st.integers(1, 100).flatmap(lambda period: st.tuples(st.just(period), st.integers(1, period))),
    st.integers(1, 400),
)
def test_the_throttled_share_is_that_of_all_phases(control: tuple[int, int], cpu: int) -> None:
    """Counted at every unit of a period in which the task begins."""
    period, quota = control
    throttled = 0
    for phase in range(period):
        runs = closed_form.timeline(closed_form.Control(period, quota), cpu, phase)
        throttled += runs[-1][1] > cpu
    if quota < period:
        share = limits.throttled_share(period, quota, cpu)
        # A task whose quota ends just as the next period begins is not throttled: one phase of all.
        edge = Fraction(1, period) if quota < cpu <= 2 * quota else 0
        assert share - edge == Fraction(throttled, period)


@pytest.mark.parametrize("phase", [0, 1, 7_300_000, 99_999_999])
def test_the_timeline_ends_with_the_closed_form(phase: int) -> None:
    controls = [
        closed_form.control_of_quota(period * MS, quota * MS)
        for period, quota in [(100, 1), (100, 25), (100, 99), (100, 100), (1000, 333)]
    ]
    for cpu in (1, 25 * MS, 51_800_000, 1000 * MS):
        ends = [closed_form.timeline(control, cpu, phase)[-1][1] for control in controls]
        assert ends == [
            result.sum_ns for result in closed_form.sweep(controls, constant(cpu), phase)
        ]


def test_threads_share_cpu_time_and_quota() -> None:
    four = limits.effect(limits.limit_of(1000), constant(160 * MS), threads=4)
    effect = limits.effect(limits.limit_of(250), constant(40 * MS))
    assert four.mean_ns == effect.mean_ns
    assert four.throttled == effect.throttled == Fraction(9, 10)


def test_a_burst_lends_what_was_saved() -> None:
    bursting = limits.limit_of(250, burst_ns=15 * MS)
    assert limits.effect(bursting, constant(40 * MS)).mean_ns == 40 * MS
    plain = limits.effect(limits.limit_of(250), constant(100 * MS))
    burst = limits.effect(limits.limit_of(250, burst_ns=25 * MS), constant(100 * MS))
    assert plain.free_ns < burst.mean_ns < plain.mean_ns
    with pytest.raises(UnciaError, match="the kernel refuses"):
        limits.limit_of(250, burst_ns=26 * MS)


@given(st.integers(1, 1000), st.integers(1, 8))
def test_the_least_limit_never_throttles_and_one_less_does(cpu_ms: int, threads: int) -> None:
    times = constant(cpu_ms * MS)
    least = limits.least_limit(times, threads)
    assert limits.effect(limits.limit_of(least), times, threads).throttled == 0
    less = limits.limit_of(least - 1) if least > 1 else limits.limit_of(1)
    # A limit of 10m and less is 1 ms, the least that the kernel takes.
    if less.quota_ns + 2 * threads < limits.limit_of(least).quota_ns:
        assert limits.effect(less, times, threads).throttled > 0


def readings(*spans: tuple[int, int, int]) -> list[Reading]:
    """Readings every 100 ms from (usage, throttled periods, throttled time) in ms between them."""
    result = [Reading(0, 0, 0, 0, 0)]
    for usage, throttled, lost in spans:
        last = result[-1]
        result.append(
            Reading(
                last.time_ns + 100 * MS,
                last.usage_ns + usage * MS,
                last.periods + 1,
                last.throttled + throttled,
                last.throttled_ns + lost * MS,
            )
        )
    return result


def test_an_episode_has_the_cpu_time_around_it() -> None:
    # 40 ms at 250m, and later a request that is not throttled.
    result = throttling.episodes(
        readings((0, 0, 0), (25, 1, 75), (15, 0, 0), (0, 0, 0), (20, 0, 0))
    )
    assert result == [Episode(40 * MS, 1, True)]
    assert throttling.needed(result[0], 100 * MS) == 400


def test_an_episode_without_end_needs_all_its_cpus() -> None:
    (result,) = throttling.episodes(readings(*[(25, 1, 75)] * 10))
    assert result == Episode(250 * MS, 1, False)
    assert throttling.needed(result, 100 * MS) == 1000


def test_an_episode_that_the_end_cut_off_counts_if_it_is_the_largest() -> None:
    whole, cut = Episode(40 * MS, 1, True), Episode(25 * MS, 1, False)
    assert throttling.judged([whole, cut]) == [whole]
    assert throttling.judged([cut]) == [cut]
    longer = Episode(400 * MS, 1, False)
    assert throttling.judged([whole, longer]) == [whole, longer]


@given(st.lists(st.sampled_from([(0, 0, 0), (20, 0, 0), (25, 1, 75), (10, 0, 40)]), max_size=60))
def test_what_is_removed_changes_no_episode(spans: list[tuple[int, int, int]]) -> None:
    every = readings(*spans)
    kept: list[Reading] = []
    for reading in every:
        kept.append(reading)
        throttling.thin(kept)
    assert [(it.usage_ns, it.ended) for it in throttling.episodes(kept)] == [
        (it.usage_ns, it.ended) for it in throttling.episodes(every)
    ]
    assert kept[0] == every[0]
    assert kept[-1] == every[-1]


def test_quiet_hours_take_no_memory() -> None:
    kept: list[Reading] = []
    for reading in readings(*[(5, 0, 0)] * 10_000):
        kept.append(reading)
        throttling.thin(kept)
    assert len(kept) < 10


def test_the_command_names_what_is_wrong() -> None:
    def refused(*arguments: str) -> str:
        result = CliRunner().invoke(build(), ["cpu", "limits", *arguments])
        assert isinstance(result.exception, UnciaError)
        return str(result.exception)

    assert "--cpu and --cpu-time are missing" in refused()
    assert "no amount of CPUs" in refused("--cpu", "250x", "--cpu-time", "40ms")
    above = ("--cpu", "250m", "--cpu-time", "40ms", "--request", "1")
    assert "above the limit" in refused(*above)
    assert "no process 999999999" in refused("--watch", "999999999")
    assert "there is no group" in refused("--watch", "/nowhere")
    assert "--watch reads" in refused("--watch", "1", "--cpu", "1")
    assert "leaves no time" in refused("--watch", "1", "--duration", "0s")


def test_the_command_compares_limits() -> None:
    arguments = ["cpu", "limits", "--cpu", "250m", "--cpu-time", "40ms", "--rate", "3/s", "--json"]
    result = CliRunner().invoke(build(), arguments)
    document = json.loads(result.output)
    (row,) = (row for row in document["limits"] if row["given"])
    # The mean over all phases; a request that begins with a period takes 115 ms.
    assert row["mean_ns"] == pytest.approx(79.375 * MS, rel=1e-6)
    assert row["throttled"] == 0.9
    assert document["least_unthrottled_milli_cpu"] == 400
    assert document["utilization"] == pytest.approx(0.48)


@pytest.fixture
def group() -> Iterator[list[Path]]:
    """A group limited to 250m: its folder, and that which counts its CPU time if another does."""
    mounts = {name: mount for mount in Host().cgroup_mounts() for name in mount.controllers}
    if os.geteuid() != 0 or "cpu" not in mounts or not os.access(mounts["cpu"].path, os.W_OK):
        pytest.skip("needs root and the cpu controller")
    cpu = mounts["cpu"]
    name = f"uncia-limits-{uuid.uuid4().hex[:8]}"
    folders = list(dict.fromkeys([cpu.path / name, mounts.get("cpuacct", cpu).path / name]))
    switch = cpu.path / "cgroup.subtree_control"
    switched = cpu.version == 2 and "cpu" not in switch.read_text().split()
    if switched:
        switch.write_text("+cpu")
    for folder in folders:
        folder.mkdir(exist_ok=True)  # Both names may lead to one hierarchy.
    if cpu.version == 2:
        (folders[0] / "cpu.max").write_text("25000 100000")
    else:
        (folders[0] / "cpu.cfs_quota_us").write_text("25000")
    yield folders
    for folder in folders:
        if not folder.exists():
            continue
        for process in (folder / "cgroup.procs").read_text().split():
            os.kill(int(process), signal.SIGKILL)
        while (folder / "cgroup.procs").read_text().strip():
            time.sleep(0.01)
        folder.rmdir()
    if switched:
        switch.write_text("-cpu")


SPIN = """
import time, sys
for folder in sys.argv[1:]:
    open(folder + "/cgroup.procs", "w").write("0")
print("ready", flush=True)
while True:
    end = time.process_time() + 0.04
    while time.process_time() < end:
        pass
    time.sleep(0.3)
"""


def test_a_running_group_is_watched(group: list[Path]) -> None:
    command = [sys.executable, "-c", SPIN, *map(str, group)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        arguments = ["cpu", "limits", "--watch", str(process.pid), "--duration", "4s", "--json"]
        result = CliRunner().invoke(build(), arguments)
        process.kill()
    assert result.exit_code == 0, result.output
    *lines, last = map(json.loads, result.output.splitlines())
    summary = last["summary"]
    assert len(lines) >= 2
    assert summary["group"] == f"/{group[0].name}"
    assert summary["limit_milli_cpu"] == 250
    assert summary["throttled_periods"] > 0
    assert 0 < summary["throttled"] < 1
    # More than the present limit; 400m on an idle machine.
    assert 250 < summary["all_unthrottled_milli_cpu"] <= 1000
    assert summary["usage_ns"] > 100 * MS


def test_a_group_that_ends_while_watched(group: list[Path]) -> None:
    arguments = ["cpu", "limits", "--watch", str(group[0])]
    with subprocess.Popen(
        [sys.executable, "-m", "uncia", *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith(f"/{group[0].name}: limit 250m".encode())
        time.sleep(0.3)
        group[0].rmdir()
        output, errors = process.communicate(timeout=60)
    assert process.returncode == 2
    assert f"the group /{group[0].name} is gone".encode() in errors
    assert b"It was not throttled." in output


def test_ctrl_c_ends_with_the_sum(group: list[Path]) -> None:
    arguments = ["cpu", "limits", "--watch", f"/{group[0].name}"]
    with subprocess.Popen(
        [sys.executable, "-m", "uncia", *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(0.5)
        process.send_signal(signal.SIGINT)
        output, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors
    assert b"In " in output or b"It was not throttled." in output


@pytest.mark.parametrize("milli", [1, 5, 10, 11, 250])
def test_no_limit_is_compared_twice(milli: int) -> None:
    given = limits.limit_of(milli)
    listed = limits.candidates(given, constant(MS), 1)
    quotas = [limit.quota_ns for limit in listed]
    assert quotas == sorted(set(quotas))
    assert given in listed
