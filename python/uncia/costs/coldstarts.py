"""Cold starts: resources of initializations against executions, and what billing them adds.

The resources of each initialization (allocation x initialization) are compared with those of the
executions of all requests that the instance then served (allocation x execution): Figure 4 of
*Demystifying Serverless Costs on Public Platforms* (EuroSys'26, section 2.4). A difference of zero
or below means that the start alone held at least as much as all its executions.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from uncia.backends import Backend, Source, use
from uncia.errors import UnciaError
from uncia.tariffs import Tariff, bill, catalogue
from uncia.tariffs.money import money
from uncia.units import GIB, MICRO_PER_VCPU, NS_PER_S

if TYPE_CHECKING:
    import pandas as pd
    from ibis.expr import types as ir

    from uncia.costs.starts import Match
    from uncia.tariffs import FitRule
    from uncia.tariffs.facts import Facts

RESOURCES: Final[Mapping[str, tuple[str, int]]] = {
    "cpu": ("vCPU-s", MICRO_PER_VCPU * NS_PER_S),
    "memory": ("GB-s", GIB * NS_PER_S),
}
"""The resources compared: unit, and how many micro-vCPU x ns or bytes x ns it is."""

COLUMNS: Final = (
    "tariff",
    "bills_initialization",
    "match",
    "cold_starts",
    "matched",
    "unmatched",
    "requests",
    "cpu_starts",
    "cpu_not_repaid_share",
    "cpu_initialization_micro_vcpu_ns",
    "cpu_execution_micro_vcpu_ns",
    "memory_starts",
    "memory_not_repaid_share",
    "memory_initialization_byte_ns",
    "memory_execution_byte_ns",
    "waited_rows",
    "execution_usd",
    "initialization_usd",
    "initialization_share",
)
CDF_COLUMNS: Final = ("resource", "unit", "share", "difference", "exact")

_MATCHES: Final = ("ordered", "paper")
_SUFFIX: Final = {"cpu": "micro_vcpu_ns", "memory": "byte_ns"}


@dataclass(frozen=True)
class ColdStarts:
    """The results of the analysis, from one matching.

    Attributes:
        frame: as returned by `coldstarts`.
        cdf: as returned by `coldstart_cdf`.
        notes: the sources of cold starts and initializations.
    """

    frame: pd.DataFrame
    cdf: pd.DataFrame
    notes: tuple[str, ...]


def coldstarts(
    source: Source,
    tariffs: Sequence[str | Path | Tariff] | None = None,
    *,
    instances: Source | None = None,
    match: Match = "ordered",
    fit: FitRule = "allocated",
    backend: Backend | None = None,
) -> pd.DataFrame:
    """Compare cold starts with the requests they served, and price turnaround under each tariff.

    Args:
        source: invocations, as `uncia.tariffs.bill` takes them.
        tariffs: ids, files or tariffs; by default all that bill by request.
        instances: the instances table; by default the one next to the invocations. Without any,
            cold starts are the requests that waited for one.
        match: ``ordered`` or ``paper``, see `uncia.costs.starts.matched`.
        fit: how rows get their sizes, as in `uncia.tariffs.bill`.
        backend: computes it; by default a DuckDB that is opened for it.

    Returns:
        A row for each tariff. The same in all rows: ``match``, ``cold_starts``, ``matched``,
        ``unmatched`` (count by reason), ``requests`` (matched to a start), and for ``cpu`` and
        ``memory`` ``<r>_starts`` (matched starts of known allocation), ``<r>_not_repaid_share``
        (share of them whose difference is zero or below), and the summed resources of
        initializations and executions (Decimal, micro-vCPU x ns, bytes x ns). By tariff:
        ``bills_initialization``; ``waited_rows``, the rows with an initialization that it prices;
        ``execution_usd``, the bill of all rows over their execution alone;
        ``initialization_usd``, what billing turnaround adds to it, with all rounding, whether or
        not the tariff does so (None where only CPU time is billed, or no row waited);
        ``initialization_share``, its share of the sum of both.

    Raises:
        UnciaError: a table or tariff cannot be read, or lacks a column.
    """
    return analysed(
        source, tariffs, instances=instances, match=match, fit=fit, backend=backend, points=0
    ).frame


def coldstart_cdf(
    source: Source,
    *,
    instances: Source | None = None,
    match: Match = "ordered",
    points: int = 101,
    backend: Backend | None = None,
) -> pd.DataFrame:
    """Compute the distribution of execution less initialization resources over matched starts.

    Args:
        source, instances, match, backend: as for `coldstarts`.
        points: how many order statistics, from the smallest to the largest.

    Returns:
        For ``resource`` cpu and memory: ``share`` of the starts (0 to 1), and the smallest
        ``difference`` (vCPU-s or GB-s, see ``unit``) that this share does not exceed; ``exact`` in
        micro-vCPU x ns or bytes x ns. Values are those of starts, without interpolation.

    Raises:
        UnciaError: as `coldstarts`.
    """
    return analysed(
        source, [], instances=instances, match=match, backend=backend, points=points
    ).cdf


def analysed(
    source: Source,
    tariffs: Sequence[str | Path | Tariff] | None = None,
    *,
    instances: Source | None = None,
    match: Match = "ordered",
    fit: FitRule = "allocated",
    points: int = 101,
    backend: Backend | None = None,
) -> ColdStarts:
    """Compute the frames of `coldstarts` and `coldstart_cdf` at once.

    Raises:
        UnciaError: as `coldstarts`.
    """
    if match not in _MATCHES:
        raise UnciaError(f"there is no match {match!r}", "It is ordered or paper.")
    with use(backend) as backend:
        return _analysed(source, tariffs, instances, match, fit, points, backend)


def obstacle(source: Source, backend: Backend) -> str | None:
    """Why `analysed` cannot match cold starts to requests, as a clause; None: it can."""
    from uncia.costs import starts

    table = backend.table(source)
    if not backend.has(source, "instances"):
        return starts.obstacle(table, starts.OF_WAITS, "invocations")
    wrong = starts.obstacle(table, starts.OF_REQUESTS, "invocations")
    instances = backend.table(source, "instances")
    return wrong or starts.obstacle(instances, starts.OF_INSTANCES, "instances")


def _analysed(
    source: Source,
    tariffs: Sequence[str | Path | Tariff] | None,
    instances: Source | None,
    match: Match,
    fit: FitRule,
    points: int,
    backend: Backend,
) -> ColdStarts:
    # A function of its own, so that the tables held are released before the backend closes.
    import pandas as pd

    from uncia.costs import starts
    from uncia.tariffs.allocation import apply_fit, known_facts

    table, facts = backend.table(source), known_facts(source, fit)
    if instances is None and backend.has(source, "instances"):
        instances = source
    start_table, origin = table, "the requests that waited for a start"
    if instances is not None:
        start_table, origin = backend.table(instances, "instances"), "the instances table"
    # Runs are compared only where both tables name them.
    by_run = "run" in table.columns and "run" in start_table.columns
    find = starts.from_requests if instances is None else starts.from_instances
    # Held, as starts are few beside the requests, of which each further use would take a scan.
    cold, ran = backend.hold(find(start_table, by_run)), starts.requests(table, by_run)
    pairs = cold, ran
    if match == "paper" and instances is not None and backend.has(source, "spans"):
        spans = backend.table(source, "spans")
        if _count(spans.filter(spans["name"].cast("string").isin(starts.DEPLOYMENT)), backend):
            ran_anywhere = starts.requests(table, by_run=False)
            pairs = starts.from_deployment(spans, start_table), ran_anywhere
            origin = "the spans: deployment of code and dependencies, as published"
    served = backend.hold(starts.matched(*pairs, match))
    notes = [f"Cold starts are those of {origin}."]
    counts = _counts(served, match, backend)
    amounts = starts.resources(served)
    cdf = [
        record
        for name in RESOURCES
        for record in _quantiles(amounts, name, counts[f"{name}_starts"], points, backend)
    ]
    records = []
    if tariffs is None or tariffs:
        tariffs_named = catalogue.resolve(tariffs)
        table, chosen, _ = apply_fit(table, tariffs_named, fit, backend, facts)
        waited, facts_of_waited = starts.waited(table), facts
        if instances is not None and not _count(waited, backend):
            notes.append(
                "The requests do not say how long they waited, so each initialization is billed"
                " with the first request that the instance served."
            )
            if match != "ordered":
                served = backend.hold(starts.matched(cold, ran, "ordered"))
            waited = backend.hold(starts.waiting(table, served, by_run))
            facts_of_waited = {}
        bills = _bills((table, facts), (waited, facts_of_waited), chosen, backend)
        records = [
            dict.fromkeys(COLUMNS)
            | counts
            | {"tariff": tariff.id, "bills_initialization": tariff.time.kind == "turnaround"}
            | amounts_usd
            for tariff, amounts_usd in zip(tariffs_named, bills, strict=True)
        ]
    return ColdStarts(
        pd.DataFrame(records, columns=list(COLUMNS), dtype=object),
        pd.DataFrame(cdf, columns=list(CDF_COLUMNS)),
        tuple(notes),
    )


def _counts(served: ir.Table, match: str, backend: Backend) -> dict[str, Any]:
    """The columns that are the same for all tariffs."""
    from uncia.costs import starts

    by_reason = served.group_by("reason").aggregate(
        starts=lambda t: t.count().cast("int64"), requests=lambda t: t["n"].sum().cast("int64")
    )
    by_code = {row["reason"]: row for row in backend.collect(by_reason).to_pylist()}
    matched = by_code.get(starts.MATCHED, {"starts": 0, "requests": 0})
    amounts = starts.resources(served)
    sums: dict[str, Any] = {}
    for name in RESOURCES:
        difference = amounts[f"{name}_difference"]
        sums[f"{name}_starts"] = difference.count().cast("int64")
        sums[f"{name}_not_repaid"] = (difference <= 0).fill_null(False).sum().cast("int64")
        for kind in ("initialization", "execution"):
            has_difference = difference.notnull()
            sums[f"{name}_{kind}"] = (
                amounts[f"{name}_{kind}"].sum(where=has_difference).cast("decimal(38, 0)")
            )
    (row,) = backend.collect(amounts.aggregate(**sums)).to_pylist()
    counts: dict[str, Any] = {
        "match": match,
        "cold_starts": sum(count["starts"] for count in by_code.values()),
        "matched": matched["starts"],
        "unmatched": {
            reason: by_code[code]["starts"]
            for code, reason in starts.UNMATCHED.items()
            if code in by_code
        },
        "requests": matched["requests"],
    }
    for name, suffix in _SUFFIX.items():
        n = row[f"{name}_starts"]
        counts[f"{name}_starts"] = n
        counts[f"{name}_not_repaid_share"] = row[f"{name}_not_repaid"] / n if n else None
        for kind in ("initialization", "execution"):
            value = row[f"{name}_{kind}"]
            counts[f"{name}_{kind}_{suffix}"] = None if value is None else Decimal(value)
    return counts


def _quantiles(
    amounts: ir.Table, name: str, n: int, points: int, backend: Backend
) -> Iterable[dict[str, Any]]:
    """Order statistics: the smallest value that a share of the starts does not exceed."""
    import ibis

    if n == 0 or points <= 0:
        return []
    shares = [Fraction(index, max(points - 1, 1)) for index in range(points)]
    ranks = {share: max(1, -(-share.numerator * n // share.denominator)) for share in shares}
    column = f"{name}_difference"
    differences = amounts.filter(amounts[column].notnull()).select(column)
    ranked = differences.mutate(rank=ibis.row_number().over(order_by=column).cast("int64") + 1)
    wanted = ranked.filter(ranked["rank"].isin(sorted(set(ranks.values()))))
    values = {row["rank"]: row[column] for row in backend.collect(wanted).to_pylist()}
    unit, per_unit = RESOURCES[name]
    return [
        {
            "resource": name,
            "unit": unit,
            "share": float(share),
            "difference": float(Fraction(int(values[rank]), per_unit)),
            "exact": Decimal(values[rank]),
        }
        for share, rank in ranks.items()
    ]


def _bills(
    invocations: tuple[ir.Table, Facts],
    waited: tuple[ir.Table, Facts],
    tariffs: Sequence[Tariff],
    backend: Backend,
) -> list[dict[str, Any]]:
    """What turnaround adds: the rows that waited, billed over turnaround and over execution.

    Tables come with what is known of their columns.
    """
    (table, facts), (waited_table, facts_of_waited) = invocations, waited
    over = {kind: [_over(tariff, kind) for tariff in tariffs] for kind in _KINDS}
    by_time = [index for index, tariff in enumerate(tariffs) if tariff.time.kind != "cpu"]
    both = [over[kind][index] for kind in _KINDS for index in by_time]
    lines = bill(waited_table, both, backend=backend, facts=facts_of_waited) if both else []
    without = dict(zip(by_time, lines[: len(by_time)], strict=True))
    with_wait = dict(zip(by_time, lines[len(by_time) :], strict=True))
    records = []
    for index, line in enumerate(bill(table, over["execution"], backend=backend, facts=facts)):
        record: dict[str, Any] = {"execution_usd": line.cost_usd}
        if index in by_time:
            turned, ran = with_wait[index], without[index]
            record["waited_rows"] = turned.rows
            if turned.exact_cost is not None and ran.exact_cost is not None and line.exact_cost:
                added = turned.exact_cost - ran.exact_cost
                record["initialization_usd"] = money(added)
                record["initialization_share"] = float(added / (line.exact_cost + added))
        records.append(record)
    return records


_KINDS: Final[tuple[Literal["execution", "turnaround"], ...]] = ("execution", "turnaround")


def _over(tariff: Tariff, kind: Literal["execution", "turnaround"]) -> Tariff:
    """The tariff with another billable time; CPU time stays what it is."""
    if tariff.time.kind == "cpu":
        return tariff
    time = tariff.time.model_copy(update={"kind": kind})
    return tariff.model_copy(update={"time": time, "id": f"{tariff.id}-over-{kind}"})


def _count(table: ir.Table, backend: Backend) -> int:
    rows: int = backend.collect(table.count().name("n").as_table()).to_pylist()[0]["n"]
    return rows
