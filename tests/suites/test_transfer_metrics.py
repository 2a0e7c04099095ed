"""Transfers as claims have them, of rows that are made up."""

from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from record_rows import table

from uncia.suites.metrics import metric
from uncia.suites.rows import SubjectRows

MS = 1_000_000
STAGE = {"function": "f", "repeat": 1}


def subject(times: list[int], clock: str = "kernel-1") -> SubjectRows:
    """Chains of two, whose second stage is handed 1 MB in these times, ns."""
    invocations, spans = [], []
    # Two clocks are the worse to compare, the longer a call takes beside its handler.
    handler = (2, 997 * MS) if clock == "kernel-1" else (400 * MS, 600 * MS)
    for number, took in enumerate(times):
        first, second = f"r:e-0-{number}", f"h{number}"
        common = {"experiment": "e", "function": "f", "outcome": "ok", "attempt": 1}
        invocations += [
            {**common, "invocation": first, "scheduled": 0, "sent": 0, "received": 999 * MS},
            {**common, "invocation": second, "parent": first, "stage": "b"},
        ]
        spans += [
            {"invocation": second, "instance": f"{second}-{name == 'call'}", "name": name}
            | {"clock": clock, "start": start, "end": end}
            for name, start, end in (
                ("call", 1, 998 * MS),
                ("handler", *handler),
                ("transfer", 1, 1 + took),
            )
        ]
    stages = {"a": STAGE, "b": {**STAGE, "payload": 1_000_000}}
    chain = {"name": "c", "kind": "nested", "stages": stages}
    rows = SimpleNamespace(
        name="e",
        invocations=table(invocations),
        run=SimpleNamespace(spans=table(spans, "spans")),
        meta={"streams": [{"hops": chain}]},
    )
    rows.once = lambda compute: compute(rows)
    return cast(SubjectRows, rows)


def figure(name: str, rows: SubjectRows) -> Any:
    compute = metric(name, name).compute
    assert compute is not None
    return compute(rows, "")


def test_quantiles_spread_and_bandwidth_are_of_the_transfers() -> None:
    rows = subject([number * MS for number in range(1, 301)])
    assert figure("transfer_p50", rows).value == 150
    assert figure("transfer_p99", rows).value == 297
    spread = figure("transfer_tmr", rows)
    assert spread.value == pytest.approx(297 / 150)
    # 8 Mbit in 150 ms.
    speed = figure("bandwidth", rows)
    assert speed.value == pytest.approx(8 / 0.150)
    low, high = np.quantile(speed.draws, [0.025, 0.975])
    assert low < speed.value < high


def test_few_transfers_have_no_tail() -> None:
    rows = subject([5 * MS] * 30)
    assert figure("transfer_p50", rows).draws is not None
    for name in ("transfer_p99", "transfer_tmr"):
        few = figure(name, rows)
        assert (few.draws, few.rows, few.needed) == (None, 30, 299)


def test_times_that_clocks_cannot_tell_are_none() -> None:
    result = figure("bandwidth", subject([1000] * 9, clock="function"))
    assert result.value is None
    assert "below the error of the clocks" in result.why
