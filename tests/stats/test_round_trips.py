"""Round trips: their summary, and latencies less the median one."""

from typing import Any

from record_rows import table

from uncia.stats import round_trips


def event(when: str, samples_ns: list[int], endpoint: str = "h:1") -> dict[str, Any]:
    error = None if samples_ns else "refused"
    return {"when": when, "endpoint": endpoint, "samples_ns": samples_ns, "error": error}


EVENTS = [event("before", [1_000_000, 3_000_000, 2_000_000]), event("after", [4_000_000])]
ROWS = table(
    [
        {"function": "f", "invocation": "a", "attempt": 1, "outcome": "ok"}
        | {"scheduled": 0, "received": received}
        for received in (10_000_000, 20_000_000, 30_000_000)
    ]
    # Neither a failure nor a hop, which no client sent.
    + [
        {"function": "f", "invocation": "b", "attempt": 1, "outcome": "timeout"}
        | {"scheduled": 0, "received": 1},
        {"function": "f", "invocation": "c", "attempt": 1, "outcome": "ok", "received": 1},
    ]
)


def test_each_endpoint_has_its_round_trips_before_and_after() -> None:
    summary = round_trips.summarise([*EVENTS, event("before", [], "h:2")])
    assert summary["h:1"]["before"] == {
        "probes": 3,
        "min_ms": 1.0,
        "median_ms": 2.0,
        "error": None,
    }
    assert summary["h:1"]["after"]["median_ms"] == 4.0
    assert summary["h:2"]["before"] == {
        "probes": 0,
        "min_ms": None,
        "median_ms": None,
        "error": "refused",
    }


def test_the_median_of_all_probes_is_subtracted() -> None:
    assert round_trips.subtracted(ROWS, EVENTS) == {
        "subtracted_rtt_ms": 2.5,
        "latency_less_rtt_ms": {"p50": 17.5, "p99": 27.5},
    }


def test_nothing_is_subtracted_that_is_not_known() -> None:
    nothing = {"subtracted_rtt_ms": None, "latency_less_rtt_ms": None}
    several = [*EVENTS, event("before", [7], "h:2")]
    for events in ([], [event("before", [])], several):
        assert round_trips.subtracted(ROWS, events) == nothing
