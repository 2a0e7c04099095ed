"""The search for a capacity, against queues whose capacity is known, in virtual time."""

from __future__ import annotations

import heapq
from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pytest

from uncia.errors import RunFailedError
from uncia.stats import capacity, slopes
from uncia.stats.capacity import Found, Search, Seen, see

SERVICE_S = 0.005
Service = Callable[[np.random.Generator, int], np.ndarray]


def fixed(rng: np.random.Generator, n: int) -> np.ndarray:
    """Service times that are all the same."""
    del rng
    return np.full(n, SERVICE_S)


def exponential(rng: np.random.Generator, n: int) -> np.ndarray:
    """Exponential service times with the same mean."""
    return rng.exponential(SERVICE_S, n)


class Queue:
    """Requests in order to some workers."""

    def __init__(self, workers: int, service: Service, seed: int, *, limit_s: float = 1e9) -> None:
        self.workers, self.service, self.limit_s = workers, service, limit_s
        self.rng = np.random.default_rng(seed)
        self.watched_s = 0.0

    @property
    def capacity(self) -> float:
        return self.workers / SERVICE_S

    def rows(
        self, rate: float, seconds: float, *, start: str = "warm", late: float = 0
    ) -> pa.Table:
        """The rows of constant arrivals; latencies above the limit are refused."""
        scheduled = np.arange(int(np.ceil(rate * seconds))) / rate
        free = [0.0] * self.workers
        ends = np.empty(scheduled.size)
        for number, took in enumerate(self.service(self.rng, scheduled.size)):
            ends[number] = max(scheduled[number], heapq.heappop(free)) + took
            heapq.heappush(free, ends[number])
        refused = ends - scheduled > self.limit_s
        nanoseconds = [(values * 1e9).astype(np.int64) for values in (scheduled, ends)]
        return pa.table(
            {
                "outcome": np.where(refused, "throttled", "ok"),
                "start": pa.array([start] * scheduled.size),
                "scheduled": nanoseconds[0],
                "sent": nanoseconds[0] + (late * nanoseconds[0]).astype(np.int64),
                "received": nanoseconds[1],
            }
        )


def searched(queue: Queue, search: Search) -> Found:
    """Carry a search out, with the looks that a real one takes."""
    while (rate := search.next()) is not None:
        longest = capacity.LONGER * capacity.watch_s(rate)
        rows = queue.rows(rate, longest)
        look = capacity.FIRST_LOOK_S
        seen = see(rows, rate)
        while look < longest:
            answered = rows.filter(pa.compute.less(rows["received"], int(look * 1e9)))
            sent = rows.filter(pa.compute.less(rows["scheduled"], int(look * 1e9)))
            if search.is_enough(rate, see(answered, rate), look):
                seen = see(sent, rate)
                break
            look *= capacity.LOOKS
        queue.watched_s += min(look, longest)
        search.add(rate, seen)
    return search.found()


@pytest.mark.parametrize("service", [fixed, exponential])
@pytest.mark.parametrize("workers", [1, 4])
def test_the_capacity_of_a_queue_is_within_the_bracket(workers: int, service: Service) -> None:
    queue = Queue(workers, service, seed=workers)
    result = searched(queue, Search(queue.capacity / 3))
    assert result.low <= queue.capacity <= result.high
    assert result.low < result.capacity < result.high
    if service is fixed:
        assert result.decided
        assert result.high / result.low <= 1.10


def test_of_ten_servers_that_differ_from_request_to_request_most_are_decided() -> None:
    results = []
    for number in range(10):
        queue = Queue(1 + number % 4, exponential, seed=number)
        results.append((queue, searched(queue, Search(queue.capacity / 3))))
    assert sum(found.low <= queue.capacity <= found.high for queue, found in results) >= 9
    assert sum(found.high / found.low <= 1.10 for _, found in results) >= 9
    assert sum(found.decided for _, found in results) >= 8
    assert sum(queue.watched_s <= 240 for queue, _ in results) >= 9


def blocks(mean: float, half: float) -> Seen:
    """What was seen of a rate in 12 s: gains with a mean, whose bounds are about so far from it."""
    values = mean + half * np.tile([2.0, 2.0, -2.0, -2.0], 3)
    return Seen(values, np.zeros(12), 1_200, {})


