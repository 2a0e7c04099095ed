"""Gates: conditions on a comparison, by which `uncia gate` and `uncia compare` judge it.

    [experiment.]metric[:tariff] > [+]number unit        a rise, or a value, that is too high
    [experiment.]metric[:tariff] < [-]number unit        a drop, or a value, that is too low

* ``p99>10%``: p99 rises by more than 10 % over the baseline. ``p50<20%``: it drops by more.
* ``p99>50ms``: p99 of the candidate is above 50 ms, whatever the baseline.
* ``p99>+5ms``: p99 rises by more than 5 ms.
* ``failed>1%``, ``cold>5%``: the share rises by more than so many percentage points.
* ``failed>0``: more than 0 requests of the candidate failed.
* ``cost>5%``, ``cost:aws-lambda-x86>5%``: the cost of the whole run, under any or one tariff.
* ``warm.p99>10%``, ``pyaes-*.cost>5%``: one experiment, or those that match.
"""

import re
from dataclasses import dataclass
from typing import Final, Literal

from uncia.errors import UnciaError
from uncia.stats.comparison import LATENCIES, METRICS, RATIOS, SHARES

Measure = Literal["change", "difference", "value"]

TIME_IN_MS: Final = {"ns": 1e-6, "us": 1e-3, "µs": 1e-3, "ms": 1.0, "s": 1e3}
"""Units of times, in ms."""

_UNITS: Final = {
    "cost": ("", "usd", "$"),
    **dict.fromkeys(SHARES, ("",)),
    **dict.fromkeys(RATIOS, ("", "x")),
}

_GRAMMAR: Final = re.compile(
    r"(?:(?P<experiment>[^<>:\s]+)\.)?(?P<metric>[a-z]+[0-9]*)(?::(?P<tariff>[^<>\s]+))?"
    r"\s*(?P<side>[<>])\s*(?P<sign>[+-]?)(?P<number>[0-9]+(?:\.[0-9]+)?)\s*(?P<unit>%|[a-zµ$]*)"
)
_HINT: Final = (
    "Write [EXPERIMENT.]METRIC[:TARIFF]>NUMBER UNIT, for example p99>10%, warm.p50>5ms,"
    " cost:aws-lambda-x86>5% or failed>0."
)


@dataclass(frozen=True)
class Gate:
    """A parsed condition.

    Attributes:
        text: as the user wrote it.
        experiment: a name or a pattern with ``*`` and ``?``; None for all.
        metric: one of `uncia.stats.comparison.METRICS`.
        tariff: for costs, an id or pattern; None for all.
        rise: whether a value that is too high violates it; else one that is too low.
        bound: from 0; percent, percentage points, ms, a ratio, USD per million, or rows.
        measure: compared with the bound: the ``change`` in percent (or percentage points), the
            ``difference`` in the metric's unit, or the candidate's ``value``.
    """

    text: str
    experiment: str | None
    metric: str
    tariff: str | None
    rise: bool
    bound: float
    measure: Measure


def parse(text: str) -> Gate:
    """Parse a gate.

    Raises:
        UnciaError: the text does not follow the grammar; the message says where.
    """
    match = _GRAMMAR.fullmatch(text.strip())
    if match is None:
        raise UnciaError(f"{text!r} is not a gate", hint=_HINT)
    metric, unit = match["metric"], match["unit"]
    if metric not in METRICS:
        raise UnciaError(
            f"{text!r}: there is no metric {metric!r}",
            hint=f"The metrics are {', '.join(METRICS)}.",
        )
    if match["tariff"] is not None and metric != "cost":
        raise UnciaError(f"{text!r}: only cost has a tariff, not {metric}", hint=_HINT)
    rise = match["side"] == ">"
    if match["sign"] and match["sign"] != ("+" if rise else "-"):
        raise UnciaError(
            f"{text!r}: the sign and the side disagree; a rise is >+, a drop is <-",
            hint=_HINT,
        )
    measure: Measure = "value"
    bound = float(match["number"])
    if unit == "%":
        measure = "change"
    elif metric in LATENCIES or metric == "lag":
        if unit not in TIME_IN_MS:
            raise UnciaError(
                f"{text!r}: {metric} is a time, so the bound needs a unit",
                hint=f"Write %, {', '.join(TIME_IN_MS)}.",
            )
        bound *= TIME_IN_MS[unit]
    elif unit not in _UNITS[metric]:
        raise UnciaError(f"{text!r}: {unit!r} is not a unit of {metric}", hint=_HINT)
    if metric in SHARES and unit == "" and match["sign"]:
        raise UnciaError(
            f"{text!r}: a rise of {metric} is written in %, as runs may differ in length",
            hint=_HINT,
        )
    if match["sign"] and unit != "%":
        measure = "difference"
    return Gate(text.strip(), match["experiment"], metric, match["tariff"], rise, bound, measure)


def unit_of(metric: str) -> str:
    """The unit of a metric's values, with a leading blank."""
    if metric in LATENCIES or metric == "lag":
        return " ms"
    if metric in SHARES:
        return " %"
    return " USD per million" if metric == "cost" else ""
