"""Why experiments have no latency or generator lag, in words.

Rows of a trace have no times of a client: nobody is known to have sent them, and they did not fail
for that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

Summary = Mapping[str, Any]
"""The summary of an experiment (`uncia.stats.summary`)."""

_NO_CLIENT: Final = "its rows have no times of a client, as those of a trace"


def why_no_latency(summary: Summary) -> str:
    """Why an experiment has no latency, as a clause."""
    if _is_trace(summary):
        return _NO_CLIENT
    if not summary["outcomes"].get("ok"):
        return "no request succeeded"
    # The client has no answer of what was accepted and not waited for.
    if not summary["answered"]:
        return "no request was answered"
    return "no request that succeeded has plausible times of when it was due and answered"


def why_no_lag(summary: Summary) -> str:
    """Why an experiment has no generator lag, as a clause."""
    if _is_trace(summary):
        return _NO_CLIENT
    if summary["sent"]:
        return "no request that was sent has the time when it was due"
    return "no request was sent"


def sentence(why: Callable[[Summary], str], summaries: Iterable[Summary]) -> str:
    """Why several experiments all lack it, as one sentence: each reason once."""
    clauses = dict.fromkeys(why(summary) for summary in summaries if summary["invocations"])
    text = "; ".join(clauses) or "no request was made"
    return f"{text[0].upper()}{text[1:]}."


def _is_trace(summary: Summary) -> bool:
    requests = summary["invocations"] - summary["hop_rows"]
    return bool(requests) and summary["untimed_rows"] == requests
