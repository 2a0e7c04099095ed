"""JSON of any shape and size, a record at a time, against the standard library's parser."""

from __future__ import annotations

import io
import json
import tracemalloc
from decimal import Decimal
from pathlib import Path
from typing import IO, Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from uncia.errors import UnciaError
from uncia.traces import cells, json_lines, log_values
from uncia.traces.json_lines import Broken, Record, Text

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**20), 10**20)
    | st.decimals(-1000, 1000, places=3, allow_nan=False).map(float)
    | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=6,
)
RECORDS = st.lists(st.dictionaries(st.text('abe"\\{}[]\n', max_size=3), VALUES), max_size=5)


def read(text: str | bytes, chunk: int = 1 << 20) -> list[Record | Broken]:
    data = text.encode() if isinstance(text, str) else text
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_lines, "CHUNK_BYTES", chunk)
        file = Text(Path("f.json"), io.BytesIO(data))
        return list(json_lines.records(file, ("events",)))


def values(text: str, chunk: int = 1 << 20) -> list[Any]:
    return [item.value if isinstance(item, Record) else item for item in read(text, chunk)]


@settings(deadline=None, max_examples=40)
@given(records=RECORDS, form=st.integers(0, 5), chunk=st.sampled_from([1, 2, 5, 64, 1 << 20]))
def test_every_shape_gives_the_same_records(
    records: list[dict[str, Any]], form: int, chunk: int
) -> None:
    records = [record for record in records if "events" not in record]
    head, tail = json.dumps({"a": [1], "logGroup": "g"})[:-1], '], "nextToken": "n"}'
    text = [
        json.dumps(records),
        json.dumps(records, indent=2, ensure_ascii=False),
        "\r\n".join(map(json.dumps, records)),
        "".join(map(json.dumps, records)),
        f'{head}, "events": [{", ".join(map(json.dumps, records))}{tail}',
        "\ufeff" + " ".join(json.dumps({"events": [record]}) for record in records),
    ][form]
    exact = json.loads(json.dumps(records), parse_float=Decimal)
    result = read(text, chunk)
    assert [item.value for item in result if isinstance(item, Record)] == exact
    assert [item.index for item in result] == list(range(1, len(records) + 1))
    if form == 4:
        assert all(
            item.around == {"a": [1], "logGroup": "g"} for item in cast(list[Record], result)
        )


def test_numbers_stay_decimal_text() -> None:
    assert values("[0.1, 155.50, 1e2, 12345678901234567890, NaN]") == [
        Decimal("0.1"),
        Decimal("155.50"),
        Decimal("1e2"),
        12345678901234567890,
        None,
    ]
    assert str(values("[155.50]")[0]) == "155.50"


@pytest.mark.parametrize("chunk", [1, 3, 1 << 20])
@pytest.mark.parametrize("number", ["1e99999999999999999999", "-2.5E-99999999999999999999"])
def test_a_number_beyond_what_decimals_hold_is_left_its_text(number: str, chunk: int) -> None:
    assert values(f'[1, {number}, {{"a": {number}}}, 2]', chunk) == [1, number, {"a": number}, 2]


@pytest.mark.parametrize("chunk", [1, 6, 1 << 20])
def test_a_line_that_is_no_json_is_one_broken_record(chunk: int) -> None:
    text = '{"a": 1}\n{"a": 2,\n{"a": "q\n{"a" 3}\nplain text\n\n{"a": 4}\n{"a": [1, }\n{"a": 5}'
    result = read(text, chunk)
    good = [(item.value["a"], item.line) for item in result if isinstance(item, Record)]
    assert good == [(1, 1), (4, 7), (5, 9)]
    assert [item.line for item in result if isinstance(item, Broken)] == [2, 3, 4, 5, 8]
    assert [item.index for item in result] == list(range(1, 9))


@pytest.mark.parametrize("chunk", [1, 1 << 20])
@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('[{"a": 1}, {"b"', "cut off: its JSON ends within record 2, in line 1"),
        ('[{"a": 1},\n', "cut off: its JSON ends within record 2, in line 2"),
        ('[{"a": 1}', "cut off: its JSON ends within record 2"),
        ('{"events": [{"a": 1}, {"a": "x', "cut off: its JSON ends within record 2"),
        ('{"a": 1}\n{"a": tr', "cut off: its JSON ends within record 2, in line 2"),
        ('[{"a": 1} {"b": 1}, 1, 2, 3]', "line 1, record 2 is no JSON: a comma"),
        ('[{"a": 1},\n {"b" 1}, 2, 3, 4, 5, 6]', "line 2, record 2 is no JSON"),
        ('{"events": [{"a": 1}, nothing, at, all]}', "record 2 is no JSON"),
        ('{\n  "a": 1,\n  x\n}\n                 ', "line 3, record 1 is no JSON: a key"),
    ],
)
def test_malformed_json_is_an_error_that_says_where(text: str, message: str, chunk: int) -> None:
    with pytest.raises(UnciaError) as error:
        read(text, chunk)
    assert message in error.value.message


