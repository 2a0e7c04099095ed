"""Everything that advice is made from, computed once: facts, bills, sizes, quantiles, samples."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from typing import Final, Literal, get_args

from ibis.expr import types as ir

from uncia.backends import Backend, Source, connect
from uncia.costs.advice.bills import MOST_IN_BLOCKS, Prices, prices
from uncia.costs.advice.claims import Claim, claim, level_of, ranks_of
from uncia.costs.advice.order import order_statistics
from uncia.costs.advice.rows import (
    Configuration,
    Facts,
    billable_rows,
    facts,
    source_table,
)
from uncia.costs.advice.sample import Sample, draw
from uncia.costs.advice.sizes import MODELS, Size, allocation, fitted, is_arm, own_tariff, owner
from uncia.errors import UnciaError
from uncia.stats.quantiles import LEVEL
from uncia.tariffs import catalogue
from uncia.tariffs.allocation import used_peak
from uncia.tariffs.compare import FitRule, check
from uncia.tariffs.model import Tariff
from uncia.tariffs.sizes import Proportional
from uncia.units import parse_duration

Time = Literal["execution", "turnaround"]
"""Which time a bound is of: the handler's, or with the start of the instance that it waited for."""

_COLUMNS: Final = {"execution": "v_execution", "turnaround": "turnaround"}


@dataclass
class Study:
    """What is known of a table's functions under some tariffs.

    Attributes:
        backend: where the table is.
        local: a backend for tables in memory.
        table: of `source_table`.
        rows: of `billable_rows`.
        found: the configurations and their facts.
        tariffs: those to choose among.
        priced: those and the platforms' own, by id.
        prices: of every configuration under every tariff of `priced`.
        sizes: (tariff's id, configuration) -> the size that it is billed at.
        claims: of the time that the bound is of.
        turnaround: p95 of the turnaround, ns, where all of it is known.
        samples: of every configuration, if there are not too many.
        bound: of the p95, ns; None for none.
        of: what it is of.
        level: confidence asked for.
        fit: how allocations become sizes.
        present_tariff: id of the tariff in use, if it was named.
        named: whether the tariffs were named, or are all there are.
        notes: what was not done, and why.
        instances: sizes of instances that hold an allocation, as they are asked for.
    """

    backend: Backend
    local: Backend
    table: ir.Table
    rows: ir.Table
    found: dict[Configuration, Facts]
    tariffs: list[Tariff]
    priced: dict[str, Tariff]
    prices: Prices
    sizes: dict[tuple[str, Configuration], Size]
    claims: dict[Configuration, Claim]
    turnaround: dict[Configuration, int | None]
    samples: dict[Configuration, Sample]
    bound: int | None
    of: Time
    level: Fraction
    fit: FitRule
    present_tariff: str | None
    named: bool
    notes: list[str] = field(default_factory=list)
    instances: dict[tuple[str, Size], Size | None] = field(default_factory=dict)

    @cached_property
    def by_function(self) -> dict[str, list[Configuration]]:
        """The configurations of each function."""
        functions: dict[str, list[Configuration]] = defaultdict(list)
        for one in self.found:
            functions[one.function].append(one)
        return dict(functions)

    @cached_property
    def _present(self) -> dict[str, Configuration]:
        return {
            function: max(own, key=lambda one: (self.found[one].rows, one))
            for function, own in self.by_function.items()
        }

    def present(self, function: str) -> Configuration:
        """What the function runs at now: the configuration of most of its rows."""
        return self._present[function]

    def tariff_in_use(self, one: Configuration) -> str | None:
        """The id of the tariff that a configuration is billed by now; None if that is unknown."""
        return self.present_tariff or own_tariff(one.platform)

    def hinted(self, one: Configuration) -> list[Tariff]:
        """The tariffs that hints are computed under: those named, else the one in use, else all."""
        in_use = self.tariff_in_use(one)
        if self.named or in_use is None:
            return self.tariffs
        return [self.priced[in_use]]

    def measured_there(self, one: Configuration, tariff: Tariff) -> bool:
        """Whether a configuration was measured on the hardware that a tariff sells, as far as the
        platform's name tells; a name that tells no provider does not speak against it."""
        provider = owner(one.platform)
        if tariff.architecture == "arm64" and not is_arm(one.platform):
            return False
        return provider is None or provider == tariff.provider


