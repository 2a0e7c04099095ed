"""Tariffs: what platforms charge, as data, and the one expression that bills a table.

>>> from uncia.tariffs import bill
>>> for line in bill("results/demo", ["aws-lambda-x86", "spfu"]):
...     print(line.tariff, line.cost_usd, line.inflation_vcpu)

The way of a table through a bill, a module a step:

* `facts`: what the footers of its files say of whole columns;
* `allocation`: the fit, which may replace allocations, and `compare`: the rows that it is over;
* `rows`: which rows are billable, and which values believable; `state`: a number for each row;
* `cells`: rows that all tariffs treat alike, with their sums; `charges`: which sums each asks for,
  of the `billable_time` and by its `rules`;
* `fit`: the size of each cell, of those that the tariff sells (`sizes`);
* `equation`: size x time, and why a cell cannot be priced; `bill`: money, in lines.

`request` is the same for one request in plain integers: `columns` renders each step to either.
"""

from typing import TYPE_CHECKING, Any

from uncia.tariffs.bill import bill, bill_table, bill_with_total, summary, summary_entry
from uncia.tariffs.catalogue import billable, find, get, ids, read, yaml_text
from uncia.tariffs.line import Line
from uncia.tariffs.model import Tariff

if TYPE_CHECKING:
    from uncia.tariffs.allocation import used_peak
    from uncia.tariffs.compare import FIT_RULES, FitRule, comparable, left_out

__all__ = [
    "FIT_RULES",
    "FitRule",
    "Line",
    "Tariff",
    "bill",
    "bill_table",
    "bill_with_total",
    "billable",
    "comparable",
    "find",
    "get",
    "ids",
    "left_out",
    "read",
    "summary",
    "summary_entry",
    "used_peak",
    "yaml_text",
]


def __getattr__(name: str) -> Any:
    # What needs Ibis is imported when it is asked for: Ibis takes a second to load.
    if name in ("FIT_RULES", "FitRule", "comparable", "left_out"):
        from uncia.tariffs import compare

        return getattr(compare, name)
    if name == "used_peak":
        from uncia.tariffs.allocation import used_peak

        return used_peak
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
