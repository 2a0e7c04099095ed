"""Distinct errors: what is one, how often it came, and which of its invocations explains it."""

from __future__ import annotations

import uuid
from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from uncia.stats import errors


def table(rows: list[dict[str, Any]]) -> pa.Table:
    filled = [
        {"invocation": f"i-{number}", "function": "f", "experiment": "e", "error": None, **row}
        for number, row in enumerate(rows)
    ]
    names = ("invocation", "function", "experiment", "outcome", "error")
    return pa.table({name: pa.array([row[name] for row in filled], pa.utf8()) for name in names})


def failed(error: str | None, **more: Any) -> dict[str, Any]:
    return {"outcome": "function_error", "error": error, **more}


def test_errors_that_differ_in_identifiers_are_one() -> None:
    rows = [
        failed(f"HTTP 502: KeyError: no {uuid.uuid4()}"),
        failed(f"KeyError: no {uuid.uuid4()}", function="g"),
        failed("Unhandled: Runtime.ExitError: RequestId: 1-2-3 Error: exit status 1"),
        failed("ValueError: at 0x7f00ab12"),
        failed("ValueError: at 0x7f00ab13"),
        failed("ValueError: at 0x7f00ab13", outcome="timeout"),
        {"outcome": "ok"},
    ]
    result = errors.distinct(table(rows))
    assert [error["count"] for error in result] == [2, 2, 1, 1]
    assert {(e["type"], e["message"], e["count"], e["outcome"]) for e in result} == {
        ("ValueError", "at <address>", 2, "function_error"),
        ("KeyError", "no <id>", 2, "function_error"),
        ("ValueError", "at <address>", 1, "timeout"),
        ("Runtime.ExitError", "exit status 1", 1, "function_error"),
    }
    by_type = {(e["type"], e["outcome"]): e for e in result}
    assert by_type["KeyError", "function_error"]["functions"] == ["f", "g"]
    # A type that is none and a type called None are two.
    assert len(errors.distinct(table([failed("None: a"), failed("a")]))) == 2


def test_an_error_is_explained_by_its_first_explained_invocation() -> None:
    rows = [failed("ValueError: no"), failed("ValueError: no"), failed(None)]
    message = [
        {"invocation": "i-1", "trace": ["line 1"], "output": "here"},
        {"invocation": "i-9", "trace": ["of none"], "output": None},
    ]
    first, second = errors.distinct(table(rows), message)
    assert (first["trace"], first["output"]) == (["line 1"], "here")
    assert (second["type"], second["message"], second["trace"]) == (None, "", [])


@given(st.lists(st.tuples(st.sampled_from(["ok", "timeout", "throttled"]), st.text(max_size=9))))
def test_every_failed_row_is_counted_once(rows: list[tuple[str, str]]) -> None:
    result = errors.distinct(table([{"outcome": o, "error": text} for o, text in rows]))
    assert sum(error["count"] for error in result) == sum(o != "ok" for o, _ in rows)
    keys = [(error["outcome"], error["type"], error["message"]) for error in result]
    assert len(set(keys)) == len(keys)