@contextmanager
def study(
    source: Source,
    *,
    p95: str | int | None,
    functions: Sequence[str] | None,
    tariffs: Sequence[str | Path | Tariff] | None,
    fit: FitRule,
    confidence: float,
    of: Time,
    present: str | None,
    backend: Backend | None,
    for_choices: bool = True,
) -> Iterator[Study]:
    """Compute what advice is made from; the arguments are those of `advice`.

    Args:
        for_choices: whether choices are wanted; for hints alone, the tariffs in use suffice.

    Raises:
        UnciaError: an argument is wrong, or the table cannot be read or holds nothing to advise on.
    """
    bound = bound_of(p95)
    level = level_of(confidence)
    if of not in get_args(Time):
        raise UnciaError(f"there is no time {of!r}: a bound is of the execution or the turnaround")
    check(fit)
    if fit == "paper":
        raise UnciaError(
            "the published rule bills sizes that no platform sells, so they cannot be chosen",
            "Use the fit allocated or used-peak.",
        )
    if tariffs is None:
        chosen = [one for one in catalogue.resolve(None) if one.id not in MODELS]
    else:
        chosen = catalogue.resolve(tariffs)
    if not chosen:
        raise UnciaError("no tariff was named")
    if present is not None:
        (in_use,) = catalogue.resolve([present])
        present = in_use.id
    with ExitStack() as stack:
        engine = backend or stack.enter_context(connect())
        local = engine if engine.name == "duckdb" else stack.enter_context(connect())
        table, filled = source_table(engine, source, functions, _ratio)
        rows = billable_rows(table)
        found = facts(engine, rows, _COLUMNS[of], bound)
        if not found:
            raise UnciaError("the table holds no row that ran and is billed for")
        own = {present} if present is not None else {own_tariff(one.platform) for one in found}
        if tariffs is None and not for_choices and None not in own:
            chosen = catalogue.resolve(sorted(name for name in own if name is not None))
        known = {tariff.id: tariff for tariff in chosen}
        extra = sorted(name for name in own if name is not None and name not in known)
        priced = known | {tariff.id: tariff for tariff in catalogue.resolve(extra or [])}
        detailed = len(found) <= MOST_IN_BLOCKS
        identified = "invocation" in table.schema()
        claims = _claims(engine, rows, found, of, level, bound)
        yield Study(
            backend=engine,
            local=local,
            table=table,
            rows=rows,
            found=found,
            tariffs=chosen,
            priced=priced,
            prices=prices(engine, table, list(priced.values()), fit=fit, configurations=len(found)),
            sizes=_sizes(engine, table, list(priced.values()), list(found), fit),
            claims=claims,
            turnaround=_turnaround(engine, rows, found, claims, of),
            samples=draw(engine, rows, found, identified=identified) if detailed else {},
            bound=bound,
            of=of,
            level=level,
            fit=fit,
            present_tariff=present,
            named=tariffs is not None,
            notes=[*filled, *_notes(found, detailed=detailed, identified=identified, of=of)],
        )


def _ratio(platform: str) -> int | None:
    """The bytes that hold one vCPU where a platform couples the two; None if it does not."""
    name = own_tariff(platform)
    sizes = None if name is None else catalogue.get(name).sizes
    return sizes.memory_per_vcpu if isinstance(sizes, Proportional) else None


def bound_of(p95: str | int | None) -> int | None:
    """A bound, such as ``200ms`` or a number of ns, in ns.

    Raises:
        UnciaError: it is none, or not above zero.
    """
    if p95 is None:
        return None
    try:
        bound = parse_duration(p95) if isinstance(p95, str) else int(p95)
    except ValueError as error:
        raise UnciaError(f"the bound of the p95: {error}") from error
    if bound <= 0:
        raise UnciaError("the bound of the p95 is not above zero")
    return bound


