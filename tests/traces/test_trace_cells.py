"""Cells become the same integers a column at a time as one by one, whatever they look like."""

from __future__ import annotations

import re

import numpy as np
import pyarrow as pa
import pytest
import trace_oracle as oracle
from hypothesis import example, given, settings
from hypothesis import strategies as st

from uncia.traces import cells
from uncia.traces.huawei import pods as huawei_pods
from uncia.traces.huawei import requests as huawei2025
from uncia.traces.huawei import starts as huawei_starts

DIGITS = st.text("0123456789", min_size=1, max_size=9)
FRACTION = st.text("0123456789", max_size=20)
PLAIN = st.builds("{}.{}".format, DIGITS, FRACTION)
NUMBERS = st.one_of(
    PLAIN,
    DIGITS,
    st.decimals(0, 5_000_000, places=6).map(str),
    st.floats(0, 1e7).map(repr),
    st.builds("{}{}e{}".format, st.sampled_from(["", "+", "-"]), PLAIN, st.integers(-400, 400)),
)
TEXTS = st.one_of(NUMBERS, st.sampled_from(["", "-", ".", "nan", "inf", "-0.0", "1e", " 1", "0x1"]))


def one_by_one(text: str, factor: int) -> int | None:
    try:
        return oracle.nearest(text, factor)
    except oracle.BadRowError:
        return None


@settings(deadline=None, max_examples=150)
@given(
    texts=st.lists(TEXTS, min_size=1, max_size=8), factor=st.sampled_from([10**9, 10**6, 1 << 20])
)
@example(texts=["0.8290000000000000000001", "0.5"], factor=1 << 20)
@example(texts=["4194303.9999999995", "4194304.5000000001"], factor=10**9)
@example(texts=["0.00000047683715820312500000", "0.0000004768371582031249"], factor=1 << 20)
@example(texts=["131071.9999999999999", "131072.000001"], factor=1 << 20)
@example(texts=["1e-400", "1e400", "12345678901234567890"], factor=10**9)
@example(texts=["137.43895347199", "-137.4389534719951", "-0.0000000015"], factor=10**9)
def test_quantities_are_those_of_fractions(texts: list[str], factor: int) -> None:
    numbers, good = cells.quantities(pa.array(texts), factor)
    expected = [one_by_one(text, factor) for text in texts]
    assert good.tolist() == [number is not None for number in expected]
    assert [number if ok else None for number, ok in zip(numbers, good, strict=True)] == expected


@settings(deadline=None, max_examples=150)
@given(texts=st.lists(TEXTS, min_size=1, max_size=8))
@example(texts=["2.00000000000000000001", "2.0"])
@example(texts=["99999999999999.9", "999999999999999", "1000000000000000"])
@example(texts=["1e-400", "2.0"])
def test_counts_are_those_of_fractions(texts: list[str]) -> None:
    def whole(text: str) -> int | None:
        try:
            return oracle.whole(text)
        except oracle.BadRowError:
            return None

    numbers, good = cells.counts(pa.array(texts))
    expected = [whole(text) for text in texts]
    assert good.tolist() == [number is not None for number in expected]
    assert [number if ok else None for number, ok in zip(numbers, good, strict=True)] == expected


@given(texts=st.lists(st.text(st.characters(max_codepoint=127), max_size=5), max_size=5))
def test_names_are_the_same_by_their_least_and_most_letters(texts: list[str]) -> None:
    known = [bool(oracle.re.fullmatch(r"[!#-.0-~]{1,200}", text)) for text in texts]
    assert cells.identifiers(pa.array(texts, pa.utf8())).tolist() == known
    two = pa.array(["/", *texts], pa.utf8()).slice(1)
    assert cells.identifiers(two).tolist() == known


