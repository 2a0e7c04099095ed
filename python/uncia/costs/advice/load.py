"""Hints on load: merging requests or chains, concurrency, and instances that are always on."""

from __future__ import annotations

from fractions import Fraction
from typing import Any, Final

import ibis
from ibis.expr import types as ir

from uncia.costs import sizes
from uncia.costs.advice.bills import Price
from uncia.costs.advice.gather import Study
from uncia.costs.advice.merged import is_changed_by_merging, saved_by_merging
from uncia.costs.advice.rows import KEYS, Configuration, configuration
from uncia.costs.advice.sizes import Size, allocation, fitted, size_words
from uncia.costs.advice.trials import Hint, saved, unjudged
from uncia.tariffs import bill, catalogue
from uncia.tariffs.exact import integer
from uncia.tariffs.model import Tariff
from uncia.tariffs.sizes import Fixed
from uncia.text import plural
from uncia.units import NS_PER_S

MERGE_CHAIN: Final = "merge chain"
MERGE_REQUESTS: Final = "merge requests"
CONCURRENCY: Final = "concurrency"
ALWAYS_ON: Final = "always on"

BATCH: Final = 10
"""Requests that are merged into one, as an assumption."""

BUSY: Final = Fraction(7, 10)
"""Maximum mean utilization of an instance that is always on."""

_MAX_WAIT_S: Final = 60  # s, for so many requests to come together
_SHARE: Final = Fraction(1, 4)  # of the bill, from which fee and rounding are worth a hint
_MAX_CONCURRENT: Final = 80  # what Cloud Run allows unless told otherwise
_CONCURRENT: Final = frozenset({"Google Cloud", "IBM Cloud", "Microsoft Azure"})
_MAX_SORTED: Final = 20_000_000  # rows whose overlap is computed; it sorts them
_CALL: Final = "\x1f"


def loading(study: Study) -> list[Hint]:
    """Return the hints on load for every function."""
    hints = _chains(study)
    overlap = _busy(study)
    for function in study.by_function:
        config = study.present(function)
        for tariff in study.hinted(config):
            price = study.prices.get((config, tariff.id), Price())
            if not price.rows or price.beyond:
                continue
            hints += _batches(study, config, tariff, price)
            hints += _concurrent(study, config, tariff, price, overlap.get(config))
            hints += _always_on(study, config, tariff, price)
        hints += _without_starts(study, config)
    return hints


def _batches(study: Study, config: Configuration, tariff: Tariff, price: Price) -> list[Hint]:
    """Many short requests in one, which saves the fee and the rounding of all but one."""
    fee_and_rounding = price.fee + price.rounding
    if fee_and_rounding < _SHARE * price.cost:
        return []
    facts = study.facts[config]
    note = (
        f"of the bill, {float(price.fee / price.cost):.0%} is fee and"
        f" {float(price.rounding / price.cost):.0%} rounding"
    )
    if facts.span:
        wait = facts.span * BATCH / facts.rows / NS_PER_S
        if wait > _MAX_WAIT_S:
            return []
        note += f"; {BATCH} requests come within {wait:,.3g} s on average"
    saving = fee_and_rounding * (BATCH - 1) / BATCH
    if is_changed_by_merging(tariff):
        saving = min(saving, saved_by_merging(study, config, tariff, price, BATCH))
    return saved(
        config.function,
        MERGE_REQUESTS,
        tariff.id,
        saving,
        price,
        "estimated",
        f"handle {BATCH} requests in one invocation",
        f"{BATCH} requests can wait for one another, their times add up, and a merged one is"
        " rounded as much as a single one is now",
        note,
    )


