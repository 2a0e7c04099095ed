"""What hints save, against amounts worked out by hand."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from advice_rows import AWS_FEE, AWS_GB_S, MB, MS, S, rows, table

from uncia.backends import Backend, connect
from uncia.costs.advice import hints

AWS = "aws-lambda-x86"
GCP = "gcp-run-request"
GCP_CPU = Fraction(24, 10**6)
GCP_GB = Fraction(25, 10**7)
GCP_FEE = Fraction(4, 10**7)
MILLION = 10**6
DATA = Path(__file__).resolve().parents[1] / "data" / "tariffs"


@pytest.fixture(scope="module")
def backend() -> Iterator[Backend]:
    with connect() as opened:
        yield opened


@pytest.fixture(scope="module")
def on_gcp(backend: Backend) -> pd.DataFrame:
    """Functions on Google, each with something to save; 100 rows of 100 ms each.

    ``roomy``: 4 GB of which 100 MB are used. ``mixed``: 90 % of requests need 50 MB, the rest
    1000 MB. ``waits``: uses a tenth of its vCPU, and two requests run at a time. ``alone``: the
    same, one at a time.
    """
    usual: dict[str, Any] = {"cpu": 10**6, "platform": "gcp", "memory_avg": 40 * MB}
    full = {"cpu_user": 100 * MS}
    starts = [index // 2 * S for index in range(100)]
    apart = [index * S for index in range(100)]
    often = [index * 50 * MS for index in range(100)]

    def when(begin: list[int]) -> dict[str, Any]:
        return {"started": begin, "ended": [start + 100 * MS for start in begin]}

    ran = [100 * MS] * 100
    data = table(
        rows("roomy", ran, memory=4096, memory_peak=100 * MB, **full, **usual),
        rows(
            "mixed",
            ran,
            memory=2048,
            memory_peak=[50 * MB] * 90 + [1000 * MB] * 10,
            **full,
            **usual,
        ),
        rows("waits", ran, memory=512, cpu_user=10 * MS, **when(starts), **usual),
        rows("alone", ran, memory=512, cpu_user=10 * MS, **when(apart), **usual),
        rows("often", ran, memory=512, **full, **when(often), **usual),
    )
    return hints(data, backend=backend)


def only(frame: pd.DataFrame, function: str, hint: str) -> dict[str, Any]:
    kept = frame[(frame["function"] == function) & (frame["hint"] == hint)]
    assert len(kept) == 1, frame[["function", "hint", "note"]]
    return dict(kept.iloc[0])


def names(frame: pd.DataFrame, function: str, *, judged: bool = True) -> set[str]:
    selected = frame[frame["function"] == function]
    return set(selected[selected["saving_usd"].notna() == judged]["hint"])


def near(amount: Any, exact: Fraction) -> bool:
    return abs(Fraction(amount) - exact) <= Fraction(1, 10**12)


def test_memory_that_is_not_used_is_not_paid_for(on_gcp: pd.DataFrame) -> None:
    hint = only(on_gcp, "roomy", "right-size memory")
    # 120 MB with the headroom, so 128 MB, the least that is sold.
    exact = Fraction(4096 - 128, 1024) * GCP_GB / 10 * MILLION
    assert near(hint["saving_usd_per_million"], exact)
    assert near(hint["saving_usd"], exact * 100 / MILLION)
    before = (GCP_CPU + 4 * GCP_GB) / 10 + GCP_FEE
    assert hint["saving_share"] == pytest.approx(float(exact / MILLION / before))
    assert "128 MB" in hint["advice"]
    assert hint["tariff"] == GCP


def test_memory_that_restored_instances_share_is_told_of(backend: Backend) -> None:
    used = {"memory_peak": 10 * MB, "memory_avg": 10 * MB, "cpu_user": MS, "initialization": MS}
    usual = {"memory": 4096, "cpu": 10**6, "platform": "gcp", **used}
    assumptions = {}
    for start in ("cold", "restored"):
        starts = [start] + ["warm"] * 9
        data = table(rows("copy", [100 * MS] * 10, start=starts, **usual))
        hint = only(hints(data, backend=backend), "copy", "right-size memory")
        assumptions[start] = hint["assumption"]
    assert "restored instances share" in assumptions["restored"]
    assert "restored" not in assumptions["cold"]


def test_requests_that_need_little_memory_go_apart(on_gcp: pd.DataFrame) -> None:
    hint = only(on_gcp, "mixed", "split by memory")
    # What right-sizing to 1216 MB saves already does not count: 1200 MB in steps of 64 MB.
    exact = Fraction(9, 10) * Fraction(1216 - 128, 1024) * GCP_GB / 10 * MILLION
    assert near(hint["saving_usd_per_million"], exact)
    assert "90%" in hint["advice"]
    whole = only(on_gcp, "mixed", "right-size memory")
    assert near(
        whole["saving_usd_per_million"], Fraction(2048 - 1216, 1024) * GCP_GB / 10 * MILLION
    )


def test_concurrency_saves_as_much_as_requests_overlap(on_gcp: pd.DataFrame) -> None:
    hint = only(on_gcp, "waits", "concurrency")
    exact = (GCP_CPU + GCP_GB / 2) / 10 / 2 * MILLION  # half of the time, the fee stays
    assert near(hint["saving_usd_per_million"], exact)
    assert hint["basis"] == "at most"
    assert "up to 10 requests" in hint["advice"]
    assert "concurrency" not in names(on_gcp, "alone")
    assert "concurrency" not in names(on_gcp, "often")  # all of the vCPU is used


def test_a_busy_function_is_cheaper_on_instances(on_gcp: pd.DataFrame) -> None:
    hint = only(on_gcp, "often", "always on")
    # 2 at a time on average and 70 % busy: 3 instances for the 5.05 s of the table.
    span = Fraction(99 * 50 + 100, 1000)
    request = (GCP_CPU + GCP_GB / 2) / 10 + GCP_FEE
    instance = Fraction(18, 10**6) + Fraction(2, 10**6) / 2
    exact = 100 * request - 3 * instance * span
    assert near(hint["saving_usd"], exact)
    assert near(hint["saving_usd_per_million"], exact * MILLION / 100)
    assert "3 instances" in hint["advice"]
    assert f"from {float(instance / request):,.3g} requests/s" in hint["note"]
    assert "always on" not in names(on_gcp, "alone")


def test_what_was_not_measured_is_said(on_gcp: pd.DataFrame) -> None:
    assert "right-size memory" in names(on_gcp, "often", judged=False)
    hint = only(on_gcp, "often", "right-size memory")
    assert "the peak of memory was not measured in 100 rows" in hint["note"]
    assert hint["saving_usd"] is None
    hint = only(on_gcp, "roomy", "always on")
    assert "when requests ran was not measured" in hint["note"]
    assert "gcp-run-instance is cheaper than gcp-run-request from" in hint["note"]


def test_a_hint_that_saves_nothing_is_not_there(on_gcp: pd.DataFrame) -> None:
    judged = on_gcp[on_gcp["saving_usd"].notna()]
    assert all(Fraction(saving) > 0 for saving in judged["saving_usd"])
    assert "split off idle time" not in names(on_gcp, "roomy")  # it does not wait


@pytest.fixture(scope="module")
def on_aws(backend: Backend) -> pd.DataFrame:
    """Functions on AWS. ``short``: 10 ms at 128 MB. ``waits``: 10 ms of CPU time in 310 ms."""
    usual: dict[str, Any] = {"memory_avg": 40 * MB}
    data = table(
        rows("short", [10 * MS] * 50, memory=128, memory_peak=100 * MB, **usual),
        rows("waits", [310 * MS] * 50, cpu_user=10 * MS, memory_peak=1700 * MB, **usual),
    )
    return hints(data, tariffs=[AWS], backend=backend)


def test_merged_requests_share_a_fee(on_aws: pd.DataFrame) -> None:
    hint = only(on_aws, "short", "merge requests")
    assert near(hint["saving_usd_per_million"], AWS_FEE * Fraction(9, 10) * MILLION)
    assert "merge requests" not in names(on_aws, "waits")  # its fee is little


@pytest.mark.parametrize("free", [True, False])
def test_merged_requests_lose_what_is_free_of_each(
    tmp_path: Path, backend: Backend, free: bool
) -> None:
    text = (DATA / "first-free.yaml").read_text(encoding="utf-8")
    assert text.count("  free: 100 ms\n") == 1
    file = tmp_path / "own.yaml"
    file.write_text(text if free else text.replace("  free: 100 ms\n", ""), encoding="utf-8")
    data = table(rows("short", [30 * MS] * 50, memory=1024, cpu_user=1 * MS, memory_avg=40 * MB))
    result = hints(data, tariffs=[file], backend=backend)
    assert ("merge requests" in names(result, "short")) is not free


def test_waiting_is_moved_to_the_smallest_size(on_aws: pd.DataFrame) -> None:
    hint = only(on_aws, "waits", "split off idle time")
    before = Fraction(1769, 1024) * Fraction(310, 1000) * AWS_GB_S
    after = (
        Fraction(1769, 1024) * Fraction(10, 1000) * AWS_GB_S
        + Fraction(128, 1024) * Fraction(300, 1000) * AWS_GB_S
        + AWS_FEE
    )
    assert near(hint["saving_usd_per_million"], (before - after) * MILLION)
    assert "97%" in hint["advice"]
    note = only(on_aws, "short", "split off idle time")["note"]
    assert "the CPU time was not measured" in note


def test_other_hardware_at_the_same_time(on_aws: pd.DataFrame) -> None:
    hint = only(on_aws, "waits", "other architecture")
    arm = Fraction("0.0000133334")
    exact = Fraction(1769, 1024) * Fraction(310, 1000) * (AWS_GB_S - arm) * MILLION
    assert near(hint["saving_usd_per_million"], exact)
    assert "neither was measured" in hint["assumption"]


def test_chains_are_billed_as_if_they_were_one(backend: Backend) -> None:
    n = 40
    begin = [index * S for index in range(n)]
    callers = [f"call-{index}" for index in range(n)]

    def when(start: int, execution: int) -> dict[str, Any]:
        first = [item + start for item in begin]
        return {"started": first, "ended": [item + execution for item in first]}

    data = table(
        rows(
            "a",
            [10_400_000] * n,
            memory=128,
            invocation=callers,
            **when(0, 10_400_000),
        ),
        # after its caller, at twice its size
        rows("after", [20_400_000] * n, memory=256, parent=callers, **when(S // 2, 20_400_000)),
        # while its caller waits
        rows("within", [5 * MS] * n, memory=128, parent=callers, **when(MS, 5 * MS)),
    )
    frame = hints(data, tariffs=[AWS], functions=["a", "after", "within"], backend=backend)
    chains = frame[frame["hint"] == "merge chain"]
    assert list(chains["function"]) == ["a"] * len(chains)
    by_callee = {
        ("after" if "call after" in row["advice"] else "within"): row
        for _, row in chains.iterrows()
    }
    # Within: what was billed for the call is not billed again.
    within = (Fraction(128, 1024) * Fraction(5, 1000) * AWS_GB_S + AWS_FEE) * n
    assert near(by_callee["within"]["saving_usd"], within)
    # After: 11 ms at 128 MB and 21 ms at 256 MB become 31 ms at 256 MB, and one fee.
    before = (Fraction(11, 8) + Fraction(21, 4)) / 1000 * AWS_GB_S + 2 * AWS_FEE
    after = Fraction(31, 4) / 1000 * AWS_GB_S + AWS_FEE
    assert near(by_callee["after"]["saving_usd"], (before - after) * n)


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [("{}", "132 MB"), ("{step: 4 MB}", "132 MB"), ("{minimum: 64 MB}", "64 MB")],
)
def test_waiting_needs_memory_where_a_tariff_sells_any(
    tmp_path: Path, backend: Backend, sizes: str, expected: str
) -> None:
    file = tmp_path / "own.yaml"
    text = (DATA / "first-free.yaml").read_text(encoding="utf-8").split("\nsizes:")[0]
    sold = f"{{kind: proportional, memory_per_vcpu: 1769 MB, memory: {sizes}, source: prices}}"
    file.write_text(f"{text}\nsizes: {sold}\n", encoding="utf-8")
    usual: dict[str, Any] = {"cpu_user": 10 * MS, "memory_avg": 90 * MB, "memory_peak": 110 * MB}
    data = table(rows("waits", [310 * MS] * 50, memory=1769, **usual))
    hint = only(hints(data, tariffs=[file], backend=backend), "waits", "split off idle time")
    assert f"{expected}, or to a workflow" in hint["advice"]
