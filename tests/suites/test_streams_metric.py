"""What threads of `streams` move through memory in a second, of spans that are made up."""

from types import SimpleNamespace
from typing import Any, cast

import pytest
from record_rows import table

from uncia.stats.comparison import Figure
from uncia.suites.metrics import metric
from uncia.suites.rows import SubjectRows

MS = 1_000_000
STREAMS = {"threads": 2, "kind": "memory", "traffic": 24_000_000, "array": 1 << 20}


def figure(took_ms: list[int], event: dict[str, Any], name: str = "memory") -> Figure:
    requests, spans = [], []
    for number, took in enumerate(took_ms):
        invocation = f"run-1:e-0-{number}"
        # Its execution holds the filling of the arrays, too.
        requests.append(
            {
                "run": "r",
                "experiment": "e",
                "function": "streams",
                "invocation": invocation,
                "attempt": 1,
                "outcome": "ok",
                "scheduled": number,
                "execution": 1_000 * MS,
            }
        )
        span = {"run": "r", "invocation": invocation, "name": name, "clock": "function"}
        spans.append(span | {"start": 5, "end": 5 + took * MS})
    rows = table(requests)
    run = SimpleNamespace(
        invocations=rows,
        rows_of={"e": rows},
        spans=table(spans, "spans"),
        experiment_meta={"e": {"streams": [{"function": "streams", "event": event}]}},
        experiments=["e"],
    )
    form = SimpleNamespace(experiment="e", function=None, without=[], after=0, life=None, skip=0)
    subject = SubjectRows("traffic", cast(Any, form), cast(Any, run))
    compute = metric("stream_bandwidth", "traffic.stream_bandwidth").compute
    assert compute is not None
    return compute(subject, "")


def test_it_is_all_bytes_over_all_time() -> None:
    result = figure([8, 8, 8, 8, 8, 24], STREAMS)
    assert result.value == pytest.approx(6 * 0.048 / 0.064)
    assert result.rows == 6
    assert result.draws is not None
    assert result.draws.min() >= 2
    assert result.draws.max() <= 6
    few = figure([8], STREAMS)
    assert (few.value, few.rows, few.draws) == (pytest.approx(6), 1, None)


@pytest.mark.parametrize(
    ("event", "name"),
    [(STREAMS, "registers"), ({}, "memory"), (STREAMS | {"traffic": "1GB"}, "memory")],
)
def test_where_nothing_is_told_there_is_none(event: dict[str, Any], name: str) -> None:
    result = figure([8] * 6, event, name)
    assert result.value is None
    assert "moved" in result.why