def _concurrent(
    study: Study, config: Configuration, tariff: Tariff, price: Price, busy: int | None
) -> list[Hint]:
    """Several concurrent requests in an instance, which is billed while any of them runs."""
    if tariff.provider not in _CONCURRENT or not _bills_allocation(tariff):
        return []
    facts = study.facts[config]
    share = study.sizes[tariff.id, config].cpu
    if facts.cpu_rows < facts.rows:
        unmeasured = plural(facts.rows - facts.cpu_rows, "row")
        missing = f"the CPU time was not measured in {unmeasured}"
        return [unjudged(config.function, CONCURRENCY, missing)]
    if not share or not facts.execution:
        return []
    used = Fraction(facts.cpu_time * 10**6, facts.execution * share)
    concurrent = min(_MAX_CONCURRENT, int(1 / used) if used else _MAX_CONCURRENT)
    if concurrent < 2:
        return []
    share_left = Fraction(1, concurrent)
    note = f"on average requests used {float(used):.1%} of the vCPU"
    if busy is not None:
        share_left = max(share_left, Fraction(busy, facts.execution))
        note += f"; one or more ran during {busy / facts.execution:.1%} of the time that is billed"
    else:
        note += "; whether they overlap in time was not measured"
    return saved(
        config.function,
        CONCURRENCY,
        tariff.id,
        (price.cost - price.fee) * (1 - share_left),
        price,
        "at most",
        f"let an instance handle up to {concurrent} requests at a time",
        "requests leave the vCPU to one another while they wait, and their memory fits together;"
        " those that overlap go to the same instance",
        note,
    )


def _bills_allocation(tariff: Tariff) -> bool:
    return tariff.time.kind in ("execution", "turnaround") and any(
        charge.basis == "allocated" and charge.unit_price for charge in tariff.charges
    )


def _busy(study: Study) -> dict[Configuration, int]:
    """Time in which at least one request of a configuration ran, ns: the union of their intervals.

    Only for platforms with concurrency, if every row has its times and there are at most 20 million
    rows.
    """
    wanted = [
        config
        for config in map(study.present, study.by_function)
        if study.facts[config].span is not None
        and any(t.provider in _CONCURRENT for t in study.hinted(config))
    ]
    if not wanted or sum(facts.rows for facts in study.facts.values()) > _MAX_SORTED:
        return {}
    rows = study.rows.filter(study.rows["started"].notnull() & study.rows["ended"].notnull())
    rows = rows.select(*KEYS, "started", "ended")
    earlier = ibis.window(group_by=list(KEYS), order_by=["started", "ended"], rows=(None, -1))
    rows = rows.mutate(before=rows["ended"].max().over(earlier))
    begin = ibis.ifelse(
        rows["before"].notnull() & (rows["before"] > rows["started"]),
        rows["before"],
        rows["started"],
    )
    rows = rows.mutate(begin=begin)
    gain = ibis.ifelse(
        rows["ended"] > rows["begin"], rows["ended"] - rows["begin"], integer(0)
    ).cast("decimal(18, 0)")
    result = study.backend.collect(
        rows.aggregate(busy=gain.sum().cast("decimal(38, 0)"), by=list(KEYS))
    )
    busy = {configuration(row): int(row["busy"]) for row in result.to_pylist()}
    return {config: busy[config] for config in wanted if config in busy}


