"""The join keeps every client row once and takes from the platform what is its to say."""

from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from uncia import record
from uncia.experiment.join import PLATFORM_COLUMNS, identified, join, rename, shift, unmatched

EPOCH = 1_760_000_000_000_000_000


def rows(*given: dict[str, Any], epoch: int = EPOCH) -> pa.Table:
    whole = [
        {
            "function": "f",
            "attempt": 1,
            "outcome": "ok",
            **row,
            "invocation": str(row["invocation"]),
        }
        for row in given
    ]
    if not whole:
        return record.empty("invocations", epoch)
    names = list(dict.fromkeys(name for row in whole for name in row))
    data = {name: [row.get(name) for row in whole] for name in names}
    return record.conform(pa.table(data), "invocations", epoch)


def test_each_side_says_what_it_knows() -> None:
    client = rows(
        {"invocation": 1, "function": "mine", "outcome": "timeout", "sent": 5, "start": "warm"}
    )
    platform = rows(
        {"invocation": 1, "function": "theirs", "outcome": "ok", "start": "cold", "billed": 7}
    )
    row = join(client, platform).rows.to_pylist()[0]
    assert (row["function"], row["outcome"], row["sent"]) == ("mine", "timeout", 5)
    assert (row["start"], row["billed"]) == ("cold", 7)


def test_where_the_log_is_silent_the_headers_stand() -> None:
    client = rows(
        {"invocation": 1, "start": "warm", "cpu_user": 3}, {"invocation": 2, "cpu_user": 4}
    )
    platform = rows({"invocation": 1, "cpu_system": 9})
    first, second = join(client, platform).rows.to_pylist()
    assert (first["start"], first["cpu_user"], first["cpu_system"]) == ("warm", 3, 9)
    assert (second["cpu_user"], second["cpu_system"]) == (4, None)


def test_the_platform_knows_an_error_better_than_its_status() -> None:
    client = rows({"invocation": 1, "error": "HTTP 502"}, {"invocation": 2, "error": "no answer"})
    platform = rows({"invocation": 1, "error": "ValueError: no"}, {"invocation": 2})
    errors = join(client, platform).rows.column("error").to_pylist()
    assert errors == ["ValueError: no", "no answer"]


def test_a_log_that_does_not_know_the_clients_names_is_joined_by_request_ids() -> None:
    client = rows({"invocation": 1, "request_id": "a"}, {"invocation": 2, "request_id": "b"})
    log = rows(
        {"invocation": "b", "request_id": "b", "billed": 7},
        {"invocation": "c", "request_id": "c"},
        {"invocation": 1, "request_id": "a", "billed": 5},
        {"invocation": "d"},
    )
    assert unmatched(client, log) == 0
    joined = join(client, identified(client, log))
    assert joined.rows.column("billed").to_pylist() == [5, 7]
    assert (joined.matched, joined.strangers) == (2, 2)
    assert unmatched(client, log.slice(1)) == 1


def test_what_was_only_accepted_ends_as_the_platform_says_and_has_no_latency() -> None:
    answered = {"status": 202, "first_byte": 5, "received": 6}
    client = rows(
        *({"invocation": n, "request_id": f"id-{n}", **answered} for n in (1, 2)),
        {"invocation": 3, "request_id": "id-3", **answered, "status": 200},
        {"invocation": 4, "request_id": "id-4", **answered, "outcome": "function_error"},
    )
    log = rows(
        *(
            {"invocation": f"id-{n}", "request_id": f"id-{n}", "outcome": "function_error"}
            for n in (1, 3)
        ),
        # A function that answers with this status, to a platform that knows the client's names.
        {"invocation": 4, "request_id": "id-4"},
    )
    joined = join(client, log)
    seen = [(row["outcome"], row["first_byte"], row["received"]) for row in joined.rows.to_pylist()]
    assert seen == [
        ("function_error", None, None),
        ("ok", 5, 6),
        ("ok", 5, 6),
        ("function_error", 5, 6),
    ]
    assert joined.accepted == 1


def test_of_an_event_that_is_tried_again_the_attempt_that_went_well_counts() -> None:
    client = rows(*({"invocation": n, "status": 202} for n in (1, 2)))
    failed = {"outcome": "function_error", "error": "no"}
    log = rows(
        {"invocation": 1, **failed, "billed": 1},
        {"invocation": 2, **failed, "attempt": 2, "billed": 5},
        {"invocation": 2, **failed, "billed": 4},
        {"invocation": 1, "attempt": 2, "billed": 2},
    )
    joined = join(client, log)
    first, second = joined.rows.to_pylist()
    assert (first["outcome"], first["attempt"], first["error"], first["billed"]) == (
        "ok",
        2,
        None,
        2,
    )
    assert (second["outcome"], second["attempt"], second["billed"]) == ("ok", 2, 5)
    assert (joined.matched, joined.strangers, joined.repeated, joined.accepted) == (2, 0, 2, 0)


def test_strangers_and_repetitions_are_counted_and_kept_out() -> None:
    client = rows({"invocation": 1}, {"invocation": 2})
    platform = rows(
        {"invocation": 1, "billed": 1}, {"invocation": 1, "billed": 2}, {"invocation": 9}
    )
    joined = join(client, platform)
    assert (joined.matched, joined.strangers, joined.repeated) == (1, 1, 1)
    assert joined.rows.column("invocation").to_pylist() == ["1", "2"]
    assert joined.rows.column("billed").to_pylist() == [1, None]


