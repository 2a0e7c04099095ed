import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from uncia import record
from uncia.stats.breakdown import PARTS, breakdown

durations = st.integers(0, 10**9)
maybe = st.one_of(st.none(), durations)


def invocation(
    lag: int,
    connect: int | None,
    queued: int | None,
    initialization: int | None,
    execution: int | None,
    rest: int,
    transfer: int,
) -> dict[str, object]:
    sent = lag
    first = sent + rest + sum(v or 0 for v in (connect, queued, initialization, execution))
    return {
        "function": "f",
        "invocation": "i",
        "attempt": 1,
        "outcome": "ok",
        "scheduled": 0,
        "sent": sent,
        "connected": None if connect is None else sent + connect,
        "connection_reused": connect is None,
        "first_byte": first,
        "received": first + transfer,
        "queued": queued,
        "initialization": initialization,
        "execution": execution,
    }


def table(rows: list[dict[str, object]]) -> pa.Table:
    data = pa.table({name: [row[name] for row in rows] for name in rows[0]})
    return record.conform(data, "invocations")


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(durations, maybe, maybe, maybe, maybe, durations, durations),
        min_size=1,
        max_size=20,
    )
)
def test_the_parts_add_up_to_the_mean_and_no_row_is_lost(rows: list[tuple[int, ...]]) -> None:
    result = breakdown(table([invocation(*row) for row in rows]))
    assert sum(item.rows for item in result) == len(rows)
    assert len({item.platform_times for item in result}) == len(result)
    for item in result:
        assert sum(item.parts_ns.values()) == pytest.approx(item.mean_ns, rel=1e-9, abs=1e-3)
        assert set(item.parts_ns) <= set(PARTS)
        rest = "network and platform" if item.platform_times else "waiting for the answer"
        assert item.parts_ns[rest] >= -1e-3


def test_each_part_is_its_columns() -> None:
    (result,) = breakdown(
        table([invocation(1, 2, 4, 8, 16, 32, 64), invocation(3, 4, 4, 8, 16, 32, 64)])
    )
    assert result.parts_ns == {
        "generator lag": 2.0,
        "connect": 3.0,
        "platform queue": 4.0,
        "initialization": 8.0,
        "execution": 16.0,
        "answer transfer": 64.0,
        "network and platform": 32.0,
    }
    assert list(result.parts_ns) == [part for part in PARTS if part in result.parts_ns]


def test_thawing_is_no_queueing() -> None:
    rows = [
        invocation(1, 2, 50, None, 16, 32, 64) | {"invocation": "paused", "start": "thawed"},
        invocation(1, 2, 4, 8, 16, 32, 64) | {"invocation": "cold", "start": "cold"},
        invocation(1, 2, 6, None, 16, 32, 64) | {"invocation": "warm", "start": "warm"},
    ]
    spans = [
        {"invocation": "paused", "name": "thaw", "start": 10, "end": 55, "clock": "platform"},
        {"invocation": "paused", "name": "extensions", "start": 60, "end": 90, "clock": "platform"},
        {"invocation": "other", "name": "thaw", "start": 10, "end": 99, "clock": "platform"},
    ]
    named = pa.table({name: [span[name] for span in spans] for name in spans[0]})
    (result,) = breakdown(table(rows), record.conform(named, "spans"))
    assert result.parts_ns["thaw"] == pytest.approx(45 / 3)
    assert result.parts_ns["platform queue"] == pytest.approx((5 + 4 + 6) / 3)
    assert result.parts_ns["initialization"] == pytest.approx(8 / 3)
    assert sum(result.parts_ns.values()) == pytest.approx(result.mean_ns)
    # Where nothing says how long it took, there is no such part.
    (result,) = breakdown(table(rows), record.conform(named.slice(0, 0), "spans"))
    assert "thaw" not in result.parts_ns
    assert result.parts_ns["platform queue"] == 20


def test_what_was_never_measured_is_no_part() -> None:
    (result,) = breakdown(table([invocation(1, 2, None, None, 16, 32, 64)]))
    assert "initialization" not in result.parts_ns
    assert "platform queue" not in result.parts_ns


def test_a_platform_that_tells_nothing_leaves_one_part_for_the_wait() -> None:
    (result,) = breakdown(table([invocation(1, 2, None, None, None, 32, 64)]))
    assert not result.platform_times
    assert result.parts_ns["waiting for the answer"] == 32.0


def test_a_reused_connection_takes_no_time_whatever_the_columns_say() -> None:
    row = invocation(1, 2, 4, None, 16, 32, 64) | {"connection_reused": True}
    (result,) = breakdown(table([row]))
    assert result.parts_ns["connect"] == 0.0
    assert result.parts_ns["network and platform"] == 34.0


def test_failed_and_unanswered_rows_take_no_part() -> None:
    failed = invocation(1, 2, 4, 8, 16, 32, 64) | {"outcome": "timeout"}
    unanswered = invocation(1, 2, 4, 8, 16, 32, 64) | {"received": None}
    assert breakdown(table([failed, unanswered])) == []
