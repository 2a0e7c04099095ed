"""Sizes, over-allocation and errors of models, against numbers worked out by hand."""

from collections import Counter
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from lab_rows import MB, MS, request
from record_rows import table

from uncia import record, yamlio
from uncia.bandwidth import overallocation as lab
from uncia.bandwidth.overallocation import EQUATION, RECIPROCAL, SIMULATED
from uncia.cli.cpu.laboratory import positive
from uncia.errors import UnciaError
from uncia.experiment import checks
from uncia.experiment.planning import plan
from uncia.experiment.sources import Sources
from uncia.suites import overallocation as measuring

RUN = {
    "platform": {"kind": "embedded", "period": "20ms"},
    "versions": {"kernel": "Linux 6.18.44-fc"},
    "experiments": {
        "e": {"streams": [{"settings": {}}]},
        "event": {"streams": [{"settings": {"enforcement": "event-driven"}}]},
        "sizes": {
            "streams": [
                {"stage": "plain", "settings": {}},
                {"stage": "timed", "settings": {"enforcement": "event-driven"}},
            ]
        },
        "e.warmup": {"warmup_of": "e", "streams": [{"settings": {}}]},
    },
}


def rows(at: list[tuple[int, int, int, int]]) -> list[dict[str, Any]]:
    """Requests of (MB, micro-vCPU, execution, CPU time), in ns."""
    return [
        request(
            number,
            allocated_memory=memory * MB,
            allocated_cpu=cpu,
            execution=execution,
            cpu_user=used - used // 4,
            cpu_system=used // 4,
        )
        for number, (memory, cpu, execution, used) in enumerate(at)
    ]


