"""The published form of profiles: a list of invocations of the probe, as JSON.

``data.data`` is the list of ``[time, gap]``; or ``data.body`` is text, and that is JSON with
``data``. Beside them ``t0``, when the probe began in ns, ``iteration_counter``, the loops that it
made, and outside, ``duration``: seconds from request to answer.
"""

from __future__ import annotations

import gzip
import json
import math
import re
import sys
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from uncia.bandwidth.profiles.raw import RawRun
from uncia.errors import UnciaError

STDIN: Final = Path("-")
"""Stands for standard input."""

_GZIP: Final = b"\x1f\x8b"
_FORM: Final = (
    'A profile is a list of invocations, each with {"data": {"data": [[time, gap], ...]}} or '
    '{"data": {"body": "<that as text>"}}, or the folder of a run.'
)
_PAIR: Final = 2
_SUCCESS: Final = range(200, 300)
_MAX_TEXT: Final = 200  # of an error that is quoted
_WHOLE_NS: Final = 2**62  # times beyond this fit no int64
_INT64_DIGITS: Final = 20  # with the sign
_BROKEN_OFF: Final = re.compile(r"[-+.\w]*\s*")  # what is left of a number or a word at the end


@dataclass(frozen=True)
class Document:
    """The content of a file: runs that succeeded, and reasons why others did not."""

    runs: list[RawRun]
    failed: list[str]


def load(path: Path) -> Document:
    """Read a file.

    Raises:
        UnciaError: it is missing, empty, cut off, no JSON, or of another form; with the run and the
            event that are wrong.
    """
    content = _parse(path, _text(path))
    invocations = _invocations(path, content)
    runs: list[RawRun] = []
    failed: list[str] = []
    for index, invocation in enumerate(invocations):
        if not isinstance(invocation, dict):
            raise UnciaError(
                f"{path}: run {index} is {_kind(invocation)}, not an invocation", hint=_FORM
            )
        if (failure := _failure(invocation)) is not None:
            failed.append(f"run {index}: {failure}")
            continue
        payload = _payload(path, index, invocation)
        if (failure := _failure(payload)) is not None:
            failed.append(f"run {index}: {failure}")
            continue
        runs.append(_run(path, index, invocation, payload))
    return Document(runs, failed)


def _text(path: Path) -> str:
    try:
        raw = sys.stdin.buffer.read() if path == STDIN else path.read_bytes()
        if not raw:
            raise UnciaError(f"{path} is empty", hint=_FORM)
        if raw.startswith(_GZIP):
            raw = gzip.decompress(raw)
        return raw.decode("utf-8-sig")
    except FileNotFoundError as error:
        raise UnciaError(f"{path} does not exist") from error
    except EOFError as error:
        raise UnciaError(
            f"{path} is cut off: its compressed data has no end", hint="Copy it once more."
        ) from error
    except (gzip.BadGzipFile, zlib.error) as error:
        raise UnciaError(f"{path} is damaged: {error}", hint="Copy it once more.") from error
    except UnicodeDecodeError as error:
        raise UnciaError(f"{path} is no text: {error.reason}", hint=_FORM) from error
    except OSError as error:
        raise UnciaError(f"{path} cannot be read: {error.strerror or error}") from error


def _parse(path: Path, text: str) -> Any:
    if not text.strip():
        raise UnciaError(f"{path} is empty", hint=_FORM)
    try:
        return json.loads(text, parse_int=_whole)
    except json.JSONDecodeError as error:
        cut = _BROKEN_OFF.fullmatch(text, error.pos)
        if cut or error.msg.startswith("Unterminated string"):
            raise UnciaError(
                f"{path} is cut off: its JSON ends in the middle, at line {error.lineno}, "
                f"column {error.colno}",
                hint="Copy it once more.",
            ) from error
        raise UnciaError(f"{path} is not JSON: {error}", hint=_FORM) from error
    except RecursionError as error:
        raise UnciaError(f"{path} is nested too deeply to be a profile", hint=_FORM) from error


