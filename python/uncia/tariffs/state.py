"""One small number a row that says all that tells it from an ordinary row.

Nearly every row of a table is ordinary: it ran, its values are there and believable, and it exceeds
no limit. The state of such a row is 0 after a few comparisons; only of the others is it worked out
why they are not. Rows are then grouped by one number instead of a dozen flags.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

import ibis
from ibis.expr import types as ir

from uncia.errors import UnciaError
from uncia.tariffs.exact import integer
from uncia.tariffs.facts import UNKNOWN, Facts

COMMON_CODES: Final = 8
"""The state modulo this is the code that all tariffs share (see `rows.COMMON_UNPRICED`)."""

_MOST_FLAGS: Final = 59  # of the 63 bits of an int64, three hold the code

Kind = Literal["gap", "above", "unknown_start", "preemptible", "no_preemptible"]


@dataclass(frozen=True)
class Flag:
    """Something that may hold of a row.

    Attributes:
        kind: ``gap``: the column is null. ``above``: it is known and above the bound.
            ``unknown_start``: a cold start without its initialization. ``preemptible``: it was;
            ``no_preemptible``: that is not known.
        column: which, for the first two, as the table names it, or ``cpu_time``.
        bound: of ``above``.
    """

    kind: Kind
    column: str = ""
    bound: int = 0

    @property
    def name(self) -> str:
        """The name of the cells' column that tells it."""
        match self.kind:
            case "gap":
                return f"no_{self.column}"
            case "above":
                return f"{self.column}_above_{self.bound}"
            case _:
                return self.kind

    def is_set(self, columns: Mapping[str, Any]) -> Any:
        """Whether it holds, of the believed columns; never null."""
        match self.kind:
            case "gap":
                return columns[f"v_{self.column}"].isnull()
            case "above":
                return (columns[f"v_{self.column}"] > integer(self.bound)).fill_null(False)
            case "unknown_start":
                return columns["unknown_start"]
            case "preemptible":
                return columns["preemptible"].fill_null(False)
            case "no_preemptible":
                return columns["preemptible"].isnull()


Reader = Callable[[Any], Any]
"""From the state to whether a flag holds."""


def state_of(
    table: ir.Table,
    values: Mapping[str, Any],
    columns: Mapping[str, Any],
    flags: Mapping[str, Flag],
    most: Mapping[str, int],
    facts: Facts,
) -> tuple[Any, dict[str, Reader]]:
    """The state of each row, int64, and how to read each flag from it.

    Args:
        table: the rows.
        values: the columns that hold whole numbers, int64, believed or not, of those in `most`.
        columns: the believed columns, as expressions over them.
        flags: by name.
        most: the columns that bills are made from, with the largest value that is believed.
        facts: what is known of the table's columns.

    Raises:
        UnciaError: there are more flags than a number has bits.
    """
    held = {*values, *({"start", "preemptible"} & set(table.columns))}
    present = {name for name in held if not facts.get(name, UNKNOWN).empty}
    code = columns["common"].cast("int64")
    readers: dict[str, Reader] = {}
    asked: list[Flag] = []
    for name, flag in flags.items():
        fixed = _constant(flag, present, facts)
        if fixed is not None:
            readers[name] = _always(fixed)
            continue
        bit = COMMON_CODES << len(asked)
        asked.append(flag)
        code = code + ibis.ifelse(flag.is_set(columns), integer(bit), integer(0))
        readers[name] = _bit(bit)
    if len(asked) > _MOST_FLAGS:
        raise UnciaError(
            f"these tariffs tell rows apart by {len(asked)} properties, and {_MOST_FLAGS} is the"
            " most that one bill can",
            "Bill fewer tariffs at a time.",
        )
    usual = list(_usual(table, values, columns, asked, most, facts, present))
    if not usual:
        return integer(0), readers
    return ibis.ifelse(ibis.and_(*usual), integer(0), code), readers


def _always(value: bool) -> Reader:
    return lambda _: ibis.literal(value)


def _bit(bit: int) -> Reader:
    return lambda state: state % integer(2 * bit) >= integer(bit)


def _constant(flag: Flag, present: set[str], facts: Facts) -> bool | None:
    """Whether a flag holds of every row (True), of none (False), or must be asked (None)."""
    sources = _sources(flag.column) & present
    known = [facts.get(name, UNKNOWN) for name in sources]
    match flag.kind:
        case "gap":
            if not sources:
                return True
            return False if any(fact.complete for fact in known) else None
        case "above":
            highs = [fact.high for fact in known if isinstance(fact.high, int)]
            return False if len(highs) == len(known) and sum(highs) <= flag.bound else None
        case "unknown_start":
            told = facts.get("initialization", UNKNOWN).complete
            return False if told or "start" not in present else None
        case "preemptible":
            return None if "preemptible" in present else False
        case "no_preemptible":
            return None if "preemptible" in present else True


def _sources(column: str) -> set[str]:
    return {"cpu_user", "cpu_system"} if column == "cpu_time" else {column}


def _usual(
    table: ir.Table,
    values: Mapping[str, Any],
    columns: Mapping[str, Any],
    flags: list[Flag],
    most: Mapping[str, int],
    facts: Facts,
    present: set[str],
) -> Iterator[Any]:
    """Conditions that together are true only of rows of which every flag and code is 0."""
    if "outcome" in table.columns and not facts.get("outcome", UNKNOWN).always("ok"):
        yield table["outcome"].cast("string") == "ok"
    needed = {flag.column for flag in flags if flag.kind == "gap"} | {"execution"}
    bounds = dict(most)
    for flag in flags:
        if flag.kind == "above" and flag.column in bounds:
            bounds[flag.column] = min(bounds[flag.column], flag.bound)
        elif flag.kind == "above":
            yield (columns["v_cpu_time"] <= integer(flag.bound)).fill_null(True)
    for name, bound in bounds.items():
        if name not in present:
            if name == "execution":
                yield ibis.literal(False)
            continue
        fact = facts.get(name, UNKNOWN)
        inside = not fact.within(0, bound)
        value = values[name]
        if inside:
            within = (value >= integer(0)) & (value <= integer(bound))
            yield within if name in needed or fact.complete else within.fill_null(True)
        elif name in needed and not fact.complete:
            yield value.notnull()
    if "cpu_time" in needed:
        yield ibis.or_(*(values[name].notnull() for name in sorted(_sources("cpu_time") & present)))
    for flag in flags:
        if flag.kind in ("unknown_start", "preemptible", "no_preemptible"):
            yield ~flag.is_set(columns)
