"""The cost of instances that were kept because of hints, which no row of an invocation holds.

``hint_idle`` of the table ``instances`` is how long each instance idled because of hints. Times its
allocated memory, it is charged at the tariff's idle price, whether the announced requests came or
not. It is null while an instance lives and where its worker crashed: such instances are counted and
not charged.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from uncia.errors import UnciaError
from uncia.tariffs.line import Line
from uncia.tariffs.money import money

if TYPE_CHECKING:
    from uncia.backends import Backend, Source
    from uncia.tariffs.model import Tariff

GROUPS: Final = ("run", "platform", "function")
"""What instances can be billed by: the columns that both tables have."""

_COLUMN: Final = "hint_idle"


class Kept(NamedTuple):
    """What the instances of a group idled on the account of hints.

    Attributes:
        byte_ns: memory over time, bytes x ns.
        unknown: instances of platforms that read hints of which it is not known.
    """

    byte_ns: int = 0
    unknown: int = 0


def quantities(
    source: Source, group_by: Sequence[str], backend: Backend
) -> Mapping[tuple[str | None, ...], Kept]:
    """What idled on the account of hints, by the values of the groups.

    Args:
        source: the instances table, or a folder that holds it.
        group_by: of `GROUPS`.
        backend: where it is computed.

    Raises:
        UnciaError: a group is no column of the table, or a value is absurd or no whole number.
    """
    import ibis

    from uncia.tariffs.exact import integer
    from uncia.tariffs.rows import MAX_MEMORY, integers
    from uncia.units import MAX_TIME

    table = backend.table(source, "instances")
    if _COLUMN not in table.columns:  # rows of a time before there were hints
        return {}
    if unknown := [name for name in group_by if name not in GROUPS]:
        raise UnciaError(
            f"what was idle on the account of hints cannot be billed by {' and '.join(unknown)}",
            f"Bill by {', '.join(GROUPS)}, or leave the instances out.",
        )
    time = integers(table, _COLUMN, "instances")
    if time is None:  # of Parquet's null type: nobody knows
        return {}
    memory = integers(table, "allocated_memory", "instances")
    if memory is None:
        memory = ibis.null("int64")
    is_some = time.notnull() & (time != integer(0)).fill_null(False)
    is_sound = time.between(integer(0), integer(MAX_TIME)) & memory.between(
        integer(0), integer(MAX_MEMORY)
    )
    is_sound = is_sound.fill_null(False)
    amount = time.cast("decimal(38, 0)") * memory.cast("decimal(19, 0)")
    # Whether hints are read is of a run's platform.
    places = [name for name in ("run", "platform") if name in table.columns]
    keys = {f"g_{name}": table[name].cast("string") for name in group_by}
    keys |= {f"p_{name}": table[name].cast("string") for name in places}
    cells: list[dict[str, Any]] = backend.collect(
        table.select(
            amount=(is_some & is_sound).ifelse(amount, integer(0).cast("decimal(38, 0)")),
            wrong=(is_some & ~is_sound).cast("int64"),
            known=time.notnull().cast("int64"),
            unknown=time.isnull().cast("int64"),
            **keys,
        ).aggregate(
            **{name: _sum(name) for name in ("amount", "wrong", "known", "unknown")}, by=list(keys)
        )
    ).to_pylist()
    if wrong := sum(cell["wrong"] or 0 for cell in cells):
        raise UnciaError(
            f"{wrong} instances have an absurd {_COLUMN}, or no allocated_memory, so that it cannot"
            " be billed what they idled on the account of hints",
            "Is the table what a platform wrote?",
        )
    reading = {_of(cell, "p_", places) for cell in cells if cell["known"]}
    sums: defaultdict[tuple[str | None, ...], Kept] = defaultdict(Kept)
    for cell in cells:
        group, is_read = _of(cell, "g_", group_by), _of(cell, "p_", places) in reading
        sums[group] = Kept(
            sums[group].byte_ns + int(cell["amount"] or 0),
            sums[group].unknown + (int(cell["unknown"]) if is_read else 0),
        )
    return sums


def _sum(name: str) -> Any:
    return lambda table: table[name].sum()


def _of(cell: Mapping[str, Any], prefix: str, names: Sequence[str]) -> tuple[str | None, ...]:
    return tuple(cell[f"{prefix}{name}"] for name in names)


def with_idle(
    lines: Sequence[Line],
    tariffs: Sequence[Tariff],
    kept: Mapping[tuple[str | None, ...], Kept],
    group_by: Sequence[str],
) -> list[Line]:
    """Add what was kept on the account of hints, where the tariff has an idle price.

    Args:
        lines: of a bill.
        tariffs: those of the lines.
        kept: as `quantities` returns them.
        group_by: the grouping columns.
    """
    prices = {tariff.id: tariff.idle.unit_price for tariff in tariffs if tariff.idle is not None}
    result = []
    for line in lines:
        if line.tariff not in prices:
            if line.total_rows or not line.group:  # else it is of what only others charge for
                result.append(line)
            continue
        amount, unknown = kept.get(tuple(line.group[name] for name in group_by), Kept())
        part = prices[line.tariff] * amount
        cost = None
        if line.exact_cost is not None or amount:
            cost = (line.exact_cost or Fraction(0)) + part
        result.append(
            replace(
                line,
                hint_byte_ns=amount,
                hint_unknown=unknown,
                hint_usd=money(part),
                cost_usd=None if cost is None else money(cost),
                exact_cost=cost,
            )
        )
    return result