def test_an_end_that_cannot_be_judged_is_watched_on_and_not_given_up() -> None:
    search = Search(100)
    search.add(100, blocks(0, 0.001))
    search.add(105, blocks(0.05, 0.001))
    assert (search.next(), search.is_confirming) == (100, True)
    # Two are short; the third goes on while all that was seen of the rate says nothing.
    doubtful = blocks(0.04, 0.04)
    for _ in range(2):
        assert search.is_enough(100, doubtful, 6)
        search.add(100, doubtful)
        assert search.next() == 105
        search.add(105, blocks(0.05, 0.001))
        assert search.next() == 100
    assert search.rates[100].verdict(search.tolerance) == "undecided"
    assert not search.is_enough(100, doubtful, 6)
    good = blocks(0, 0.001)
    good = Seen(np.tile(good.gains, 5), np.zeros(60), 6_000, {})
    assert search.is_enough(100, good, 30)
    search.add(100, good)
    assert search.next() == 105
    search.add(105, blocks(0.05, 0.001))
    assert search.next() is None
    result = search.found()
    assert result.decided
    assert result.low == pytest.approx(100, rel=0.02)
    assert result.high == 105


def test_ends_that_do_not_hold_leave_no_bracket_of_doubled_rates() -> None:
    """Half the capacity is the highest rate that is below all those that were doubted."""
    queue = Queue(1, exponential, seed=0)
    result = searched(queue, Search(queue.capacity / 2))
    assert result.low <= queue.capacity <= result.high
    assert result.high / result.low <= 1.15


def test_a_wide_tolerance_leaves_a_close_bracket_decided() -> None:
    queue = Queue(2, fixed, seed=1)
    assert searched(queue, Search(queue.capacity * 0.6, 0.1)).decided


def test_a_rate_that_its_last_answers_made_undecided_is_watched_again() -> None:
    search = Search(100)
    search.add(100, blocks(0, 0.001))
    search.add(200, Seen(blocks(0.02, 0.03).gains[:5], np.zeros(5), 1_000, {}))
    assert search.next() == 200
    assert not search.is_confirming


def test_where_latency_says_about_what_the_capacity_is_rates_beside_it_are_tried() -> None:
    search = Search(100)
    search.add(100, blocks(0, 0.001))
    search.add(200, blocks(0.6, 0.01))
    rate = search.next()
    assert rate is not None
    assert 125 < rate < 135, "and not the middle, 141"


@pytest.mark.parametrize(("name", "width"), [("fixed", 1.10), ("exponential", 1.15)])
def test_a_server_that_others_delay_is_found_all_the_same(name: str, width: float) -> None:
    """Twice in three seconds nothing is served for 50 ms, so the capacity is lower by a share."""
    service = {"fixed": fixed, "exponential": exponential}[name]

    class Delayed(Queue):
        @property
        def capacity(self) -> float:
            return 4 / (SERVICE_S * (1 + 1 / 30))

    def delayed(rng: np.random.Generator, n: int) -> np.ndarray:
        return service(rng, n) * (1 + 1 / 30)

    queue = Delayed(4, delayed, seed=11)
    result = searched(queue, Search(40))
    assert result.low <= queue.capacity <= result.high
    assert result.high / result.low <= width


def test_refusals_bound_the_capacity_as_latency_does() -> None:
    queue = Queue(2, fixed, seed=1, limit_s=0.02)
    found = searched(queue, Search(100))
    assert found.low <= queue.capacity <= found.high
    assert found.high / found.low <= 1.10


def test_below_one_request_a_second_there_is_a_sentence() -> None:
    slow = Queue(1, lambda rng, n: np.full(n, 1.5), seed=1)
    with pytest.raises(RunFailedError, match=r"the capacity is below 1/s"):
        searched(slow, Search(8))


def test_failures_at_every_rate_are_a_sentence() -> None:
    search = Search(3)
    while True:
        rate = search.next()
        assert rate is not None
        rows = Queue(1, fixed, seed=1, limit_s=-1).rows(rate, 2)
        if rate == 1:
            break
        search.add(rate, see(rows, rate))
    search.add(rate, see(rows, rate))
    with pytest.raises(RunFailedError, match="fail at every rate: of 2 at 1/s 2 throttled"):
        search.next()