def _claims(
    backend: Backend,
    rows: ir.Table,
    found: dict[Configuration, Facts],
    of: Time,
    level: Fraction,
    bound: int | None,
) -> dict[Configuration, Claim]:
    column = _COLUMNS[of]
    known = {one: _known(own, of) for one, own in found.items()}
    ranks = {}
    for one, n in known.items():
        if n:
            middle, interval = ranks_of(n, level)
            ranks[one] = sorted({middle, *(interval or ())})
    values = order_statistics(backend, rows, column, ranks)
    return {
        one: claim(n, values.get(one, {}), level, bound, found[one].within)
        for one, n in known.items()
    }


def _known(own: Facts, of: str) -> int:
    return own.rows - own.cold_unknown if of == "turnaround" else own.rows


def _turnaround(
    backend: Backend,
    rows: ir.Table,
    found: dict[Configuration, Facts],
    claims: dict[Configuration, Claim],
    of: Time,
) -> dict[Configuration, int | None]:
    values: dict[Configuration, int | None] = {}
    ranks = {}
    for one, own in found.items():
        if own.cold_unknown:
            values[one] = None
        elif not own.started_rows or of == "turnaround":
            values[one] = claims[one].value
        else:
            ranks[one] = [ranks_of(own.rows, LEVEL)[0]]
    if ranks:
        started = order_statistics(backend, rows, "turnaround", ranks)
        values |= {one: started[one][own[0]] for one, own in ranks.items()}
    return values


def _sizes(
    engine: Backend,
    table: ir.Table,
    tariffs: Sequence[Tariff],
    found: Sequence[Configuration],
    fit: str,
) -> dict[tuple[str, Configuration], Size]:
    wanted = {one: allocation(one) for one in found}
    if fit == "used-peak":
        peaks = used_peak(table)
        answer = engine.collect(
            peaks.aggregate(
                memory=peaks["allocated_memory"].max(),
                cpu=peaks["allocated_cpu"].max(),
                by=[
                    peaks["function"].cast("string").name("function"),
                    *(peaks[f"advice_{name}"] for name in ("platform", "memory", "cpu")),
                ],
            )
        )
        for row in answer.to_pylist():
            one = Configuration(
                row["function"],
                row["advice_platform"],
                int(row["advice_memory"]),
                int(row["advice_cpu"]),
            )
            if one in wanted:
                wanted[one] = Size(row["memory"], row["cpu"])
    sizes = fitted(tariffs, list(wanted.values()))
    return {(t.id, one): sizes[t.id, size] for t in tariffs for one, size in wanted.items()}


def _notes(
    found: dict[Configuration, Facts], *, detailed: bool, identified: bool, of: Time
) -> list[str]:
    notes = []
    if not detailed:
        notes.append(
            f"The table has {len(found):,} functions and sizes, more than {MOST_IN_BLOCKS}:"
            " intervals of savings, estimated sizes and hints from them are left out."
            " Name functions to have them."
        )
    elif not identified:
        notes.append(
            "The table has no column invocation, so rows cannot be drawn at random: intervals of"
            " savings are left out, and so are estimates for what has many rows."
        )
    lost = sum(own.cold_unknown for own in found.values())
    if lost and of == "turnaround":
        notes.append(
            f"{lost:,} cold starts have no initialization; their turnaround is not known, and not"
            " in the p95."
        )
    return notes


def memory_needed(own: Facts) -> int | None:
    """The most memory that rows of a configuration used, bytes; None if not all of them tell."""
    return own.peak if own.peak_rows == own.rows else None


def key_words(one: Configuration) -> str:
    """A configuration for people: ``1 vCPU, 512 MB on aws``."""
    from uncia.costs.advice.sizes import size_words

    where = f" on {one.platform}" if one.platform else ""
    return f"{size_words(allocation(one))}{where}"