def _invocations(path: Path, content: Any) -> list[Any]:
    """List the invocations; a single one, or its events alone, count as a list of one.

    A list of lists of events is a list of invocations without other keys.
    """
    if isinstance(content, dict):
        return [content]
    if not isinstance(content, list):
        raise UnciaError(f"{path} holds {_kind(content)}, not a list of invocations", hint=_FORM)
    if not content:
        raise UnciaError(f"{path} holds no invocation: its list is empty", hint=_FORM)
    if not isinstance(content[0], list):
        return content
    bare = [run for run in content if isinstance(run, list)]
    if len(bare) == len(content) and all(not run or isinstance(run[0], list) for run in bare):
        return [{"data": run} for run in bare]
    return [{"data": content}]


def _failure(payload: dict[str, Any]) -> str | None:
    """Return the reason why an invocation has no result; None if it has one."""
    error = payload.get("error") or payload.get("errorMessage")
    if error:
        text = error if isinstance(error, str) else json.dumps(error)
        return text[:_MAX_TEXT]
    for key in ("status_code", "statusCode"):
        status = payload.get(key)
        if isinstance(status, int) and status not in _SUCCESS:
            return f"HTTP {status}"
    inner = payload.get("data")
    return _failure(inner) if isinstance(inner, dict) and "data" not in inner else None


def _payload(path: Path, index: int, invocation: dict[str, Any]) -> dict[str, Any]:
    """Find the object whose ``data`` is the list of events."""
    payload: Any = invocation
    while not (isinstance(payload, dict) and isinstance(payload.get("data"), list)):
        location = f"{path}: run {index}"
        if isinstance(payload, dict) and "data" in payload:
            payload = payload["data"]
        elif isinstance(payload, dict) and "body" in payload:
            payload = payload["body"]
        elif isinstance(payload, str):
            payload = _parse_body(location, payload)
            if isinstance(payload, str):
                raise UnciaError(f"{location}: its body is text within text", hint=_FORM)
        elif isinstance(payload, dict):
            raise UnciaError(f"{location} has no `data`", hint=_FORM)
        else:
            raise UnciaError(
                f"{location}: its data is {_kind(payload)}, not a list of events", hint=_FORM
            )
    return payload


def _parse_body(location: str, text: str) -> Any:
    try:
        return json.loads(text, parse_int=_whole)
    except (json.JSONDecodeError, RecursionError) as error:
        raise UnciaError(
            f"{location}: its body is not JSON, or cut off: {error}",
            hint="Copy the file once more.",
        ) from error


def _run(path: Path, index: int, invocation: dict[str, Any], payload: dict[str, Any]) -> RawRun:
    location = f"{path}: run {index}"
    events = [
        _event(f"{location}, event {number}", event) for number, event in enumerate(payload["data"])
    ]
    iterations = payload.get("iteration_counter")
    return RawRun(
        index=index,
        events=events,
        t0=_optional(location, "t0", payload.get("t0")),
        duration_s=_optional(location, "duration", invocation.get("duration")),
        iterations=iterations if isinstance(iterations, int) and iterations > 0 else None,
    )


def _event(location: str, event: Any) -> tuple[float, float]:
    if not isinstance(event, list) or len(event) != _PAIR:
        raise UnciaError(f"{location} is {_kind(event)}, not [time, gap]", hint=_FORM)
    time, gap = (
        _number(location, name, value) for name, value in zip(("time", "gap"), event, strict=True)
    )
    if time < 0:
        raise UnciaError(f"{location}: its time is negative: {time:g}")
    if gap <= 0:
        raise UnciaError(f"{location}: its gap is {gap:g}, and a clock jumps forward only")
    return time, gap


def _optional(location: str, name: str, value: Any) -> float | None:
    if value is None:
        return None
    number = _number(location, name, value)
    if number < 0:
        raise UnciaError(f"{location}: {name} is negative: {number:g}")
    return number


def _number(location: str, name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise UnciaError(f"{location}: its {name} is {_kind(value)}, not a number")
    if not math.isfinite(value) or abs(value) > _WHOLE_NS:
        raise UnciaError(f"{location}: its {name} is {value}, which is no time")
    return value


def _whole(digits: str) -> int | float:
    """An integer of JSON; one that fits no int64 as a float, infinite where it fits no float."""
    return int(digits) if len(digits) <= _INT64_DIGITS else float(digits)


def _kind(value: Any) -> str:
    """Describe the type of a value."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true or false"
    if isinstance(value, list):
        return f"a list of {len(value)}"
    names = {str: "text", dict: "an object", int: "a number", float: "a number"}
    return names.get(type(value), type(value).__name__)