def test_a_generator_that_is_late_is_not_the_servers_capacity() -> None:
    search = Search(100)
    queue = Queue(1, fixed, seed=1)
    search.add(100, see(queue.rows(100, 12), 100))
    late = queue.rows(200.5, 12, late=0.1)
    received = pa.compute.add(late["sent"], 5_000_000)
    late = late.set_column(late.column_names.index("received"), "received", received)
    with pytest.raises(RunFailedError, match=r"generator itself .*; 100/s is sustained"):
        search.add(200.5, see(late, 200.5))


def test_with_a_limit_of_connections_requests_wait_for_the_server() -> None:
    queue = Queue(1, fixed, seed=1)
    rows = queue.rows(200.5, 12, late=0.1)
    received = pa.compute.add(rows["sent"], 5_000_000)
    rows = rows.set_column(rows.column_names.index("received"), "received", received)
    search = Search(200.5, may_wait=True)
    search.add(200.5, see(rows, 200.5))
    assert search.rates[200.5].verdict(search.tolerance) == "not"


def test_streams_with_equal_shares_that_fire_together_are_judged() -> None:
    rows = Queue(1, fixed, seed=1).rows(50, 12)
    both = pa.concat_tables([rows, rows])
    assert len(see(both, 100, 0.5).gains) == 11
    # Both requests of a moment are without an answer.
    keep = both["scheduled"].to_numpy() != rows["scheduled"][300].as_py()
    assert len(see(both.filter(keep), 100, 0.5).gains) == 5


def test_hops_and_attempts_that_were_preempted_are_no_requests_of_a_probe() -> None:
    rows = Queue(1, fixed, seed=1).rows(100, 12)
    rows = rows.append_column("open_loop", pa.array([True] * rows.num_rows))
    rows = rows.append_column("parent", pa.nulls(rows.num_rows, pa.string()))
    nothing = dict.fromkeys(("scheduled", "sent", "received", "open_loop"))
    row = rows.slice(100, 1).to_pylist()[0]
    hop = row | nothing | {"parent": "a", "outcome": "function_error"}
    preempted = row | {"outcome": "preempted", "received": None}
    more = pa.concat_tables([rows, pa.Table.from_pylist([hop, preempted], rows.schema)])
    seen, alone = see(more, 100), see(rows, 100)
    assert (seen.requests, seen.failed) == (alone.requests, 0)
    assert seen.gains == pytest.approx(alone.gains)


def test_a_confirmation_that_flips_the_lowest_rate_goes_on_below() -> None:
    search = Search(4)
    confirmed: list[float] = []
    tried: list[float] = []
    while (rate := search.next()) is not None:
        tried.append(rate)
        confirmed += [rate] if search.is_confirming else []
        # What was sustained fails when it is watched again: all from 2/s on.
        fails = rate >= 4.2 or (rate >= 2 and search.is_confirming)
        flat = np.zeros(0 if fails else 12)
        search.add(rate, Seen(flat, flat, 100, {"throttled": 1} if fails else {}))
    assert confirmed[0] >= 4
    assert min(tried) == 2
    result = search.found()
    assert result.high <= 4.1
    assert result.low >= 2


def test_failures_at_the_lowest_rate_alone_are_not_at_every_rate() -> None:
    search = Search(1)
    flat = np.zeros(12)
    search.add(1, Seen(flat, flat, 10, {"timeout": 1}))
    search.add(2, Seen(flat, flat, 20, {}))
    with pytest.raises(RunFailedError, match="fail already at the lowest rate: of 10 at 1/s"):
        search.next()


def test_the_first_starts_do_not_count() -> None:
    rows = Queue(1, fixed, seed=1).rows(100, 12)
    first = 200
    starts = ["cold"] * first + ["warm"] * (rows.num_rows - first)
    # Starts take 3 s less what has passed since the first request: latency falls all the time.
    received = np.maximum(rows["received"].to_numpy(), np.arange(rows.num_rows) * 10**7)
    received[:first] = 3 * 10**9
    rows = pa.table(
        {**dict(zip(rows.column_names, rows.columns, strict=True)), "start": starts}
    ).set_column(rows.column_names.index("received"), "received", pa.array(received))
    seen = see(rows, 100)
    assert len(seen.gains) == 8
    assert seen.gains == pytest.approx(0)


def test_what_has_no_answer_yet_ends_what_counts() -> None:
    rows = Queue(1, fixed, seed=1).rows(100, 12)
    # Requests after the 600th that were answered before it would look fast.
    keep = np.arange(rows.num_rows) != 600
    assert len(see(rows.filter(keep), 100).gains) == 5
    assert len(see(rows, 100).gains) == 11


