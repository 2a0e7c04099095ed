"""Which platform and size advice names first, on functions whose best answer is known by hand."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from advice_rows import MB, MS, aws_per_million, rows, table

from uncia.backends import Backend, connect
from uncia.costs.advice import advice, hints
from uncia.errors import UnciaError

AWS = "aws-lambda-x86"
GCP = "gcp-run-request"


@pytest.fixture(scope="module")
def backend() -> Iterator[Backend]:
    with connect() as opened:
        yield opened


def spread(middle: int, n: int) -> list[int]:
    """n times around a middle, ns, none a whole ms: from -10 % to +10 %, ascending."""
    return [middle * 9 // 10 + middle * k // (5 * n) + 1 for k in range(n)]


def only_row(frame: pd.DataFrame, **wanted: Any) -> dict[str, Any]:
    """The only row with these values."""
    kept = frame
    for name, value in wanted.items():
        kept = kept[kept[name] == value]
    assert len(kept) == 1, kept
    return dict(kept.iloc[0])


@pytest.fixture(scope="module")
def three_sizes(backend: Backend) -> pd.DataFrame:
    """512 MB is cheapest and too slow, 1024 MB keeps 200 ms, 1769 MB keeps it and costs more.

    ``few`` has three rows too few for a claim at its size.
    """
    data = table(
        rows("f", spread(250 * MS, 300), memory=512),
        rows("f", spread(150 * MS, 300), memory=1024),
        rows("f", spread(120 * MS, 400), memory=1769),
        rows("few", spread(100 * MS, 56), memory=512),
    )
    return advice(data, p95="200ms", tariffs=[AWS], backend=backend)


def test_the_cheapest_measured_size_that_keeps_the_bound_comes_first(
    three_sizes: pd.DataFrame,
) -> None:
    selected = three_sizes[three_sizes["function"] == "f"]
    assert list(selected["rank"]) == [1, 2, 3]
    assert list(selected["memory_mb"]) == [1024, 1769, 512]
    assert list(selected["meets_bound"]) == [True, True, False]
    assert set(selected["basis"]) == {"measured"}
    assert list(selected["present"]) == [False, True, False]  # most rows are at 1769 MB


def test_costs_are_exact_and_quantiles_are_order_statistics(three_sizes: pd.DataFrame) -> None:
    by_hand = {
        512: spread(250 * MS, 300),
        1024: spread(150 * MS, 300),
        1769: spread(120 * MS, 400),
    }
    present = aws_per_million(by_hand[1769], 1769)
    for memory, executions in by_hand.items():
        row = only_row(three_sizes, function="f", memory_mb=memory)
        exact = aws_per_million(executions, memory)
        assert abs(Fraction(row["cost_usd_per_million"]) - exact) <= Fraction(1, 2 * 10**12)
        assert abs(Fraction(row["saving_vs_present"]) - (present - exact)) <= Fraction(1, 10**12)
        assert isinstance(row["cost_usd_per_million"], Decimal)
        rank = -(-len(executions) * 95 // 100)
        assert row["p95_ms"] == executions[rank - 1] / MS
        assert row["p95_low_ms"] < row["p95_ms"] < row["p95_high_ms"]
        assert row["turnaround_p95_ms"] == row["p95_ms"]  # nothing was started for these rows


def test_the_interval_of_a_saving_holds_it(three_sizes: pd.DataFrame) -> None:
    for memory in (512, 1024):
        row = only_row(three_sizes, function="f", memory_mb=memory)
        saving = float(row["saving_vs_present"])
        assert row["saving_low"] < saving < row["saving_high"]
        # The times are even over a fifth of their middle: sd = range / sqrt(12).
        widths = {512: (250, 300), 1024: (150, 300), 1769: (120, 400)}
        gb_s = {size: size / 1024 * 1.66667e-5 * 1e6 for size in widths}
        error = 0.0
        for size in (memory, 1769):
            middle, n = widths[size]
            error += (gb_s[size] * middle / 1000 * 0.2 / 12**0.5) ** 2 / n
        width = row["saving_high"] - row["saving_low"]
        assert width == pytest.approx(2 * 1.96 * error**0.5, rel=0.5)


def test_too_few_rows_are_no_claim_and_it_says_how_many_are_needed(
    three_sizes: pd.DataFrame,
) -> None:
    row = only_row(three_sizes, function="few")
    assert row["confidence"] is None
    assert row["meets_bound"] is None
    assert row["p95_low_ms"] is None
    assert row["p95_ms"] is not None
    assert "56 rows are too few for a claim, it needs 59" in row["note"]


def test_without_a_bound_the_cheapest_is_first_and_nothing_is_claimed(backend: Backend) -> None:
    data = table(
        rows("f", spread(250 * MS, 80), memory=512), rows("f", spread(150 * MS, 80), memory=1769)
    )
    frame = advice(data, tariffs=[AWS], backend=backend)
    assert list(frame["memory_mb"]) == [512, 1769]
    assert set(frame["meets_bound"]) == {None}
    assert set(frame["confidence"]) == {None}


@pytest.fixture(scope="module")
def modelled(backend: Backend) -> pd.DataFrame:
    """One size, half a vCPU: 100 ms of CPU time in 200 ms of wall clock, and 50 ms of waiting."""
    busy = [100 * MS + 1000 * k for k in range(100)]
    data = table(
        rows(
            "f",
            [2 * item + 50 * MS for item in busy],
            memory=1024,
            cpu=500_000,
            platform="gcp-europe",
            cpu_user=busy,
            memory_avg=90 * MB,
            memory_peak=100 * MB,
        )
    )
    return advice(data, p95="200ms", tariffs=[GCP, AWS], backend=backend)


def test_estimates_stand_behind_what_was_measured_and_claim_no_confidence(
    modelled: pd.DataFrame,
) -> None:
    ranked = modelled[modelled["rank"].notna()]
    assert list(ranked["rank"]) == list(range(1, len(ranked) + 1))
    first = ranked.iloc[0]
    assert (first["tariff"], first["basis"], first["memory_mb"]) == (GCP, "measured", 1024)
    assert first["meets_bound"] is False  # it takes 250 ms, and yet no estimate stands before it
    estimated = ranked[ranked["basis"] == "estimated"]
    assert len(estimated) == len(ranked) - 1
    assert set(estimated["confidence"]) == {None}
    assert set(estimated["p95_low_ms"]) == {None}
    assert all(estimated["note"])
    kept = list(estimated["meets_bound"])
    assert kept == sorted(kept, reverse=True)
    assert True in kept


def test_the_model_keeps_the_idle_time_and_stretches_the_cpu_time(modelled: pd.DataFrame) -> None:
    # The p95 of 100 rows is the 95th: 100.094 ms of CPU time.
    row = only_row(modelled, tariff=GCP, vcpu=1.0, memory_mb=128)
    assert row["p95_ms"] == pytest.approx(50 + 100.094)
    billed = Fraction(2, 10) * (Fraction(24, 10**6) + Fraction(25, 10**7) / 8)
    exact = (billed + Fraction(4, 10**7)) * 10**6
    assert abs(Fraction(row["cost_usd_per_million"]) - exact) < Fraction(1, 10**12)
    slow = only_row(modelled, tariff=GCP, vcpu=0.25, memory_mb=128)
    assert slow["p95_ms"] == pytest.approx(50 + 4 * 100.094)
    assert slow["meets_bound"] is False


def test_times_of_another_platform_are_an_assumption_that_is_named(
    modelled: pd.DataFrame,
) -> None:
    # Half a vCPU and 1024 MB are 1024 MB under AWS, which has 0.579 vCPU.
    row = only_row(modelled, tariff=AWS, memory_mb=1024, vcpu=0.578858)
    assert row["basis"] == "estimated"
    assert "assumes the times of 0.5 vCPU, 1 GB on gcp-europe" in row["note"]
    assert row["confidence"] is None


def test_platforms_are_told_apart_and_the_cheaper_is_first(backend: Backend) -> None:
    quick, slow = spread(100 * MS, 200), spread(180 * MS, 100)
    usual: dict[str, Any] = {"cpu_user": 10 * MS, "memory_avg": 50 * MB, "memory_peak": 60 * MB}
    data = table(
        rows("f", quick, memory=1769, cpu=10**6, platform="aws", **usual),
        rows("f", slow, memory=512, cpu=10**6, platform="gcp", **usual),
    )
    frame = advice(data, p95="1s", tariffs=[AWS, GCP], backend=backend)
    measured = frame[frame["basis"] == "measured"]
    assert list(zip(measured["tariff"], measured["platform"], strict=True)) == [
        (AWS, "aws"),
        (GCP, "gcp"),
    ]
    gcp = Fraction(2, 10) * (Fraction(24, 10**6) + Fraction(25, 10**7) / 2)
    exact = (gcp + Fraction(4, 10**7)) * 10**6
    assert abs(Fraction(measured.iloc[1]["cost_usd_per_million"]) - exact) < Fraction(1, 10**12)
    # AWS's half a gigabyte on Google's rows, and the other way round, are assumptions.
    moved = frame[(frame["tariff"] == GCP) & (frame["platform"] == "aws")]
    assert set(moved["basis"]) == {"estimated"}


def test_rows_of_one_provider_are_not_measured_on_another(backend: Backend) -> None:
    data = table(
        rows(
            "f",
            spread(10 * MS, 60),
            memory=128,
            cpu=300_000,
            platform="huawei-R1",
            cpu_user=MS,
            memory_avg=50 * MB,
            memory_peak=60 * MB,
        )
    )
    tariffs = ["huawei-functiongraph", "cloudflare-workers", "spfu"]
    frame = advice(data, p95="1s", tariffs=tariffs, backend=backend)
    basis = {row["tariff"]: row["basis"] for _, row in frame.iterrows() if row["memory_mb"] == 128}
    assert basis == {
        "huawei-functiongraph": "measured",
        "cloudflare-workers": "estimated",
        "spfu": "measured",  # a model, which bills whatever ran
    }


def test_what_cannot_run_there_has_no_rank(backend: Backend) -> None:
    data = table(
        rows(
            "large",
            spread(100 * MS, 80),
            memory=1769,
            cpu_user=50 * MS,
            memory_avg=400 * MB,
            memory_peak=500 * MB,
        ),
        rows("unknown", spread(100 * MS, 80), memory=1769, cpu_user=50 * MS),
    )
    frame = advice(data, tariffs=["cloudflare-workers", AWS], backend=backend)
    large = only_row(frame, function="large", tariff="cloudflare-workers")
    assert large["usable"] is False
    assert pd.isna(large["rank"])
    assert "80 rows exceed" in large["note"]
    unknown = only_row(frame, function="unknown", tariff="cloudflare-workers")
    assert unknown["usable"] is None
    assert pd.isna(unknown["rank"])
    assert "peak of memory was not measured" in unknown["note"]
    assert only_row(frame, function="large", tariff=AWS, memory_mb=1769)["rank"] == 1


def test_less_vcpu_than_was_measured_is_not_taken_to_be_as_quick(backend: Backend) -> None:
    data = table(
        rows(
            "f",
            spread(100 * MS, 60),
            memory=1024,
            cpu=2 * 10**6,
            platform="gcp",
            memory_avg=100 * MB,
            memory_peak=120 * MB,
        )
    )
    frame = advice(data, tariffs=["azure-consumption"], backend=backend)
    row = only_row(frame, tariff="azure-consumption")
    assert row["usable"] is None
    assert pd.isna(row["rank"])
    assert "less vCPU" in row["note"]


def test_less_vcpu_is_computed_where_the_cpu_time_is_known(backend: Backend) -> None:
    data = table(
        rows(
            "f",
            [100 * MS] * 60,
            memory=1024,
            cpu=2 * 10**6,
            platform="gcp",
            cpu_user=180 * MS,  # two threads
            memory_avg=100 * MB,
            memory_peak=120 * MB,
        )
    )
    frame = advice(data, tariffs=["azure-consumption"], backend=backend)
    row = only_row(frame, rank=1)
    assert row["basis"] == "estimated"
    assert row["p95_ms"] == 10 + 180  # one vCPU for the CPU time, and what was idle


def test_times_that_are_assumed_are_of_the_closest_size_alone(backend: Backend) -> None:
    usual: dict[str, Any] = {"memory_avg": 90 * MB, "memory_peak": 100 * MB}
    data = table(
        rows("f", spread(200 * MS, 60), memory=885, **usual),
        rows("f", spread(100 * MS, 60), memory=1769, **usual),
    )
    frame = advice(data, tariffs=["azure-consumption"], backend=backend)
    row = only_row(frame, tariff="azure-consumption")  # one vCPU, whichever size it is asked for
    assert row["p95_ms"] < 120
    assert "1 vCPU, 1,769 MB on aws" in row["note"]


def test_a_bound_may_be_of_the_turnaround(backend: Backend) -> None:
    starts = [500 * MS if index % 10 == 0 else None for index in range(200)]
    data = table(
        rows("f", spread(100 * MS, 200), memory=1769, initialization=starts),
    )
    kept = advice(data, p95="200ms", tariffs=[AWS], backend=backend)
    assert kept.iloc[0]["meets_bound"] is True
    assert kept.iloc[0]["turnaround_p95_ms"] > 500
    broken = advice(data, p95="200ms", of="turnaround", tariffs=[AWS], backend=backend)
    assert broken.iloc[0]["meets_bound"] is False
    assert broken.iloc[0]["p95_ms"] > 500


def test_only_the_functions_that_are_named(backend: Backend) -> None:
    data = table(rows("f", [MS] * 3, memory=128), rows("g", [MS] * 3, memory=128))
    frame = advice(data, functions=["g"], tariffs=[AWS], backend=backend)
    assert set(frame["function"]) == {"g"}
    with pytest.raises(UnciaError, match="no function h"):
        advice(data, functions=["g", "h"], tariffs=[AWS], backend=backend)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"p95": "200"}, "no unit|not a duration"),
        ({"p95": 0}, "above zero"),
        ({"confidence": 1.0}, "is not possible"),
        ({"fit": "paper"}, "no platform sells"),
        ({"of": "latency"}, "no time"),
        ({"tariffs": ["no-such"]}, "no tariff"),
    ],
)
def test_wrong_arguments_are_refused(backend: Backend, wrong: dict[str, Any], message: str) -> None:
    data = table(rows("f", [MS] * 3, memory=128))
    with pytest.raises(UnciaError, match=message):
        advice(data, backend=backend, **({"tariffs": [AWS]} | wrong))


def test_a_table_in_which_nothing_ran_is_refused(backend: Backend) -> None:
    data = table(rows("f", [MS] * 3, memory=128, outcome="throttled"))
    with pytest.raises(UnciaError, match="no row that ran"):
        advice(data, tariffs=[AWS], backend=backend)


def test_the_vcpu_of_logs_without_it_follows_from_the_memory(backend: Backend) -> None:
    made = rows("f", spread(100 * MS, 60), memory=1024)
    for row in made:
        row["allocated_cpu"] = None
    frame = advice(table(made), tariffs=["ibm-code-engine", AWS], backend=backend)
    assert only_row(frame, tariff=AWS)["vcpu"] == pytest.approx(1024 / 1769, abs=1e-6)
    # 0.579 vCPU do not fit into IBM's 0.25 or 0.5, whatever the memory.
    assert only_row(frame, tariff="ibm-code-engine")["vcpu"] == 1.0
    assert "60 rows on aws have no allocated_cpu" in frame.attrs["notes"][0]


def test_sized_by_what_was_used(backend: Backend) -> None:
    # A fifth of a vCPU was used at most, and 100 MB: 354 MB hold them on AWS.
    data = table(
        rows(
            "f",
            [100 * MS] * 70,
            memory=1769,
            cpu_user=20 * MS,
            memory_avg=90 * MB,
            memory_peak=100 * MB,
        )
    )
    frame = advice(data, fit="used-peak", tariffs=[AWS], backend=backend)
    row = only_row(frame, memory_mb=354)
    assert row["basis"] == "estimated"
    assert "assumes the times of 1 vCPU, 1,769 MB on aws" in row["note"]
    exact = aws_per_million([100 * MS], 354)
    assert abs(Fraction(row["cost_usd_per_million"]) - exact) < Fraction(1, 10**12)
    assert 1769 not in set(frame["memory_mb"])  # it ran there, so nothing is computed for it


def own_tariff(path: Path, **changes: str) -> Path:
    """A tariff that bills what was allocated, of an own provider."""
    facts = {"id": "own-price", "provider": "Mine", "price": "0.00001"} | changes
    path.write_text(
        f"id: {facts['id']}\nprovider: {facts['provider']}\n"
        "product: A machine room\nregion: null\narchitecture: any\ncurrency: USD\n"
        "as_of: 2026-11-01\nsummary: Allocated memory\n"
        "sources: {prices: {citation: A price list}}\n"
        "time: {kind: execution, source: prices}\ncharges:\n"
        f"  - {{resource: memory, basis: allocated, price: '{facts['price']}', per: GB-second,"
        " source: prices}\n"
        "fee: {price: '0.0000005', source: prices}\nsizes: {kind: observed, source: prices}\n",
        encoding="utf-8",
    )
    return path


@pytest.mark.parametrize(
    ("platform", "present", "basis"),
    [
        ("aws", False, "estimated"),
        ("own-price", False, "measured"),
        ("mine", False, "measured"),
        ("http", False, "estimated"),
        ("http", True, "measured"),
    ],
)
def test_an_own_tariff_is_measured_on_its_platform(
    tmp_path: Path, backend: Backend, platform: str, present: bool, basis: str
) -> None:
    file = own_tariff(tmp_path / "own.yaml")
    data = table(rows("f", spread(10 * MS, 60), memory=128, cpu=72_357, platform=platform))
    in_use = file if present else None
    frame = advice(data, tariffs=[file], present=in_use, backend=backend)
    choice = only_row(frame, tariff="own-price")
    assert choice["basis"] == basis
    assert (choice["p95_low_ms"] is None) == (basis == "estimated")
    assert ("assumes the times of" in choice["note"]) == (basis == "estimated")


def test_the_tariff_in_use_may_be_a_file_alone(tmp_path: Path, backend: Backend) -> None:
    file = own_tariff(tmp_path / "own.yaml")
    data = table(rows("f", spread(10 * MS, 60), memory=128))
    with_both = advice(data, tariffs=[AWS, file], present=str(file), backend=backend)
    alone = advice(data, tariffs=[AWS], present=str(file), backend=backend)
    assert set(alone["tariff"]) == {AWS}
    assert "billed by own-price" in alone.attrs["present"]["f"]
    savings = [
        only_row(it, tariff=AWS, rank=1) for it in (alone, with_both[with_both.tariff == AWS])
    ]
    assert savings[0]["saving_vs_present"] == savings[1]["saving_vs_present"] is not None
    assert set(hints(data, present=file, backend=backend)["tariff"]) <= {"own-price", None}
    other = own_tariff(tmp_path / "other.yaml", price="0.00002")
    with pytest.raises(UnciaError, match="in use has the id own-price, as another tariff has"):
        advice(data, tariffs=[file], present=str(other), backend=backend)


def test_functions_may_be_named_by_numbers(backend: Backend) -> None:
    data = table(rows("7", spread(10 * MS, 60), memory=128))
    numbers = data.set_column(0, "function", pa.array([7] * 60, pa.int32()))
    frames = [advice(it, tariffs=[AWS], backend=backend) for it in (data, numbers)]
    assert frames[0].to_dict("records") == frames[1].to_dict("records")
    assert only_row(frames[1], present=True)["saving_vs_present"] == 0
    halves = data.set_column(0, "function", pa.array([0.5] * 60))
    with pytest.raises(UnciaError, match="the column function is float64, but names"):
        advice(halves, tariffs=[AWS], backend=backend)
