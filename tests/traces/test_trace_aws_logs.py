"""Lambda's logs: every form that CloudWatch exports gives the same rows, exact to the ns."""

from __future__ import annotations

import gzip
import json
import random
from pathlib import Path
from typing import Any

import pytest
from aws_log_events import (
    EPOCH_MS,
    FORMS,
    MB,
    MS,
    STREAM,
    Invocation,
    as_events,
    by_key,
    imported,
    invocations,
    iso,
    request_id,
    rows_of,
    text,
    write,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from uncia import record
from uncia.errors import UnciaError
from uncia.tariffs import bill
from uncia.traces import aws_logs, json_lines


@settings(deadline=None, max_examples=16)
@given(
    all_of=invocations(),
    form=st.sampled_from(FORMS),
    chunk=st.sampled_from([7, 100, 1 << 20]),
    seed=st.integers(0, 99),
)
def test_every_form_gives_the_same_rows(
    all_of: list[Invocation],
    form: str,
    chunk: int,
    seed: int,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    folder = tmp_path_factory.mktemp("logs")
    events = as_events(all_of)
    random.Random(seed).shuffle(events)
    source = write(folder / "in", form, events)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_lines, "CHUNK_BYTES", chunk)
        done = aws_logs.convert([source], folder / "out")
    result = imported(folder / "out")
    assert by_key(result) == by_key(rows_of(all_of))
    starts = [row["started"] for row in result]
    assert starts == sorted(starts)  # type: ignore[type-var]
    assert done.rows == {"invocations": len(all_of)}
    assert done.skipped == 0


def test_the_forms_are_recognised(tmp_path: Path) -> None:
    events = as_events([Invocation(request_id(1), STREAM.format(1), EPOCH_MS, 100, 128, 40)])
    for form in FORMS[:-1]:
        assert aws_logs.detect([write(tmp_path / form, form, events)]), form
    export = write(tmp_path / "export", "export", events)
    assert aws_logs.detect(list(export.rglob("*5b1105*/*.gz")))
    assert not aws_logs.detect([text(tmp_path / "a.csv", "app,func,end_timestamp,duration\n")])
    assert not aws_logs.detect([text(tmp_path / "b.json", '[{"httpRequest": {}}]')])


def test_an_event_that_two_pages_hold_counts_once(tmp_path: Path) -> None:
    result = Invocation(request_id(1), STREAM.format(1), EPOCH_MS, 15_551, 1769, 40)
    events = as_events([result])
    write(tmp_path / "a", "list", events)
    write(tmp_path / "b", "list", events[1:])
    done = aws_logs.convert([tmp_path / "a", tmp_path / "b"], tmp_path / "out")
    assert imported(tmp_path / "out") == [result.row(1)]
    assert "2 events that occurred again, taken once" in done.warnings


def plain(items: list[Invocation]) -> str:
    """A log without times and streams, with a failure whose own text has a time."""
    lines = [message for item in items for _, message in item.messages()]
    timed_out = f"2026-01-01T00:00:00Z {items[0].request} Task timed out after 3.00 seconds\n\n"
    return "".join([*lines, timed_out])


@pytest.mark.parametrize("names", [("a/fn.log", "b/fn.log"), ("fn.log", "other.log.gz")])
def test_a_copy_of_a_log_without_times_is_left_out(names: tuple[str, str], tmp_path: Path) -> None:
    items = [Invocation(request_id(n), "", 0, 1234 + n, 512, 40) for n in range(4)]
    files = [text(tmp_path / name, plain(items)) for name in names]
    done = aws_logs.convert(files, tmp_path / "out")
    rows = imported(tmp_path / "out")
    assert [(row["invocation"], row["attempt"]) for row in rows] == [
        (item.request, 1) for item in items
    ]
    assert {row["function"] for row in rows} == {"fn"}
    assert (
        f"{files[1]} holds the same events without times as {files[0]}: a copy, which is left out"
        in done.warnings
    )
    assert not any("retry" in warning for warning in done.warnings)


def test_a_log_without_times_that_holds_more_than_another_is_told(tmp_path: Path) -> None:
    items = [Invocation(request_id(n), "", 0, 1234 + n, 512, 40) for n in range(4)]
    files = [
        text(tmp_path / "fn.log", plain(items)),
        text(tmp_path / "more" / "fn.log", plain([*items, items[0]])),
    ]
    done = aws_logs.convert(files, tmp_path / "out")
    assert len(imported(tmp_path / "out")) == 9
    assert any(
        warning.startswith("5 REPORTs without times and with all figures of another of the same")
        for warning in done.warnings
    )


def test_a_rejected_report_ends_its_attempt_and_is_not_missed(tmp_path: Path) -> None:
    item = Invocation(request_id(1), "", 0, 1234, 512, 40)
    start, end, report = (message for _, message in item.messages())
    bad = report.replace("Billed Duration: 13 ms", "Billed Duration: x ms")
    other = Invocation(request_id(2), "", 0, 99, 512, 40).messages()[0][1]
    headless = "REPORT\tDuration: 5.01 ms\tBilled Duration: 6 ms\tMemory Size: 128 MB\n"
    own = "REPORT of the day\n"
    log = text(tmp_path / "fn.log", start + end + bad + start + end + report + other)
    done = aws_logs.convert([log], tmp_path / "out")
    assert [row["execution"] for row in imported(tmp_path / "out")] == [12_340_000]
    assert done.rejected == {"Billed Duration: not milliseconds, 0 or more": 1}
    assert "1 invocation without a REPORT, of which nothing is known: no row" in done.warnings
    log = text(tmp_path / "g.log", headless + own + report)
    done = aws_logs.convert([log], tmp_path / "out-2")
    assert done.rejected == {"RequestId: not an identifier": 1}
    assert done.noted == {"line begins with REPORT but is none of Lambda's: passed over": 1}
    assert (done.read, done.rows) == (2, {"invocations": 1})


def test_what_the_log_does_not_say_is_null_and_counted(tmp_path: Path) -> None:
    first, second, third = (
        Invocation(request_id(n), STREAM.format(1), EPOCH_MS + n, 1234, 512, 40) for n in (1, 2, 3)
    )
    messages = [message for item in (first, second) for _, message in item.messages()]
    messages.pop(0)  # the log begins behind the START of the first
    messages.append(third.messages()[0][1])  # and ends before the REPORT of the third
    log = text(tmp_path / "my-function.txt", "".join(messages))
    done = aws_logs.convert([log], tmp_path / "out")
    expected = []
    for item in (first, second):
        row = item.row(1) | {"function": "my-function"}
        expected.append({k: v for k, v in row.items() if k not in ("instance", "started", "ended")})
    assert imported(tmp_path / "out") == expected
    output = "\n".join(done.warnings)
    assert "2 REPORTs in a log that names no function: it is named after its file" in output
    assert "1 invocation without a REPORT" in output
    assert "1 REPORT without a START: started is null" in output
    assert "2 REPORTs in a log without times" in output
    assert "2 REPORTs in a log that names no stream" in output


def test_a_failure_belongs_to_its_attempt(tmp_path: Path) -> None:
    case, two, stream = request_id(1), request_id(2), STREAM.format(1)
    killed = "RequestId: {} Error: Runtime exited with error: signal: killed\nRuntime.ExitError\n"
    events = []

    def add(ms: int, message: str) -> None:
        event = {"timestamp": EPOCH_MS + ms, "message": message, "logStreamName": stream}
        events.append({**event, "eventId": str(len(events))})

    report = "REPORT RequestId: {}\tDuration: {} ms\tBilled Duration: {} ms\tMemory Size: 128 MB\t"
    add(0, f"START RequestId: {case} Version: 1")
    add(3000, f"END RequestId: {case}")
    add(3000, report.format(case, "3000.00", "3000"))
    add(3000, f"2025-05-12T20:24:09.000Z {case} Task timed out after 3.00 seconds\n\n")
    add(4000, f"START RequestId: {case} Version: 1")
    add(4010, f"END RequestId: {case}")
    add(4010, report.format(case, "9.50", "10"))
    add(5000, f"START RequestId: {two} Version: 1")
    add(5001, killed.format(two))
    add(5001, f"END RequestId: {two}")
    add(5001, report.format(two, "1.00", "1"))
    log = text(tmp_path / "f.json", json.dumps({"events": events[::-1]}))
    aws_logs.convert([log], tmp_path / "out")
    result = [
        (row["attempt"], row["outcome"], row.get("error"), row["execution"])
        for row in imported(tmp_path / "out")
    ]
    assert result == [
        (1, "timeout", "Task timed out after 3.00 seconds", 3000 * MS),
        (2, "ok", None, 9_500_000),
        (1, "function_error", "Error: Runtime exited with error: signal: killed", MS),
    ]


@pytest.mark.parametrize("wrapped", [True, False])
def test_the_json_format_of_lambda(wrapped: bool, tmp_path: Path) -> None:
    request = request_id(7)
    arn = "arn:aws:lambda:eu-west-1:123456789012:function:thumbnails"
    message = [
        {"time": "2025-05-12T20:24:06.154Z", "type": "platform.start",
         "record": {"requestId": request, "functionArn": arn, "version": "$LATEST"}},
        {"time": "2025-05-12T20:24:06.200Z", "level": "INFO", "message": "hello"},
        {"time": "2025-05-12T20:24:10.301Z", "type": "platform.report",
         "record": {"requestId": request, "status": "timeout", "errorType": "Sandbox.Timeout",
                    "metrics": {"durationMs": 4069.123, "billedDurationMs": 4215,
                                "memorySizeMB": 256, "maxMemoryUsedMB": 118,
                                "initDurationMs": 145.399}}},
    ]  # fmt: skip
    lines = [json.dumps(item) for item in message]
    if wrapped:
        lines = [
            json.dumps({"timestamp": 1, "message": line, "logGroupName": "/aws/lambda/thumbnails"})
            for line in lines
        ]
    aws_logs.convert([text(tmp_path / "x.json", "\n".join(lines))], tmp_path / "out")
    (row,) = imported(tmp_path / "out")
    assert row == {
        "platform": "aws",
        "function": "thumbnails",
        "invocation": request,
        "request_id": request,
        "attempt": 1,
        "outcome": "timeout",
        "error": "Sandbox.Timeout",
        "start": "cold",
        "started": 1_747_081_446_154_000_000,
        "ended": 1_747_081_450_301_000_000,
        "execution": 4_069_123_000,
        "initialization": 145_399_000,
        "billed": 4215 * MS,
        "allocated_memory": 256 * MB,
        "allocated_cpu": 144_714,
        "memory_peak": 118 * MB,
    }


RECORD = {
    "RequestId": request_id(3),
    "Duration": 17.36,
    "Billed Duration": 18.0,
    "Memory Size": 1000.0,
    "Max Memory Used": 39.0,
    "Invocation Timestamp": 1745570818782089249,
    "Response Timestamp": 1745570818859265254,
    "Function Name": "aes",
    "Payload": '"1+x"',
}


def test_measurements_that_keep_the_parts_of_a_report(tmp_path: Path) -> None:
    cold = RECORD | {"RequestId": request_id(4), "Init Duration": "131.01 ms", "Payload": None}
    nothing = RECORD | {"RequestId": request_id(5), "Init Duration": float("nan")}
    log = text(tmp_path / "x.json.gz", json.dumps([RECORD, cold, nothing]))
    aws_logs.convert([log], tmp_path / "out")
    first, second, third = imported(tmp_path / "out")
    assert first == {
        "platform": "aws",
        "function": "aes",
        "invocation": request_id(3),
        "request_id": request_id(3),
        "attempt": 1,
        "sent": 1745570818782089249,
        "received": 1745570818859265254,
        "outcome": "ok",
        "start": "warm",
        "execution": 17_360_000,
        "billed": 18 * MS,
        "allocated_memory": 1000 * MB,
        "allocated_cpu": 565_291,
        "memory_peak": 39 * MB,
    }
    assert (second["start"], second["initialization"]) == ("cold", 131_010_000)
    assert third["start"] == "warm"


def test_bad_lines_are_left_out_and_counted(tmp_path: Path) -> None:
    good = [Invocation(request_id(n), STREAM.format(1), EPOCH_MS + n, 1, 128, 1) for n in (1, 2)]
    events = as_events(good)
    report = "REPORT RequestId: {}\tDuration: {}\tBilled Duration: 1 ms\tMemory Size: {}\t"
    bad: list[tuple[Any, str, str]] = [
        (report.format(request_id(3), "-1.00 ms", "128 MB"), "Duration", "milliseconds, 0 or more"),
        (report.format(request_id(3), "1e999 ms", "128 MB"), "Duration", "milliseconds, 0 or more"),
        (report.format(request_id(3), "1.00 s", "128 MB"), "Duration", "milliseconds, 0 or more"),
        (report.format(request_id(3), "1 ms", "0 MB"), "Memory Size", "megabytes, from 1"),
        (f"REPORT RequestId: {request_id(3)}\tDuration: 1 ms\t", "Billed Duration", "millis"),
        ("REPORT RequestId: ", "RequestId", "an identifier"),
        ('{"type": "platform.report", "time": "2025-05-12T20:24:06Z"}', "record", "an object"),
        (None, "message", "the event's text"),
    ]
    for number, (message, _, _) in enumerate(bad):
        event = {"timestamp": EPOCH_MS, "message": message, "eventId": f"bad{number}"}
        events.insert(1 + number, {**event, "logStreamName": STREAM.format(1)})
    events.insert(3, {"timestamp": "soon", "message": f"START RequestId: {request_id(4)}"})
    log = text(tmp_path / "fn.jsonl", "\n".join(map(json.dumps, events)) + "\nno JSON\n[1]\n")
    done = aws_logs.convert([log], tmp_path / "out", strict=False)
    assert by_key(imported(tmp_path / "out")) == by_key([item.row(1) for item in good])
    assert done.skipped == len(bad) + 1 + 2 - 1  # "no JSON" is the function's own line
    for number, (_, column, expected) in enumerate(bad):
        result = tmp_path / f"{number}.jsonl"
        line = 2 + number + (number >= 2)
        text(result, "\n".join(map(json.dumps, [*events[:1], events[line - 1]])))
        with pytest.raises(UnciaError, match=f"line 2, column {column}: .* is not {expected}"):
            aws_logs.convert([result], tmp_path / "none", strict=True)
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize("key", ["errorType", "status"])
def test_half_of_a_surrogate_pair_is_replaced(key: str, tmp_path: Path) -> None:
    report = {
        "time": iso(EPOCH_MS) + "Z",
        "type": "platform.report",
        "record": {
            "requestId": request_id(1),
            "metrics": {"durationMs": 1, "billedDurationMs": 1, "memorySizeMB": 128},
            "status": "error",
        }
        | {key: "x\ud800"},
    }
    exited = f"RequestId: {request_id(2)} Process exited before \udc00 completing"
    lines = [
        f"REPORT RequestId: {request_id(2)}\tDuration: 1 ms\tBilled Duration: 1 ms\t"
        "Memory Size: 128 MB\t",
        exited,
    ]
    events = [
        {"timestamp": EPOCH_MS + number, "message": line, "logStreamName": STREAM.format(1)}
        for number, line in enumerate([json.dumps(report), *lines])
    ]
    done = aws_logs.convert([text(tmp_path / "fn.json", json.dumps(events))], tmp_path / "out")
    assert done.skipped == 0
    errors = {row["invocation"]: row["error"] for row in imported(tmp_path / "out")}
    assert errors == {
        request_id(1): "x\ufffd",
        request_id(2): "Process exited before \ufffd completing",
    }


@pytest.mark.parametrize("huge", ["1e99999999999999999999", "9" * 5000])
@pytest.mark.parametrize("wrapped", [True, False])
def test_a_number_beyond_all_bounds_is_one_bad_row(
    wrapped: bool, huge: str, tmp_path: Path
) -> None:
    def report(number: int, duration: str) -> str:
        record = {
            "time": iso(EPOCH_MS + number) + "Z",
            "type": "platform.report",
            "record": {
                "requestId": request_id(number),
                "metrics": {"durationMs": "D", "billedDurationMs": 2, "memorySizeMB": 128},
                "status": "success",
            },
        }
        text = json.dumps(record).replace('"D"', duration)
        return json.dumps({"timestamp": EPOCH_MS, "message": text}) if wrapped else text

    lines = [report(1, "1.5"), report(2, huge), report(3, huge.replace("e", "e-"))]
    log = text(tmp_path / "fn.jsonl", "\n".join(lines))
    done = aws_logs.convert([log], tmp_path / "out", strict=False)
    assert done.skipped == 2
    assert [row["execution"] for row in imported(tmp_path / "out")] == [1_500_000]
    with pytest.raises(UnciaError, match=f"column Duration: '{huge[:20]}.* is not milliseconds"):
        aws_logs.convert([log], tmp_path / "none", strict=True)


def test_a_file_that_was_cut_off_is_an_error_that_says_where(tmp_path: Path) -> None:
    events = as_events([Invocation(request_id(1), STREAM.format(1), EPOCH_MS, 1, 128, 1)])
    whole = json.dumps(events)
    cut = text(tmp_path / "a.json", whole[: whole.index("REPORT") + 20])
    with pytest.raises(UnciaError, match=r"a\.json is cut off: its JSON ends within record 3"):
        aws_logs.convert([cut], tmp_path / "out", strict=False)
    packed = tmp_path / "b.json.gz"
    packed.write_bytes(gzip.compress(whole.encode())[:-30])
    with pytest.raises(UnciaError, match=r"b\.json\.gz is cut off"):
        aws_logs.convert([packed], tmp_path / "out", strict=False)
    lines = text(tmp_path / "c.jsonl", "\n".join(map(json.dumps, events))[:-9])
    with pytest.raises(UnciaError, match=r"c\.jsonl is cut off: .* record 3, in line 3"):
        aws_logs.convert([lines], tmp_path / "out", strict=False)
    with pytest.raises(UnciaError, match="no REPORT line"):
        aws_logs.convert([text(tmp_path / "d.log", "START of the day\n")], tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_the_tariff_bills_what_lambda_billed(tmp_path: Path) -> None:
    # Duration is rounded to 0.01 ms where it is shown, so that of a whole number of ms Lambda may
    # have billed one more: 22.00 shown may be 22.003.
    durations = [15_551, 1, 100, 1736, 2214, 99_999, 2200]
    log = [
        Invocation(request_id(n), STREAM.format(1), EPOCH_MS + n, duration, 1769, 40)
        for n, duration in enumerate(durations)
    ]
    log.append(Invocation(request_id(90), STREAM.format(2), EPOCH_MS, 1736, 512, 9, init=13_101))
    events = as_events(log)
    shown = next(event for event in events if "Duration: 22.00 ms" in event["message"])
    shown["message"] = shown["message"].replace("Billed Duration: 22 ms", "Billed Duration: 23 ms")
    aws_logs.convert([write(tmp_path, "lines", events)], tmp_path / "out")
    rows = {row["invocation"]: row for row in imported(tmp_path / "out")}
    lines = bill(record.read(tmp_path / "out"), ["aws-lambda-x86"], group_by=["invocation"])
    assert len(lines) == len(rows) == len(log)
    differ = []
    for line in lines:
        row = rows[line.group["invocation"]]
        if line.billable_byte_ns != row["billed"] * row["allocated_memory"]:  # type: ignore[operator]
            differ.append((row["execution"], row["billed"]))
    assert differ == [(22 * MS, 23 * MS)]


@settings(deadline=None, max_examples=25)
@given(data=st.data())
def test_any_damage_is_an_error_or_counted(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("fuzz")
    result = Invocation(request_id(1), STREAM.format(1), EPOCH_MS, 155, 128, 1, init=7)
    source = write(folder, data.draw(st.sampled_from(["pages", "lines", "csv", "tail"])),
                   as_events([result]))  # fmt: skip
    content = bytearray(source.read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(content) - 1))
        cut = data.draw(st.integers(0, 3))
        content[at : at + cut] = data.draw(st.binary(max_size=3))
    source.write_bytes(content)
    try:
        done = aws_logs.convert([source], folder / "out", strict=False)
    except UnciaError:
        assert not (folder / "out").exists()
    else:
        assert done.rows["invocations"] >= 1


def test_a_row_that_is_no_csv_is_counted(tmp_path: Path) -> None:
    result = Invocation(request_id(1), STREAM.format(1), EPOCH_MS, 155, 128, 1, init=7)
    source = write(tmp_path, "csv", as_events([result]))
    content = source.read_bytes()
    source.write_bytes(content + b'2025-05-12 00:00:00.000,"a"\rb\n')
    done = aws_logs.convert([source], tmp_path / "row", strict=False)
    assert done.rows["invocations"] == 1
    assert sum(done.rejected.values()) == 1