def test_the_bounds_of_a_walk_hold_as_often_as_they_say() -> None:
    """What blocks gain is independent, with a mean of 2 %: the upper bound is above it in 95 %."""
    rng = np.random.default_rng(1)
    trials = 400
    for blocks in (6, 12, 48):
        inside = 0
        for _ in range(trials):
            slope = slopes.of_gains([rng.normal(0.02, 0.05, blocks)])
            assert slope is not None
            inside += slope.low <= 0.02 <= slope.high
        # Both bounds at once: 90 %, somewhat less where scatter is seen by chance.
        assert inside / trials > 0.75


def test_scatter_around_a_level_is_no_walk() -> None:
    rng = np.random.default_rng(1)
    widths = np.zeros(2)
    for _ in range(100):
        scatter = np.diff(rng.normal(0, 0.05, 49))
        for index, gains in enumerate((scatter, rng.normal(0, 0.05 * 2**0.5, 48))):
            slope = slopes.of_gains([gains])
            assert slope is not None
            widths[index] += slope.high - slope.low
    assert widths[0] < 0.7 * widths[1]


def test_a_slow_schedule_has_longer_blocks_and_a_short_one_has_no_slope() -> None:
    scheduled = np.arange(40, dtype=np.int64) * 10**9
    assert slopes.gains(scheduled, scheduled // 10) == pytest.approx([0.1] * 19, rel=0.6)
    assert slopes.of_rows(scheduled[:4], scheduled[:4]) is None
    assert slopes.of_rows(scheduled[:0], scheduled[:0]) is None


def test_what_is_throttled_before_instances_have_started_does_not_count() -> None:
    queue = Queue(1, fixed, 31)
    rows = queue.rows(100.0, 10)
    starts = ["cold" if due == 0 else "warm" for due in rows["scheduled"].to_pylist()]
    received = [
        int(3e8) if start == "cold" else end
        for start, end in zip(starts, rows["received"].to_pylist(), strict=True)
    ]

    def throttled(until_ns: float) -> Seen:
        words = [
            "throttled" if 0 < due < until_ns else "ok" for due in rows["scheduled"].to_pylist()
        ]
        columns = {"outcome": words, "start": starts, "received": received}
        return see(
            pa.table({**dict(zip(rows.column_names, rows.columns, strict=True)), **columns}), 100.0
        )

    assert throttled(3e8).failed == 0
    assert throttled(4e8).outcomes == {"throttled": 10}


def test_a_rate_at_which_one_watch_of_four_failed_cannot_be_judged() -> None:
    well = see(Queue(1, fixed, 32).rows(100.0, 10), 100.0)
    badly = Seen(well.gains, well.late, well.requests, {"throttled": 3})
    rate = capacity.Rate(100.0, [badly])
    assert rate.verdict(slopes.TOLERANCE) == "not"
    rate.seen += [well, well, well]
    assert rate.verdict(slopes.TOLERANCE) == "undecided"
    rate.seen += [badly, badly]
    assert rate.verdict(slopes.TOLERANCE) == "not"


def test_growth_is_no_less_growth_because_one_watch_failed() -> None:
    well = see(Queue(1, fixed, 32).rows(100.0, 10), 100.0)
    slow = see(Queue(1, fixed, 33).rows(400.0, 10), 400.0)
    badly = Seen(well.gains, well.late, well.requests, {"throttled": 3})
    assert capacity.Rate(400.0, [badly, slow, slow, slow]).verdict(slopes.TOLERANCE) == "not"
    # A watch of which nothing is known is none in which nothing failed.
    nothing = Seen(np.empty(0), np.empty(0), 0, {})
    rate = capacity.Rate(100.0, [badly, nothing, nothing, nothing])
    assert rate.verdict(slopes.TOLERANCE) == "not"


def test_starts_without_end_hide_no_throttling() -> None:
    queue = Queue(4, fixed, 34)
    rows = queue.rows(100.0, 6)
    due = rows["scheduled"].to_pylist()
    words = ["ok" if index % 4 == 0 else "throttled" for index in range(len(due))]
    columns = {
        "outcome": words,
        "start": ["cold" if word == "ok" else None for word in words],
        "received": [at + int(2e8) for at in due],
    }
    named = dict(zip(rows.column_names, rows.columns, strict=True))
    assert see(pa.table({**named, **columns}), 100.0).failed > 400