def test_a_preempted_attempt_is_a_row_of_its_own() -> None:
    client = rows(
        {"invocation": 1, "experiment": "e", "sent": 5, "received": 90, "status": 200},
        {"invocation": 2, "outcome": "timeout", "sent": 6},
    )
    platform = rows(
        {"invocation": 1, "outcome": "preempted", "error": "stopped", "billed": 0, "cpu_user": 3},
        {"invocation": 2, "outcome": "preempted", "billed": 0},
        {"invocation": 1, "attempt": 2, "billed": 7, "cpu_user": 4},
        {"invocation": 9, "outcome": "preempted"},
    )
    joined = join(client, platform)
    assert (joined.matched, joined.strangers, joined.repeated) == (1, 1, 0)
    answered, unanswered = joined.rows.to_pylist()
    assert (answered["attempt"], answered["outcome"], answered["error"]) == (2, "ok", None)
    assert (answered["received"], answered["billed"], answered["cpu_user"]) == (90, 7, 4)
    assert (unanswered["attempt"], unanswered["outcome"]) == (1, "timeout")
    first, second = joined.preempted.to_pylist()
    assert (first["attempt"], first["outcome"], first["error"]) == (1, "preempted", "stopped")
    assert (first["experiment"], first["sent"], first["cpu_user"]) == ("e", 5, 3)
    assert (first["received"], first["status"], first["billed"]) == (None, None, 0)
    assert (second["invocation"], second["outcome"]) == ("2", "preempted")


def test_unmatched_counts_what_was_answered_and_is_not_logged() -> None:
    client = rows(
        {"invocation": 1, "request_id": "a"},
        {"invocation": 2, "request_id": "b"},
        {"invocation": 3},
    )
    assert unmatched(client, rows({"invocation": 1})) == 1
    assert unmatched(client, rows()) == 2
    assert unmatched(client, rows({"invocation": 1}, {"invocation": 2})) == 0


def test_an_answer_that_does_not_name_its_invocation_is_missing_from_the_log() -> None:
    client = rows(
        {"invocation": 1, "outcome": "ok"},
        {"invocation": 2, "outcome": "ok", "request_id": "b"},
        {"invocation": 3, "outcome": "throttled"},
    )
    log = rows({"invocation": "a", "request_id": "a"}, {"invocation": "b", "request_id": "b"})
    assert unmatched(client, log, names_invocations=True) == 1
    assert unmatched(client, rows(), names_invocations=True) == 2
    failed = rows({"invocation": 1, "outcome": "function_error"})
    assert unmatched(failed, log, names_invocations=True) == 1
    assert unmatched(failed, log) == 0
    # Another platform's may be no invocations, such as the beginning of a state machine.
    assert unmatched(client, log) == 0


@given(
    st.lists(st.integers(0, 30), max_size=40, unique=True),
    st.lists(st.tuples(st.integers(0, 30), st.integers(0, 2**62)), max_size=40),
)
def test_a_join_is_a_left_join(asked: list[int], logged: list[tuple[int, int]]) -> None:
    client = rows(*({"invocation": number, "sent": number} for number in asked))
    platform = rows(*({"invocation": number, "cpu_user": cpu} for number, cpu in logged))
    joined = join(client, platform)
    first: dict[int, int] = {}
    for number, cpu in logged:
        first.setdefault(number, cpu)
    assert joined.rows.column("invocation").to_pylist() == [str(number) for number in asked]
    assert joined.rows.column("cpu_user").to_pylist() == [first.get(number) for number in asked]
    assert joined.matched == sum(number in first for number in asked)
    assert joined.strangers == sum(number not in asked for number, _ in logged)
    assert record.epoch_unix_ns(joined.rows) == EPOCH


def test_a_platform_s_times_become_the_run_s() -> None:
    log = rows({"invocation": 1, "started": EPOCH + 5, "execution": 3}, epoch=0)
    row = shift(log, "invocations", EPOCH, "r").to_pylist()[0]
    assert (row["run"], row["started"], row["execution"], row["ended"]) == ("r", 5, 3, None)


def test_idle_intervals_move_too() -> None:
    kind = record.schema("instances").field("idle").type
    log = record.conform(
        pa.table(
            {
                "function": ["u1-0-hello-3", "other"],
                "instance": ["i", "j"],
                "started": [EPOCH, EPOCH + 1],
                "idle": pa.array([[{"start": EPOCH + 2, "end": EPOCH + 9}], None], kind),
            }
        ),
        "instances",
    )
    moved = rename(shift(log, "instances", EPOCH, "r"), {"u1-0-hello-3": "hello"}).to_pylist()
    assert moved[0]["idle"] == [{"start": 2, "end": 9}]
    assert [row["started"] for row in moved] == [0, 1]
    assert [row["function"] for row in moved] == ["hello", "other"]
    assert moved[1]["idle"] is None


def test_the_platform_s_columns_are_columns_of_the_table() -> None:
    assert set(PLATFORM_COLUMNS) <= set(record.schema("invocations").names)
