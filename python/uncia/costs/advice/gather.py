"""The data of advice, computed once: facts, bills, sizes, quantiles and samples."""

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
from uncia.costs.advice.bills import MAX_IN_BLOCKS, Prices, prices
from uncia.costs.advice.claims import Claim, claim, level_of, ranks_of
from uncia.costs.advice.order import order_statistics
from uncia.costs.advice.rows import (
    Configuration,
    Facts,
    billable_rows,
    collect_facts,
    source_table,
)
from uncia.costs.advice.sample import Sample, draw
from uncia.costs.advice.sizes import Size, allocation, default_tariff, fitted, is_arm, owner
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

UNNAMED: Final = frozenset({"", "http"})
"""Names of platforms that do not say who runs them: none, and any address."""

_COLUMNS: Final = {"execution": "v_execution", "turnaround": "turnaround"}


@dataclass
class Study:
    """The data of a table's functions under some tariffs.

    Attributes:
        backend: where the table is.
        local: a backend for tables in memory.
        table: of `source_table`.
        rows: of `billable_rows`.
        facts: the configurations and their facts.
        tariffs: those to choose among.
        priced: those and the platforms' present ones, by id.
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
        named: whether the user named the tariffs.
        notes: what was left out, and why.
        instances: cache of instance sizes that hold an allocation.
    """

    backend: Backend
    local: Backend
    table: ir.Table
    rows: ir.Table
    facts: dict[Configuration, Facts]
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
        for config in self.facts:
            functions[config.function].append(config)
        return dict(functions)

    @cached_property
    def _present(self) -> dict[str, Configuration]:
        return {
            function: max(configs, key=lambda config: (self.facts[config].rows, config))
            for function, configs in self.by_function.items()
        }

    def present(self, function: str) -> Configuration:
        """The present configuration of a function: that of most of its rows."""
        return self._present[function]

    def tariff_in_use(self, config: Configuration) -> str | None:
        """The id of the tariff that bills a configuration now; None if unknown."""
        return self.present_tariff or default_tariff(config.platform)

    def hinted(self, config: Configuration) -> list[Tariff]:
        """The tariffs of hints: those that the user named, else the one in use, else all."""
        in_use = self.tariff_in_use(config)
        if self.named or in_use is None:
            return self.tariffs
        return [self.priced[in_use]]

    def provider(self, config: Configuration) -> str | None:
        """The provider on whose platform a configuration was measured; None if nobody sells it.

        A name that tells no more than how it was reached (`UNNAMED`) stands for the provider of the
        tariff in use, if the user named that.
        """
        provider = owner(config.platform)
        if provider is None and config.platform in UNNAMED and self.present_tariff is not None:
            provider = self.priced[self.present_tariff].provider
        return provider

    def measured_there(self, config: Configuration, tariff: Tariff) -> bool:
        """Whether a configuration was measured on the platform that a tariff bills, by its name."""
        if tariff.architecture == "arm64" and not is_arm(config.platform):
            return False
        named = config.platform.casefold() in (tariff.id.casefold(), tariff.provider.casefold())
        return named or self.provider(config) == tariff.provider

    @cached_property
    def models(self) -> frozenset[str]:
        """The ids of the tariffs that nobody sells by."""
        return frozenset(name for name, tariff in self.priced.items() if not tariff.sold)


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
    present: str | Path | Tariff | None,
    backend: Backend | None,
    for_choices: bool = True,
) -> Iterator[Study]:
    """Compute the data of advice; the arguments are those of `advice`.

    Args:
        for_choices: whether choices are needed; for hints alone, the tariffs in use suffice.

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
        chosen = [tariff for tariff in catalogue.resolve(None) if tariff.sold]
    else:
        chosen = catalogue.resolve(tariffs)
    if not chosen:
        raise UnciaError("no tariff was named")
    in_use = {} if present is None else _named_present(present, chosen)
    with ExitStack() as stack:
        engine = backend or stack.enter_context(connect())
        local = engine if engine.name == "duckdb" else stack.enter_context(connect())
        table, filled = source_table(engine, source, functions, _ratio)
        rows = billable_rows(table)
        configs = collect_facts(engine, rows, _COLUMNS[of], bound)
        if not configs:
            raise UnciaError("the table holds no row that ran and is billed for")
        is_known = True
        if present is None:
            names = {default_tariff(config.platform) for config in configs}
            is_known = None not in names
            known = sorted(name for name in names if name is not None)
            in_use = {tariff.id: tariff for tariff in catalogue.resolve(known)}
        if tariffs is None and not for_choices and is_known:
            chosen = list(in_use.values())
        by_id = {tariff.id: tariff for tariff in chosen}
        priced = by_id | {name: it for name, it in in_use.items() if name not in by_id}
        detailed = len(configs) <= MAX_IN_BLOCKS
        identified = "invocation" in table.schema()
        claims = _claims(engine, rows, configs, of, level, bound)
        yield Study(
            backend=engine,
            local=local,
            table=table,
            rows=rows,
            facts=configs,
            tariffs=chosen,
            priced=priced,
            prices=prices(
                engine, table, list(priced.values()), fit=fit, configurations=len(configs)
            ),
            sizes=_sizes(engine, table, list(priced.values()), list(configs), fit),
            claims=claims,
            turnaround=_turnaround(engine, rows, configs, claims, of),
            samples=draw(engine, rows, configs, identified=identified) if detailed else {},
            bound=bound,
            of=of,
            level=level,
            fit=fit,
            present_tariff=None if present is None else next(iter(in_use)),
            named=tariffs is not None,
            notes=[
                *filled,
                *_notes(configs, detailed=detailed, identified=identified, of=of),
            ],
        )


def _named_present(present: str | Path | Tariff, chosen: Sequence[Tariff]) -> dict[str, Tariff]:
    """The tariff in use, by its id, which no other tariff has.

    Raises:
        UnciaError: there is none, it cannot price requests, or another of `chosen` has its id.
    """
    [tariff] = catalogue.resolve([present])
    if any(other.id == tariff.id and other != tariff for other in chosen):
        raise UnciaError(
            f"the tariff in use has the id {tariff.id}, as another tariff has",
            "Give it an id of its own in its file.",
        )
    return {tariff.id: tariff}


def _ratio(platform: str) -> int | None:
    """The bytes per vCPU of a platform that derives vCPU from memory; None for others."""
    name = default_tariff(platform)
    sizes = None if name is None else catalogue.get(name).sizes
    return sizes.memory_per_vcpu if isinstance(sizes, Proportional) else None


def bound_of(p95: str | int | None) -> int | None:
    """Parse a bound, such as ``200ms`` or a number of ns, to ns.

    Raises:
        UnciaError: it is no duration, or not above zero.
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
    configs: dict[Configuration, Facts],
    of: Time,
    level: Fraction,
    bound: int | None,
) -> dict[Configuration, Claim]:
    column = _COLUMNS[of]
    counts = {config: _known(facts, of) for config, facts in configs.items()}
    ranks = {}
    for config, n in counts.items():
        if n:
            p95_rank, interval = ranks_of(n, level)
            ranks[config] = sorted({p95_rank, *(interval or ())})
    values = order_statistics(backend, rows, column, ranks)
    return {
        config: claim(n, values.get(config, {}), level, bound, configs[config].within)
        for config, n in counts.items()
    }