def _always_on(study: Study, config: Configuration, tariff: Tariff, price: Price) -> list[Hint]:
    """Instances that are paid by time, as many as the mean load needs."""
    facts = study.facts[config]
    hints: list[Hint] = []
    for other, size, per_ns in _instances(study, config, tariff):
        per_request = price.cost / price.rows
        if not per_ns or not per_request:
            continue
        even = per_ns * NS_PER_S / per_request
        if facts.span is None:
            continue
        concurrency = Fraction(facts.execution, facts.span)
        instances = max(1, -int(-concurrency / BUSY // 1))
        # The span is an estimate, so that it is not rounded to steps.
        billed = instances * other.time.rules.without_steps()(facts.span)
        billed = max(billed, other.time.minimum_all or 0)
        rate = Fraction(facts.rows * NS_PER_S, facts.span)
        hints += saved(
            config.function,
            ALWAYS_ON,
            tariff.id,
            price.cost * Fraction(facts.rows, price.rows) - per_ns * billed,
            price,
            "estimated",
            f"keep {plural(instances, 'instance')} of {size_words(size)} under {other.id}",
            "requests come as often as in this table, an instance handles one at a time and is"
            f" {float(BUSY):.0%} busy at most on average; peaks beyond that wait; times stay as"
            " they are",
            f"{float(rate):,.3g} requests/s on average; one instance is cheaper from"
            f" {float(even):,.3g} requests/s",
        )
    return sorted(hints, key=lambda hint: hint.saving or 0, reverse=True)[:1]


def _without_starts(study: Study, config: Configuration) -> list[Hint]:
    """The break-even rates of instances, for functions without the times of their requests."""
    if study.facts[config].span is not None:
        return []
    rates = []
    for tariff in study.hinted(config):
        price = study.prices.get((config, tariff.id), Price())
        for other, _, per_ns in _instances(study, config, tariff):
            if price.rows and price.cost and per_ns:
                even = per_ns * NS_PER_S * price.rows / price.cost
                rates.append(f"{other.id} is cheaper than {tariff.id} from {float(even):,.3g}/s")
    if not rates:
        return []
    missing = f"when requests ran was not measured; an instance of {'; of '.join(rates)}"
    return [unjudged(config.function, ALWAYS_ON, missing)]


def _instances(
    study: Study, config: Configuration, tariff: Tariff
) -> list[tuple[Tariff, Size, Fraction]]:
    """Offers by time of the same provider that hold this allocation: tariff, size, USD per ns."""
    offers = []
    for other in _by_time(tariff.provider):
        size = _instance(study, other, allocation(config))
        if size is None:
            continue
        price = sizes.price_per_second(other, sizes.Size(size.cpu, size.memory))
        if price is not None:  # None: no public price, so no offer
            offers.append((other, size, price / NS_PER_S))
    return offers


def _by_time(provider: str) -> list[Tariff]:
    tariffs = [catalogue.get(name) for name in catalogue.ids()]
    return [
        tariff
        for tariff in tariffs
        if tariff.provider == provider and tariff.by_instance and not tariff.unpriced_figures
    ]


def _instance(study: Study, tariff: Tariff, wanted: Size) -> Size | None:
    """The smallest size of an instance that holds an allocation; None if there is none."""
    if wanted.memory is None:
        return None
    key = (tariff.id, wanted)
    if key not in study.instances:
        if isinstance(tariff.sizes, Fixed):
            size: Size = Size(tariff.sizes.memory, tariff.sizes.cpu)
        else:
            size = fitted([tariff], [wanted])[key]
        memory = size.memory is not None and size.memory >= wanted.memory
        cpu = wanted.cpu is None or (size.cpu is not None and size.cpu >= wanted.cpu)
        study.instances[key] = size if memory and cpu else None
    return study.instances[key]


def _chains(study: Study) -> list[Hint]:
    """A function merged with one that it calls, billed as a single function."""
    if not any(facts.parent_rows for facts in study.facts.values()):
        return []
    tariffs = {t.id: t for config in study.facts for t in study.hinted(config)}
    before, after = _merged(study.rows)
    lines = {}
    for state, table in (("before", before), ("after", after)):
        for line in bill(table, list(tariffs.values()), ("pair",), study.backend):
            lines[str(line.group["pair"]), line.tariff, state] = line
    hints: list[Hint] = []
    for pair, name, state in sorted(lines):
        if state != "before":
            continue
        now, then = lines[pair, name, state], lines.get((pair, name, "after"))
        if then is None or now.exact_cost is None or then.exact_cost is None:
            continue
        if now.unpriced_rows or then.unpriced_rows or then.beyond_limits:
            continue
        caller, callee = pair.split(_CALL)
        price = Price(now.rows, now.exact_cost)
        hints += saved(
            caller,
            MERGE_CHAIN,
            name,
            now.exact_cost - then.exact_cost,
            price,
            "estimated",
            f"call {callee} within {caller} instead of invoking it",
            "the merged function has the larger of the two sizes; what ran while the caller waited"
            " takes none of its time beyond that, the rest adds up; one start instead of two",
            f"{then.rows:,} requests of {caller} with {now.rows - then.rows:,} calls of {callee};"
            f" of the bill, {float(now.fee_usd or 0) / float(now.exact_cost or 1):.0%} is fee",
        )
    return hints


_SUMS: Final = ("v_cpu_time",)
_LARGEST: Final = ("v_allocated_cpu", "v_allocated_memory", "v_memory_avg", "v_memory_peak")


def _merged(rows: ir.Table) -> tuple[ir.Table, ir.Table]:
    """Callers and their calls, separate and merged; both tables have the column ``pair``.

    An invocation with several rows (retries) is not merged.
    """
    unique = rows.filter(rows["invocation"].notnull())
    unique = unique.aggregate(of=unique.count(), by=["invocation"])
    unique = unique.filter(unique["of"] == 1).select("invocation")
    callers = rows.inner_join(unique, "invocation").select(*_columns(rows, "p_"))
    calls = rows.filter(rows["parent"].notnull()).select(*_columns(rows, "c_"))
    joined = calls.inner_join(callers, calls["c_parent"] == callers["p_invocation"])
    pair = joined["p_function"] + _CALL + joined["c_function"]
    # A function that calls itself is a recursion, not a chain.
    joined = joined.mutate(pair=pair).filter(joined["p_function"] != joined["c_function"])
    within = (
        (joined["c_started"] >= joined["p_started"]) & (joined["c_ended"] <= joined["p_ended"])
    ).fill_null(False)
    joined = joined.mutate(
        added=ibis.ifelse(within, integer(0), joined["c_v_execution"]),
        no_cpu=joined["c_v_cpu_time"].isnull().cast("int64"),
    )
    names = ("v_execution", "v_initialization", *_SUMS, *_LARGEST)
    merged = joined.aggregate(
        {
            **{f"p_{name}": joined[f"p_{name}"].max() for name in names},
            **{f"c_{name}": joined[f"c_{name}"].max() for name in _LARGEST},
            "c_cpu": joined["c_v_cpu_time"].sum(),
            "no_cpu": joined["no_cpu"].sum(),
            "added": joined["added"].sum(),
            "p_cold": joined["p_unknown_start"].max(),
        },
        by=["pair", "p_invocation"],
    )
    larger = {
        name: ibis.ifelse(
            merged[f"c_{name}"] > merged[f"p_{name}"], merged[f"c_{name}"], merged[f"p_{name}"]
        )
        for name in _LARGEST
    }
    # The maximum is unknown if one side is.
    larger = {
        name: ibis.ifelse(
            merged[f"c_{name}"].isnull() | merged[f"p_{name}"].isnull(),
            ibis.null("int64"),
            value,
        )
        for name, value in larger.items()
    }
    cpu = ibis.ifelse(
        merged["no_cpu"] > 0, ibis.null("int64"), merged["p_v_cpu_time"] + merged["c_cpu"]
    )
    after = _billed(
        merged["pair"],
        merged,
        {
            "execution": merged["p_v_execution"] + merged["added"],
            "initialization": merged["p_v_initialization"],
            "cpu_user": cpu,
            "start": _start(merged["p_cold"]),
            **{name.removeprefix("v_"): value for name, value in larger.items()},
        },
    )
    callers_once = joined.select("pair", *(c for c in joined.columns if c.startswith("p_")))
    callers_once = callers_once.distinct()
    before = _plain(callers_once, "p_").union(_plain(joined, "c_"))
    return before, after


def _columns(rows: ir.Table, prefix: str) -> list[Any]:
    names = (
        "function",
        "invocation",
        "parent",
        "started",
        "ended",
        "unknown_start",
        "v_execution",
        "v_initialization",
        *_SUMS,
        *_LARGEST,
    )
    return [rows[name].name(f"{prefix}{name}") for name in names]


def _plain(table: ir.Table, prefix: str) -> ir.Table:
    names = ("execution", "initialization", *(name.removeprefix("v_") for name in _LARGEST))
    return _billed(
        table["pair"],
        table,
        {
            **{name: table[f"{prefix}v_{name}"] for name in names},
            "cpu_user": table[f"{prefix}v_cpu_time"],
            "start": _start(table[f"{prefix}unknown_start"]),
        },
    )


def _start(unknown: Any) -> Any:
    return ibis.ifelse(unknown, ibis.literal("cold"), ibis.literal("warm"))


_BILLED: Final = (
    "execution",
    "initialization",
    "cpu_user",
    "allocated_cpu",
    "allocated_memory",
    "memory_avg",
    "memory_peak",
)


def _billed(pair: Any, table: ir.Table, columns: dict[str, Any]) -> ir.Table:
    return table.select(
        pair=pair,
        start=columns["start"],
        **{name: columns[name].cast("int64") for name in _BILLED},
    )