def test_sizes_as_worked_out_by_hand() -> None:
    made = rows(
        [
            (884, 500_000, 30 * MS, 20 * MS),
            (884, 500_000, 50 * MS, 20 * MS),
            (1769, 1_000_000, 22 * MS, 20 * MS),
        ]
    )
    made.append(request(3, experiment="e.warmup"))
    made.append(request(4, start="cold"))
    made.append(request(5, outcome="timeout", error="late", execution=None))
    made.append(request(6, execution=None))
    made[0]["throttled_count"] = 1
    half, whole = (result := lab.sizes(table(made), RUN))[0]
    assert result[1] == {"start cold": 1, "timeout": 1, "execution or allocation not known": 1}
    assert (half.rows, half.mean_ns, half.throttled, half.whole) == (2, 40 * MS, 1, False)
    assert half.overallocation == float(Fraction(20 + 20, (30 + 50) // 2))
    assert half.cpu is not None
    assert half.cpu.tolist() == [20 * MS, 20 * MS]
    assert whole.whole
    known = lab.full([whole])
    assert (known.mean_ns, known.beyond_ns) == (20 * MS, 2 * MS)


def test_what_was_not_measured_is_null() -> None:
    made = rows([(884, 500_000, 30 * MS, 20 * MS), (1769, 1_000_000, 22 * MS, 20 * MS)])
    for row in made:
        row["cpu_user"] = row["cpu_system"] = row["throttled_count"] = None
    (half, whole), _ = lab.sizes(table(made), RUN)
    assert (half.cpu, half.throttled, half.overallocation) == (None, None, None)
    known = lab.full([whole])
    assert (known.mean_ns, known.beyond_ns) == (22 * MS, 0), "then the execution is all there is"


def test_enforcements_are_told_apart() -> None:
    made = rows([(884, 500_000, 30 * MS, 20 * MS)] * 4)
    made[1]["experiment"] = "event"
    made[2] |= {"experiment": "sizes", "stage": "plain"}
    made[3] |= {"experiment": "sizes", "stage": "timed"}
    result, _ = lab.sizes(table(made), RUN)
    assert [(size.enforcement, size.rows) for size in result] == [
        ("kernel", 2),
        ("event-driven", 2),
    ]


def test_rows_that_fit_nothing_are_refused() -> None:
    with pytest.raises(UnciaError, match=r"no row can be used; 1 start cold"):
        lab.sizes(table([request(0, start="cold")]), RUN)
    with pytest.raises(UnciaError, match="several functions: f, g"):
        lab.sizes(table([request(0), request(1, function="g")]), RUN)


@given(st.lists(st.tuples(st.integers(1, 10**9), st.integers(0, 10**9)), min_size=1, max_size=20))
def test_the_error_is_the_mean_of_the_relative_ones(pairs: list[tuple[int, int]]) -> None:
    exact = sum(Fraction(abs(item - value), value) for value, item in pairs) / len(pairs)
    result = lab.error([float(value) for value, _ in pairs], [float(item) for _, item in pairs])
    assert result == pytest.approx(float(exact), rel=1e-9)
    assert lab.error([7.0], [7.0]) == 0


def test_errors_need_something_to_compare() -> None:
    for measured, item in (([], []), ([1.0], []), ([0.0], [1.0])):
        with pytest.raises(ValueError, match=r"as many|above zero"):
            lab.error(measured, item)


@given(
    cpu=st.integers(0, 10**12),
    execution=st.integers(1, 10**12),
    micro=st.integers(1, 10**7),
)
def test_overallocation_is_used_over_paid_for(cpu: int, execution: int, micro: int) -> None:
    result = lab.overallocation(cpu, execution, micro)
    assert result == pytest.approx(float(Fraction(cpu * 10**6, execution * micro)), rel=1e-12)
    assert lab.overallocation(cpu, 0, micro) is None


@given(period_us=st.integers(1_000, 1_000_000), micro=st.integers(1, 1_000_000))
def test_the_quota_is_the_share_in_whole_microseconds(period_us: int, micro: int) -> None:
    result = lab.quota_ns(micro, period_us * 1000)
    assert result % 1000 == 0
    assert result == int(Fraction(period_us * micro, 10**6)) * 1000


@pytest.mark.parametrize(
    ("version", "scheduler", "throttling", "timer"),
    [
        ("Linux 6.2.0", "cfs", "group", "absolute"),
        ("Linux 6.5.1", "cfs", "group", "random"),
        ("Linux 6.8.0-31-generic", "eevdf", "group", "random"),
        ("Linux 6.18.44", "eevdf", "task", "random"),
        ("Linux 7.0.1", "eevdf", "task", "random"),
    ],
)
def test_the_kernel_of_a_run(version: str, scheduler: str, throttling: str, timer: str) -> None:
    run = {"versions": {"kernel": version}, "platform": {"period": "100ms"}}
    kernel = lab.kernel_of(run, 1000)
    assert (kernel.scheduler, kernel.throttling, kernel.timer) == (scheduler, throttling, timer)
    assert (kernel.period_ns, kernel.hz) == (100 * MS, 1000)
    assert lab.kernel_of(run, None).hz == 250, "of another machine's kernel nothing is known"


def test_a_run_that_does_not_tell_its_kernel_cannot_be_simulated() -> None:
    with pytest.raises(UnciaError, match="no kernel version"):
        lab.kernel_of({}, 250)


def test_models_know_the_whole_vcpu_alone(tmp_path: Path) -> None:
    # 10 ms of CPU time under 0.5 vCPU: reciprocal 20 ms; a quota of 10 ms holds it, so by
    # Equation (2) it takes 10 ms; with 0.25 vCPU it is cut once and takes 20 + 5 ms.
    at = [
        (442, 250_000, 99 * MS, 10 * MS),
        (884, 500_000, 99 * MS, 10 * MS),
        *[(1769, 1_000_000, 11 * MS, 10 * MS)] * 3,
    ]
    record.write(table(rows(at)), tmp_path / "invocations.parquet")
    (tmp_path / "run.yaml").write_text(yaml.safe_dump(RUN))
    result = lab.read(tmp_path)
    answer = result.models["kernel"]
    assert np.allclose(np.array(answer[RECIPROCAL]) / MS, [41, 21, 11])
    assert np.allclose(np.array(answer[EQUATION]) / MS, [26, 11, 11])
    assert answer[SIMULATED][2] == 11 * MS
    assert 11 * MS <= answer[SIMULATED][1] <= answer[SIMULATED][0] <= 41 * MS
    assert result.errors("kernel")[RECIPROCAL] == pytest.approx((58 / 99 + 78 / 99) / 2)
    data = lab.as_data(result)
    assert [size["models_ms"][EQUATION] for size in data["sizes"]] == [26, 11, 11]


def test_timers_are_judged_by_an_exact_quota(tmp_path: Path) -> None:
    # 12 ms of CPU time under a quota of 10 ms in 20 ms.
    made = rows([(884, 500_000, 99 * MS, 12 * MS), (1769, 1_000_000, 12 * MS, 12 * MS)])
    for row in made:
        row["experiment"] = "event"
    record.write(table(made), tmp_path / "invocations.parquet")
    (tmp_path / "run.yaml").write_text(yaml.safe_dump(RUN))
    result = lab.read(tmp_path)
    assert set(result.models) == {"event-driven"}
    assert list(result.models["event-driven"]) == [RECIPROCAL, EQUATION, lab.ANY_PHASE]
    # By hand, x ms before the period's end: x >= 10 gives 10 ms, a wait of x - 10, and 2 ms more, x
    # ms + 2 in all; x < 10 gives x ms and then, without a wait, 12 - x of the next quota, 12 in
    # all, unless that is above 10 (x < 2): then 10 ms, a wait of 10, and 2 - x more, 22.
    mean = (sum(x + 2 + 0.5 for x in range(10, 20)) + 8 * 12 + 2 * 22) / 20
    assert result.models["event-driven"][lab.ANY_PHASE][0] / MS == pytest.approx(mean, rel=1e-3)


def test_a_run_without_a_whole_vcpu_cannot_be_judged(tmp_path: Path) -> None:
    for at in ([(884, 500_000, 9, 9)], [(1769, 1_000_000, 9, 9)]):
        record.write(table(rows(at)), tmp_path / "invocations.parquet")
        (tmp_path / "run.yaml").write_text(yaml.safe_dump(RUN))
        with pytest.raises(UnciaError, match="models need rows at a whole vCPU"):
            lab.read(tmp_path)


@pytest.mark.parametrize(
    ("text", "count", "expected"),
    [
        ("128..1769", 2, [128, 1769]),
        ("128..1769", 4, [128, 675, 1222, 1769]),
        ("128..1769/500", 40, [128, 628, 1128, 1628, 1769]),
        ("256MB,128MB,256MB", 40, [128, 256, 1769]),
        ("128..1024", 3, [128, 576, 1024, 1769]),
        ("512MB,3538MB", 40, [512, 3538]),
        ("128..256/100,1GB..1769MB", 3, [128, 228, 256, 1024, 1396, 1769]),
        ("128, 512,1GB", 40, [128, 512, 1024, 1769]),
    ],
)
def test_sizes_of_a_text(text: str, count: int, expected: list[int]) -> None:
    assert measuring.sizes(text, count) == expected


@pytest.mark.parametrize(
    ("text", "count", "message"),
    [
        ("1769..128", 40, "ends below its beginning"),
        ("64..1769", 40, "smallest size is 128MB"),
        ("128..1769", 1, "at least 2 sizes"),
        ("128..1769/0", 40, "step of 0"),
        ("much", 40, "--memory"),
        ("1000000B", 40, "no whole number of MB"),
        ("1769MB,2000MB", 40, "a whole vCPU"),
    ],
)
def test_sizes_that_are_none(text: str, count: int, message: str) -> None:
    with pytest.raises(UnciaError, match=message):
        measuring.sizes(text, count)


def test_the_experiment_is_a_chain_of_the_sizes_in_turn() -> None:
    settings = measuring.Settings("pyaes", [128, 1769], 7, ["kernel", "event-driven"], 20 * MS)
    document = yamlio.load(yaml.safe_dump(measuring.document(settings), sort_keys=False))
    warmup, sizes = plan(checks.check(document), Sources(document, Path())).experiments
    assert warmup.expected_requests() == 10
    assert (sizes.expected_requests(), sizes.timeout_ns) == (70, 900_000 * MS)
    visits = Counter(stream.deployment for stream in sizes.streams)
    assert sorted(visits.values()) == [1, 1, 4, 4]
    assert all(
        stream.after == ((position - 1,) if position else ())
        and (position == 0 or (stream.think.min, stream.think.max) == (0, 20 * MS - 1))
        for position, stream in enumerate(sizes.streams)
    )
    # A size at which every request fails hides none of those that come after it.
    assert [stream.after_failures for stream in sizes.streams] == [False, *[True] * 9]


def test_a_size_without_a_unit_is_in_megabytes() -> None:
    assert positive("--memory", "512", "size") == positive("--memory", "512MB", "size") == 2**29
    with pytest.raises(UnciaError, match="--idle: '5' is not a duration"):
        positive("--idle", "5", "duration")