@given(
    cores=st.lists(st.integers(0, 10**12), min_size=1, max_size=5),
    time=st.integers(0, huawei2025.MAX_TIME),
)
@example(cores=[10**12], time=huawei2025.MAX_TIME)
@example(cores=[10**9, 10**9 + 1, 500], time=huawei2025.MAX_TIME)
@example(cores=[1], time=500_000_000)
def test_cpu_time_is_the_exact_product(cores: list[int], time: int) -> None:
    execution = np.full(len(cores), time, dtype=np.int64)
    used, trusted = huawei2025._cpu_time(np.array(cores, dtype=np.int64), execution)
    for core, number, ok in zip(cores, used.tolist(), trusted.tolist(), strict=True):
        exact = (2 * core * time + 10**9) // (2 * 10**9)
        assert ok == (exact <= huawei2025.MAX_TIME) or exact == huawei2025.MAX_TIME
        assert number == exact or not ok


PODS = st.one_of(
    st.text("p0-", max_size=12),
    st.builds("{}-{}-{}-{}".format, *[st.sampled_from(["", "p", "300", "0", "-"])] * 4),
)


@settings(deadline=None, max_examples=100)
@given(pods=st.lists(PODS, min_size=1, max_size=8))
@example(pods=["pool22-300-128-1", "a-300-400-128-1-x", "pool-1-2-3-4", "-1-2-3", "p-1-2-"])
def test_the_flavours_of_pods_are_those_of_the_pattern(pods: list[str]) -> None:
    result = huawei_pods.Pods.of(pa.array(pods), np.ones(len(pods), dtype=bool))
    rows = zip(
        *(result.each(part).to_pylist() for part in (result.pool, result.cpu, result.memory)),
        strict=True,
    )
    for pod, row in zip(pods, rows, strict=True):
        match = re.fullmatch(r"(.+)-([0-9]{1,15})-([0-9]{1,12})-.+", pod)
        if match is None or not int(match[2]) or not int(match[3]):
            assert row == (None, None, None)
            continue
        pool = f"{match[1]}-{match[2]}-{match[3]}"
        assert row == (pool, int(match[2]) * 1000, int(match[3]) << 20)


NAMES = st.text("ab0", max_size=9)


@settings(deadline=None, max_examples=60)
@given(
    starts=st.lists(st.tuples(st.integers(0, 1), NAMES, NAMES, st.integers(0, 9)), max_size=12),
    requests=st.lists(st.tuples(NAMES, st.one_of(st.none(), NAMES)), max_size=12),
    region=st.integers(0, 1),
)
def test_cold_starts_are_found_as_by_a_dictionary(
    starts: list[tuple[int, str, str, int]],
    requests: list[tuple[str, str | None]],
    region: int,
) -> None:
    starts.append((region, "aaaaaaaaaa", "b", 7))
    requests.append(("aaaaaaaaaa", "b"))
    result = [
        huawei_starts.keys(
            where, pa.array([request]), pa.array([pod]), np.array([cost], dtype=np.int64)
        )
        for where, request, pod, cost in starts
    ]
    rows, costs, elsewhere = huawei_starts.Starts(result).of(
        region,
        pa.array([request for request, _ in requests]),
        pa.array([pod for _, pod in requests], pa.utf8()),
    )
    expected = {}
    others = 0
    for row, (request, pod) in enumerate(requests):
        caused = [start for start in starts if start[:2] == (region, request)]
        selected = [cost for _, _, started, cost in caused if started == pod]
        if selected:
            expected[row] = max(selected)
        others += bool(caused and not selected)
    assert dict(zip(rows.tolist(), costs.tolist(), strict=True)) == expected
    assert elsewhere == others


def test_hashes_differ_by_length_seed_and_letter() -> None:
    texts = pa.array(["", "a", "a\0", "b", "a" * 8, "a" * 9, "a" * 8 + "\0"])
    both = [huawei_starts.hashes(texts, seed).tolist() for seed in (0, 1)]
    assert len(set(both[0] + both[1])) == 2 * len(texts)
    assert huawei_starts.hashes(texts.slice(2, 3), 0).tolist() == both[0][2:5]
    assert huawei_starts.hashes(pa.array([], pa.utf8()), 0).tolist() == []
    with pytest.raises(ValueError, match="null"):
        huawei_starts.hashes(pa.array(["a", None]), 0)
