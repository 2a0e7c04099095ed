"""The rows that several tariffs can all price, so that their bills are over the same rows."""

from __future__ import annotations

from collections.abc import Sequence

import ibis
from ibis.expr import types as ir

from uncia.tariffs.columns import Columns
from uncia.tariffs.equation import fit_cells, status
from uncia.tariffs.model import Tariff
from uncia.tariffs.rows import PRICED, billing_columns


def common_rows(table: ir.Table, tariffs: Sequence[Tariff]) -> ir.Table:
    """Select the rows that every tariff can price, by the rules by which a bill counts them.

    Args:
        table: invocations.
        tariffs: each billed by request.

    Raises:
        UnciaError: a needed column is missing or not of whole numbers.
    """
    rows = table.mutate(**billing_columns(table))
    gaps = {
        f"no_{name.removeprefix('v_')}": rows[name].isnull()
        for name in rows.columns
        if name.startswith("v_") and name not in table.columns
    }
    columns = Columns(rows.mutate(no_preemptible=rows["preemptible"].isnull(), **gaps))
    codes = [status(columns, tariff, fit_cells(columns, tariff))[0] for tariff in tariffs]
    full = columns.table()
    kept = full.filter(ibis.and_(*(full[code.name] == PRICED for code in codes)))
    return kept.select(*table.columns)