def test_deep_nesting_is_no_crash() -> None:
    with pytest.raises(UnciaError, match="record 1"):
        read("[" + "[" * 100_000)
    (result,) = read('{"a": ' * 100_000 + "\n")
    assert isinstance(result, Broken)


class Endless(io.RawIOBase):
    """A file of one line, without end: the head, then records, of which it counts the bytes."""

    def __init__(self, head: bytes, body: bytes, size: int) -> None:
        self.left = size
        self._head, self._body = head, body

    def read(self, size: int = -1) -> bytes:
        if self._head:
            head, self._head = self._head, b""
            return head
        if self.left <= 0:
            return b""
        self.left -= len(self._body)
        return self._body


@pytest.mark.parametrize(
    ("head", "body"),
    [
        (b'[{"a": 0}', b', {"timestamp": 1747081446154, "message": "END RequestId: 1"}' * 100),
        (b'{"events": [0', b', {"timestamp": 1747081446154, "message": "END"}' * 100),
        (b"", b'{"timestamp": 1747081446154, "message": "END"}' * 100),
        (b"", b'{"timestamp": 1747081446154, "message": "END"}\n' * 100),
    ],
)
def test_a_file_of_one_line_fills_no_memory(
    head: bytes, body: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    size = 1 << 20
    file = Text(Path("f"), cast(IO[bytes], Endless(head, body, size)))
    monkeypatch.setattr(json_lines, "CHUNK_BYTES", 1 << 14)
    tracemalloc.start()
    count = 0
    result = json_lines.records(file, ("events",))
    with pytest.raises(UnciaError) if head else _nothing():  # it is cut off at the end
        for _ in result:
            count += 1
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert count >= size // 64
    assert peak < 1 << 19


def test_a_record_without_end_is_an_error_and_fills_no_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(json_lines, "MAX_RECORD_CHARS", 1 << 20)
    body = b"x" * (1 << 16)
    for head in (b'[{"a": "', b'{"a": "', b'{"a": 1, "b": "'):
        endless = Endless(head, body, 1 << 40)
        with pytest.raises(UnciaError, match="1 Mi characters"):
            list(json_lines.records(Text(Path("f"), cast(IO[bytes], endless))))
        assert endless.left > (1 << 40) - (8 << 20)
    endless = Endless(b"", body, 1 << 40)
    with pytest.raises(UnciaError, match="line 1 is longer than 1 Mi characters"):
        Text(Path("f"), cast(IO[bytes], endless)).readline()
    assert endless.left > (1 << 40) - (8 << 20)


def _nothing() -> Any:
    from contextlib import nullcontext

    return nullcontext()


@settings(deadline=None, max_examples=60)
@given(
    text=st.from_regex(r"-?[0-9]{1,12}(\.[0-9]{0,14})?( ms)?", fullmatch=True)
    | st.text("0123456789.-e msN", max_size=8)
    | st.decimals(allow_nan=False, allow_infinity=False),
    factor=st.sampled_from([1, 10**6, 10**9, 1 << 20]),
)
def test_quantities_of_logs_are_exact(text: str | Decimal, factor: int) -> None:
    result = log_values.quantity(text, factor, "ms")
    plain = str(text).strip().removesuffix("ms").rstrip()
    number = cells.scaled(plain, factor)
    assert result == (number if number is not None and number >= 0 else None)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("1970-01-02T00:00:00+23:59", 60),
        ("1969-12-31T00:00:00-2359", 24 * 3600 - 60 - 24 * 3600),
        ("1970-01-01T00:00:00+24:00", None),
        ("1970-01-01T00:00:00-99:00", None),
        ("1970-01-01T00:00:00+00:60", None),
        ("0001-01-01T00:00:00+23:00", None),  # before the first year, by its zone
        ("9999-12-31T23:59:59-23:00", None),
        ("0001-01-01T00:00:00Z", None),
    ],
)
def test_a_zone_is_less_than_a_day_and_a_time_within_bounds(text: str, seconds: int | None) -> None:
    assert log_values.unix_ns(text) == (None if seconds is None else seconds * 10**9)