def _known(facts: Facts, of: str) -> int:
    return facts.rows - facts.cold_unknown if of == "turnaround" else facts.rows


def _turnaround(
    backend: Backend,
    rows: ir.Table,
    configs: dict[Configuration, Facts],
    claims: dict[Configuration, Claim],
    of: Time,
) -> dict[Configuration, int | None]:
    values: dict[Configuration, int | None] = {}
    ranks = {}
    for config, facts in configs.items():
        if facts.cold_unknown:
            values[config] = None
        elif not facts.started_rows or of == "turnaround":
            values[config] = claims[config].value
        else:
            ranks[config] = [ranks_of(facts.rows, LEVEL)[0]]
    if ranks:
        started = order_statistics(backend, rows, "turnaround", ranks)
        values |= {config: started[config][facts[0]] for config, facts in ranks.items()}
    return values


def _sizes(
    engine: Backend,
    table: ir.Table,
    tariffs: Sequence[Tariff],
    configs: Sequence[Configuration],
    fit: str,
) -> dict[tuple[str, Configuration], Size]:
    wanted = {config: allocation(config) for config in configs}
    if fit == "used-peak":
        peaks = used_peak(table)
        peaks_by_config = engine.collect(
            peaks.aggregate(
                memory=peaks["allocated_memory"].max(),
                cpu=peaks["allocated_cpu"].max(),
                by=[
                    peaks["function"].cast("string").name("function"),
                    *(peaks[f"advice_{name}"] for name in ("platform", "memory", "cpu")),
                ],
            )
        )
        for row in peaks_by_config.to_pylist():
            config = Configuration(
                row["function"],
                row["advice_platform"],
                int(row["advice_memory"]),
                int(row["advice_cpu"]),
            )
            if config in wanted:
                wanted[config] = Size(row["memory"], row["cpu"])
    sizes = fitted(tariffs, list(wanted.values()))
    return {(t.id, config): sizes[t.id, size] for t in tariffs for config, size in wanted.items()}


def _notes(
    configs: dict[Configuration, Facts], *, detailed: bool, identified: bool, of: Time
) -> list[str]:
    notes = []
    if not detailed:
        notes.append(
            f"The table has {len(configs):,} functions and sizes, more than {MAX_IN_BLOCKS}:"
            " intervals of savings, estimated sizes and hints from them are left out."
            " Name functions to have them."
        )
    elif not identified:
        notes.append(
            "The table has no column invocation, so rows cannot be drawn at random: intervals of"
            " savings are left out, and so are estimates for what has many rows."
        )
    unknown = sum(facts.cold_unknown for facts in configs.values())
    if unknown and of == "turnaround":
        notes.append(
            f"{unknown:,} cold starts have no initialization; their turnaround is not known, and"
            " not in the p95."
        )
    return notes


def memory_needed(facts: Facts) -> int | None:
    """The most memory that rows of a configuration used, bytes; None unless all rows have it."""
    return facts.peak if facts.peak_rows == facts.rows else None


def key_words(config: Configuration) -> str:
    """A configuration for people: ``1 vCPU, 512 MB on aws``."""
    from uncia.costs.advice.sizes import size_words

    where = f" on {config.platform}" if config.platform else ""
    return f"{size_words(allocation(config))}{where}"
