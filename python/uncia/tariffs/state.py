"""The state of a row: one integer that encodes how it differs from an ordinary row.

Nearly every row is ordinary: it ran, its values are present and plausible, and it exceeds no limit.
A few comparisons give such a row the state 0; only for other rows are the flags computed. Rows are
then grouped by one number instead of a dozen flags.
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

_MAX_FLAGS: Final = 59  # of the 63 bits of an int64, three hold the code

Kind = Literal["gap", "above", "unknown_start", "preemptible", "no_preemptible"]


@dataclass(frozen=True)
class Flag:
    """A property that a row may have.

    Attributes:
        kind: ``gap``: the column is null. ``above``: the column is above the bound.
            ``unknown_start``: a cold start without its initialization. ``preemptible``: the row
            was preemptible; ``no_preemptible``: that is unknown.
        column: of ``gap`` and ``above``: a column of the table, or ``cpu_time``.
        bound: of ``above``.
    """

    kind: Kind
    column: str = ""
    bound: int = 0

    @property
    def name(self) -> str:
        """The name of the flag's column in the cells."""
        match self.kind:
            case "gap":
                return f"no_{self.column}"
            case "above":
                return f"{self.column}_above_{self.bound}"
            case _:
                return self.kind

    def is_set(self, columns: Mapping[str, Any]) -> Any:
        """Whether a row has the property, over the `billing_columns`; never null."""
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
"""Decodes a flag from the state."""


def state_of(
    table: ir.Table,
    values: Mapping[str, Any],
    columns: Mapping[str, Any],
    flags: Mapping[str, Flag],
    maxima: Mapping[str, int],
    facts: Facts,
) -> tuple[Any, dict[str, Reader]]:
    """Encode each row's flags and common code as an int64, and return how to decode each flag.

    Args:
        table: the rows.
        values: the columns of `maxima` that hold whole numbers, int64, unchecked.
        columns: those of `rows.billing_columns`.
        flags: by name.
        maxima: the largest plausible value of each column that bills read.
        facts: what is known of the table's columns.

    Raises:
        UnciaError: there are more flags than bits.
    """
    columns_present = {*values, *({"start", "preemptible"} & set(table.columns))}
    nonempty = {name for name in columns_present if not facts.get(name, UNKNOWN).empty}
    code = columns["common"].cast("int64")
    readers: dict[str, Reader] = {}
    encoded: list[Flag] = []
    for name, flag in flags.items():
        value = _known_value(flag, nonempty, facts)
        if value is not None:
            readers[name] = _constant_reader(value)
            continue
        bit = COMMON_CODES << len(encoded)
        encoded.append(flag)
        code = code + ibis.ifelse(flag.is_set(columns), integer(bit), integer(0))
        readers[name] = _bit_reader(bit)
    if len(encoded) > _MAX_FLAGS:
        raise UnciaError(
            f"these tariffs tell rows apart by {len(encoded)} properties, and {_MAX_FLAGS} is the"
            " most that one bill can",
            "Bill fewer tariffs at a time.",
        )
    conditions = list(_unusual_conditions(table, values, columns, encoded, maxima, facts, nonempty))
    if not conditions:
        return integer(0), readers
    # Engines compute a branch for the rows that take it: the few unusual ones are selected, as
    # selecting the many ordinary ones takes three times as long.
    return ibis.ifelse(ibis.or_(*conditions), code, integer(0)), readers


def _constant_reader(value: bool) -> Reader:
    return lambda _: ibis.literal(value)


def _bit_reader(bit: int) -> Reader:
    return lambda state: state % integer(2 * bit) >= integer(bit)


def _known_value(flag: Flag, nonempty: set[str], facts: Facts) -> bool | None:
    """True if every row is known to have the flag, False if none has, else None."""
    sources = _sources(flag.column) & nonempty
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
            complete = facts.get("initialization", UNKNOWN).complete
            return False if complete or "start" not in nonempty else None
        case "preemptible":
            return None if "preemptible" in nonempty else False
        case "no_preemptible":
            return None if "preemptible" in nonempty else True


def _sources(column: str) -> set[str]:
    return {"cpu_user", "cpu_system"} if column == "cpu_time" else {column}


def _unusual_conditions(
    table: ir.Table,
    values: Mapping[str, Any],
    columns: Mapping[str, Any],
    flags: list[Flag],
    maxima: Mapping[str, int],
    facts: Facts,
    nonempty: set[str],
) -> Iterator[Any]:
    """Conditions of which at least one is true of each row that has a flag or a code above 0."""
    if "outcome" in table.columns and not facts.get("outcome", UNKNOWN).always("ok"):
        yield table["outcome"].cast("string") != "ok"
    needed = {flag.column for flag in flags if flag.kind == "gap"} | {"execution"}
    bounds = dict(maxima)
    for flag in flags:
        if flag.kind == "above" and flag.column in bounds:
            bounds[flag.column] = min(bounds[flag.column], flag.bound)
        elif flag.kind == "above":
            yield columns["v_cpu_time"] > integer(flag.bound)
    for name, bound in bounds.items():
        if name not in nonempty:
            if name == "execution":
                yield ibis.literal(True)
            continue
        fact = facts.get(name, UNKNOWN)
        value = values[name]
        if not fact.within(0, bound):
            yield value < integer(0)
            yield value > integer(bound)
        if name in needed and not fact.complete:
            yield value.isnull()
    if "cpu_time" in needed:
        yield ibis.and_(
            *(values[name].isnull() for name in sorted(_sources("cpu_time") & nonempty))
        )
    for flag in flags:
        if flag.kind in ("unknown_start", "preemptible", "no_preemptible"):
            yield flag.is_set(columns)
