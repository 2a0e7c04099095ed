"""Tariffs: what platforms charge, as data, and the one expression that bills a table.

>>> from uncia.tariffs import bill
>>> for line in bill("results/demo", ["aws-lambda-x86", "spfu"]):
...     print(line.tariff, line.cost_usd, line.inflation_vcpu)
"""

from uncia.tariffs.bill import Line, bill, bill_table, summary, summary_entry
from uncia.tariffs.catalogue import billable, find, get, ids, read, yaml_text
from uncia.tariffs.model import Tariff

__all__ = [
    "Line",
    "Tariff",
    "bill",
    "bill_table",
    "billable",
    "find",
    "get",
    "ids",
    "read",
    "summary",
    "summary_entry",
    "yaml_text",
]
