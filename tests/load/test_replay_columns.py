"""Fields of kind column: each request carries the value of its own row."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from load_helpers import ERROR, OK, Request, Server
from record_rows import write_invocations

import uncia as package
from uncia import record
from uncia.errors import UnciaError
from uncia.workload.arrivals.times import Process as Times
from uncia.workload.columns import ColumnField, decimal_text, engine
from uncia.workload.mapping import ByRule, assign
from uncia.workload.replay import Replayed

MS = 1_000_000


def workload(url: str, table: Path, column: dict[str, Any], **replay: Any) -> dict[str, Any]:
    return {
        "name": "again",
        "functions": {
            "f": {
                "url": url + "{{v}}",
                "headers": {"x-value": "{{v}}"},
                "body": {"template": '{"value": {{v}}, "number": {{number}}}'},
                "fields": {"v": {"kind": "column", **column}},
            }
        },
        "replay": {"table": str(table), "map": "f", **replay},
    }


@pytest.mark.parametrize("processes", [1, 2])
def test_each_request_has_the_value_of_its_row_whatever_becomes_of_it(
    tmp_path: Path, processes: int
) -> None:
    """In no order of time or function, with answers that fail and connections that end."""
    rows = [
        {
            "function": "abc"[number % 3],
            "scheduled": (number * 7_919 % 60) * 2 * MS,
            "execution": 1_500_000 + number,
        }
        for number in range(60)
    ]
    table = write_invocations(tmp_path / "t.parquet", rows)

    def answer(request: Request) -> bytes | None:
        number = json.loads(request.body)["number"]
        return [OK, ERROR, None, OK][number % 4]

    with Server(answer) as server:
        field = {"column": "execution", "unit": "ms"}
        sent = package.load(workload(server.url, table, field), processes=processes)
    assert {"ok", "function_error"} < set(sent["outcome"].to_pylist())
    # By stream (functions in the order of their names) and number within it, by time.
    expected: dict[tuple[int, int], str] = {}
    for stream, name in enumerate("abc"):
        selected = sorted(
            (row for row in rows if row["function"] == name), key=lambda row: row["scheduled"]
        )
        for number, row in enumerate(selected):
            expected[stream, number] = f"{row['execution'] / MS:.6f}".rstrip("0")
    received = {}
    for request in server.requests:
        _, stream, number = request.headers["x-uncia-invocation"].rsplit("-", 2)
        key = (int(stream), int(number))
        received[key] = request.headers["x-value"]
        body = json.loads(request.body, parse_float=str, parse_int=str)
        assert body == {"value": received[key], "number": number}
        assert request.line.split()[1] == "/" + received[key]
    assert received == expected
    assert sent.num_rows == len(rows)


def test_texts_go_as_they_are_and_nulls_have_the_default(tmp_path: Path) -> None:
    texts = ["plain", None, "a b/c", "ü", "x"]
    rows = [
        {"function": "f", "scheduled": number * MS, "request_id": text}
        for number, text in enumerate(texts)
    ]
    table = write_invocations(tmp_path / "t.parquet", rows)
    with Server() as server:
        file = workload(server.url, table, {"column": "request_id", "default": "none"})
        file["functions"]["f"] |= {"headers": {}, "body": {"template": "{{v}}"}}
        package.load(file)
        assert sorted(request.body.decode() for request in server.requests) == sorted(
            text or "none" for text in texts
        )
        del file["functions"]["f"]["fields"]["v"]["default"]
        with pytest.raises(UnciaError, match=r"1 of 5 rows of 'f' have no value there") as caught:
            package.load(file)
    assert caught.value.hint == "Give the field a default, or take another column."


def test_lists_are_json(tmp_path: Path) -> None:
    def phases(number: int) -> list[dict[str, int]]:
        phase = {"duration": number, "threads": 2, "memory": 2**53 + number}
        return [phase] * (number % 4)

    rows = [
        {"function": "f", "scheduled": number * MS, "phases": phases(number)} for number in range(9)
    ]
    table = write_invocations(tmp_path / "t.parquet", rows)
    with Server() as server:
        file = workload(server.url, table, {"column": "phases"})
        file["functions"]["f"] |= {"headers": {}, "url": server.url}
        package.load(file)
    received = [json.loads(request.body) for request in server.requests]
    assert len(received) == len(rows)
    assert all(row["value"] == phases(row["number"]) for row in received)


@pytest.mark.parametrize(
    ("column", "message"),
    [
        ({"column": "phases", "default": 1}, "has lists, for which there is no default"),
        ({"column": "phases", "unit": "ms"}, "is not measured in ms"),
        ({"column": "exection"}, "no column 'exection', did you mean execution?"),
        ({"column": "execution", "unit": "MB"}, "is not measured in MB (allowed: ns, us, ms, s)"),
        ({"column": "function", "unit": "ms"}, "is not measured in ms"),
    ],
)
def test_a_column_that_does_not_fit_is_refused(
    tmp_path: Path, column: dict[str, Any], message: str
) -> None:
    table = write_invocations(tmp_path / "t.parquet", [{"function": "f", "scheduled": 0}])
    with pytest.raises(UnciaError) as caught:
        package.load(workload("http://127.0.0.1:1/", table, column))
    assert "functions.f.fields.v.column: " in str(caught.value)
    assert message in str(caught.value)


def test_requests_without_rows_have_no_columns(tmp_path: Path) -> None:
    table = write_invocations(
        tmp_path / "t.parquet", [{"function": "f", "scheduled": 0, "execution": 1}]
    )
    file = workload("http://127.0.0.1:1/", table, {"column": "execution"})
    file["streams"] = [{"function": "f", "arrivals": {"kind": "burst", "sizes": [1]}}]
    with pytest.raises(UnciaError, match=r"functions\.f\.fields\.v\.kind: a column is of the rows"):
        package.load(file)
    minutes = pa.table({"function": ["f"], "minute": [0], "count": [3]})
    arrivals = record.write(minutes, tmp_path / "a.parquet", "arrivals")
    file = workload("http://127.0.0.1:1/", arrivals, {"column": "execution"})
    with pytest.raises(UnciaError, match=r"counts arrivals per minute: its requests have no rows"):
        package.load(file)


@given(st.integers(-(1 << 63), (1 << 63) - 1), st.sampled_from([1, 10**3, 10**6, 10**9, 2**20]))
def test_values_are_written_exactly(value: int, unit: int) -> None:
    from fractions import Fraction

    text = decimal_text(value, unit)
    assert Fraction(text) * unit == value
    assert "e" not in text.lower()
    assert not text.endswith(".")


@given(st.lists(st.text(max_size=8) | st.none(), min_size=1))
def test_texts_within_json_stay_what_they_are(texts: list[str | None]) -> None:
    field = ColumnField(kind="column", column="request_id", default='"')
    values = engine(field, pa.array(texts, pa.utf8()), "f", quoted=True)["values"]
    assert [json.loads(f'"{value}"') for value in values] == [
        '"' if text is None else text for text in texts
    ]


@given(
    st.dictionaries(st.text(min_size=1, max_size=6), st.integers(1, 9), min_size=1),
    st.lists(st.sampled_from(["a", "b", "c"]), min_size=1, max_size=5),
)
def test_rules_give_each_recorded_function_one_of_the_file_s(
    recorded: dict[str, int], functions: list[str]
) -> None:
    parts = [
        Replayed(name, Times(kind="times", times=[f"{k}ns" for k in range(count)]))  # type: ignore[list-item]
        for name, count in sorted(recorded.items())
    ]
    for rule in ("popularity", "hash"):
        chosen = ByRule(rule=rule, functions=functions)  # type: ignore[arg-type]
        pairs = assign(chosen, parts, ["a", "b", "c"], Path("t"))
        assert [part for _, part in pairs] == parts
        again = assign(chosen, parts[::2], ["a", "b", "c"], Path("t"))
        names = {part.function: alias for alias, part in pairs}
        if rule == "hash":
            # What others there are does not matter.
            assert all(names[part.function] == alias for alias, part in again)
            continue
        # More popular ones come first, and each of n functions gets every nth.
        ranked = sorted(recorded, key=lambda name: (-recorded[name], name))
        expected = {name: functions[rank % len(functions)] for rank, name in enumerate(ranked)}
        assert names == expected
