"""``/metrics``, read by Prometheus' own parser for Python."""

import math
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from uncia.platforms import inquiries

HISTOGRAMS = {
    "uncia_execution_seconds": "execution",
    "uncia_queue_seconds": "queued",
    "uncia_initialization_seconds": "initialization",
}


def scrape(serving: Any) -> dict[str, Metric]:
    with serving.get("/metrics") as answer:
        assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
        text = answer.read().decode()
    families = list(text_string_to_metric_families(text))
    assert len({family.name for family in families}) == len(families)
    return {family.name: family for family in families}


def samples(family: Metric, suffix: str = "", **labels: str) -> list[float]:
    return [
        sample.value
        for sample in family.samples
        if sample.name == family.name + suffix and labels.items() <= sample.labels.items()
    ]


@pytest.fixture(scope="module")
def scraped(serving: Any) -> dict[str, Metric]:
    return scrape(serving)


@pytest.fixture(scope="module")
def rows(serving: Any) -> list[dict[str, Any]]:
    table, _, _ = inquiries.fetch_page(serving.address, "invocations", 0, print)
    return list(table.to_pylist())


def test_every_family_has_a_type_a_help_and_samples(scraped: dict[str, Metric]) -> None:
    for family in scraped.values():
        assert family.type in ("counter", "gauge", "histogram"), family.name
        assert family.documentation.endswith("."), family.name
        assert family.samples, family.name
        assert all(math.isfinite(sample.value) for sample in family.samples)


def test_invocations_are_counted_by_function_outcome_and_start(
    scraped: dict[str, Metric], rows: list[dict[str, Any]]
) -> None:
    family = scraped["uncia_invocations"]
    assert family.type == "counter"
    expected: dict[tuple[str, ...], int] = {}
    for row in rows:
        key = (row["function"], row["outcome"], row["start"] or "none")
        expected[key] = expected.get(key, 0) + 1
    result = {
        (sample.labels["function"], sample.labels["outcome"], sample.labels["start"]): sample.value
        for sample in family.samples
    }
    assert result == expected


def test_histograms_are_those_of_the_rows(
    scraped: dict[str, Metric], rows: list[dict[str, Any]]
) -> None:
    for name, column in HISTOGRAMS.items():
        family = scraped[name]
        assert family.type == "histogram"
        for function in ("works", "fails"):
            values = [
                row[column] / 1e9
                for row in rows
                if row["function"] == function and row[column] is not None
            ]
            (total,) = samples(family, "_count", function=function)
            (sum_s,) = samples(family, "_sum", function=function)
            assert total == len(values)
            assert sum_s == pytest.approx(sum(values), rel=1e-12)
            buckets = [
                (float(sample.labels["le"]), sample.value)
                for sample in family.samples
                if sample.name.endswith("_bucket") and sample.labels["function"] == function
            ]
            assert buckets[-1] == (math.inf, total)
            for (lower, fewer), (upper, more) in pairwise(buckets):
                assert (lower, fewer) <= (upper, more)
            for bound, count in buckets:
                assert count == sum(value <= bound for value in values), (name, bound)


def test_what_invocations_used_is_that_of_the_rows(
    scraped: dict[str, Metric], rows: list[dict[str, Any]]
) -> None:
    for function in ("works", "fails"):
        of_it = [row for row in rows if row["function"] == function]
        for mode in ("user", "system"):
            (used,) = samples(scraped["uncia_cpu_seconds"], "_total", function=function, mode=mode)
            assert used == pytest.approx(sum(row[f"cpu_{mode}"] for row in of_it) / 1e9)
        (peak,) = samples(scraped["uncia_memory_peak_bytes"], function=function)
        assert peak == max(row["memory_peak"] for row in of_it)
        (sent,) = samples(scraped["uncia_request_bytes"], "_total", function=function)
        assert sent == sum(row["request_bytes"] for row in of_it)


def test_instances_are_counted_by_what_they_do(scraped: dict[str, Metric]) -> None:
    states = {sample.labels["state"]: sample.value for sample in scraped["uncia_instances"].samples}
    assert set(states) == {"starting", "busy", "idle", "frozen", "scaled_down", "stopping"}
    assert sum(states.values()) == 2
    assert samples(scraped["uncia_functions"]) == [2]


def test_counters_only_grow(serving: Any, scraped: dict[str, Metric]) -> None:
    serving.invoke("works", 2)
    later = scrape(serving)
    for name, family in scraped.items():
        if family.type != "counter":
            continue
        before = {(it.name, *it.labels.items()): it.value for it in family.samples}
        after = {(it.name, *it.labels.items()): it.value for it in later[name].samples}
        assert all(after[key] >= value for key, value in before.items()), name
    works = {"function": "works", "outcome": "ok"}
    before_count = sum(samples(scraped["uncia_invocations"], "_total", **works))
    assert sum(samples(later["uncia_invocations"], "_total", **works)) == before_count + 2


def test_the_process_is_described(serving: Any, scraped: dict[str, Metric]) -> None:
    assert samples(scraped["process_resident_memory_bytes"])[0] > 1_000_000
    assert samples(scraped["process_cpu_seconds"], "_total")[0] > 0
    assert samples(scraped["process_open_fds"])[0] < samples(scraped["process_max_fds"])[0]


def test_every_family_is_described_on_its_page(scraped: dict[str, Metric]) -> None:
    page = Path(__file__).parents[2] / "docs/reference/metrics.md"
    text = page.read_text(encoding="utf-8")
    for family in scraped.values():
        name = f"{family.name}_total" if family.type == "counter" else family.name
        assert f"`{name}`" in text, name
