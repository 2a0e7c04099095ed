"""What cold starts hold against what their instances then serve, and what billing them adds.

For each cold start, the resources held by the initialization (allocation x initialization) are
compared with those held by the executions of all requests that the instance then served
(allocation x execution): Figure 4 of *Demystifying Serverless Costs on Public Platforms*
(EuroSys'26, section 2.4). A difference of zero or below means that the start alone held at least as
much as everything that it was made for.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from uncia.errors import UnciaError
from uncia.tariffs import Tariff, bill, catalogue
from uncia.tariffs.money import money
from uncia.units import GIB, MICRO_PER_VCPU, NS_PER_S

if TYPE_CHECKING:
    import pandas as pd
    from ibis.expr import types as ir

    from uncia.backends import Backend, Source
    from uncia.costs.starts import Match
    from uncia.tariffs import FitRule

RESOURCES: Final[Mapping[str, tuple[str, int]]] = {
    "cpu": ("vCPU-s", MICRO_PER_VCPU * NS_PER_S),
    "memory": ("GB-s", GIB * NS_PER_S),
}
"""What is compared: its unit, and how many micro-vCPU x ns or bytes x ns that is."""

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
    """Both frames of the analysis, from one matching.

    Attributes:
        frame: as `coldstarts` returns it.
        cdf: as `coldstart_cdf` returns it.
        notes: where cold starts and initializations come from.
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
    """Cold starts against what they served, and what billing turnaround adds to each bill.

    Args:
        source: invocations, as `uncia.tariffs.bill` takes them.
        tariffs: ids, files or tariffs; by default all that bill by request.
        instances: the instances table; by default the one beside the invocations. Without any,
            cold starts are the requests that waited for one.
        match: ``ordered`` or ``paper``, see `uncia.costs.starts.matched`.
        fit: how rows get their sizes, as in `uncia.tariffs.bill`.
        backend: where it is computed; by default a DuckDB of its own.

    Returns:
        A row for each tariff. The same in all: ``match``, ``cold_starts``, ``matched``,
        ``unmatched`` (count by reason), ``requests`` (matched to a start), and for ``cpu`` and
        ``memory`` ``<r>_starts`` (matched starts of known allocation), ``<r>_not_repaid_share``
        (part of them whose difference is zero or below), and the sums of what initializations and
        executions held (Decimal, micro-vCPU x ns, bytes x ns). Of the tariff:
        ``bills_initialization``; ``waited_rows``, the rows with an initialization that it prices;
        ``execution_usd``, the bill of all rows over their execution alone;
        ``initialization_usd``, what billing turnaround adds to it, with all rounding, whether the
        tariff does so or not (None where only CPU time is billed, or no row waited);
        ``initialization_share`` of the two together.

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
    """The distribution of execution resources less initialization resources of matched starts.

    Args:
        source, instances, match, backend: as for `coldstarts`.
        points: how many order statistics, from the smallest to the largest.

    Returns:
        For ``resource`` cpu and memory: ``share`` of the starts (0 to 1), and the smallest
        ``difference`` (vCPU-s or GB-s, see ``unit``) that so many do not exceed; ``exact`` in
        micro-vCPU x ns or bytes x ns. Values are of starts; nothing is interpolated.

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
    """Both frames at once; see `coldstarts` and `coldstart_cdf`.

    Raises:
        UnciaError: as `coldstarts`.
    """
    if match not in _MATCHES:
        raise UnciaError(f"there is no match {match!r}", "It is ordered or paper.")
    if backend is None:
        from uncia.backends import connect

        with connect() as own:
            return analysed(
                *(source, tariffs),
                instances=instances,
                match=match,
                fit=fit,
                points=points,
                backend=own,
            )
    import pandas as pd

    from uncia.costs import starts
    from uncia.tariffs.allocation import apply_fit

    table = backend.table(source)
    if instances is None and backend.has(source, "instances"):
        instances = source
    known, said = table, "the requests that waited for a start"
    if instances is not None:
        known, said = backend.table(instances, "instances"), "the instances table"
    # Where one of the two does not tell runs apart, they are not compared by it.
    by_run = "run" in table.columns and "run" in known.columns
    find = starts.from_requests if instances is None else starts.from_instances
    found, ran = find(known, by_run), starts.requests(table, by_run)
    pairs = found, ran
    if match == "paper" and instances is not None and backend.has(source, "spans"):
        spans = backend.table(source, "spans")
        if _count(spans.filter(spans["name"].cast("string").isin(starts.DEPLOYMENT)), backend):
            pairs = starts.from_deployment(spans, known), starts.requests(table, by_run=False)
            said = "the spans: deployment of code and dependencies, as published"
    served = backend.hold(starts.matched(*pairs, match))
    notes = [f"Cold starts are those of {said}."]
    facts = _facts(served, match, backend)
    amounts = starts.resources(served)
    cdf = [
        record
        for name in RESOURCES
        for record in _quantiles(amounts, name, facts[f"{name}_starts"], points, backend)
    ]
    records = []
    if tariffs is None or tariffs:
        named = catalogue.resolve(tariffs)
        table, chosen, _ = apply_fit(table, named, fit, backend)
        waited = starts.waited(table)
        if instances is not None and not _count(waited, backend):
            notes.append(
                "The requests do not say how long they waited, so each initialization is billed"
                " with the first request that the instance served."
            )
            if match != "ordered":
                served = backend.hold(starts.matched(found, ran, "ordered"))
            waited = backend.hold(starts.waiting(table, served, by_run))
        bills = _bills(table, waited, chosen, backend)
        records = [
            dict.fromkeys(COLUMNS)
            | facts
            | {"tariff": one.id, "bills_initialization": one.time.kind == "turnaround"}
            | mine
            for one, mine in zip(named, bills, strict=True)
        ]
    return ColdStarts(
        pd.DataFrame(records, columns=list(COLUMNS), dtype=object),
        pd.DataFrame(cdf, columns=list(CDF_COLUMNS)),
        tuple(notes),
    )


def _facts(served: ir.Table, match: str, backend: Backend) -> dict[str, Any]:
    """What the matching alone says."""
    from uncia.costs import starts

    by_reason = served.group_by("reason").aggregate(
        starts=lambda t: t.count().cast("int64"), requests=lambda t: t["n"].sum().cast("int64")
    )
    counted = {row["reason"]: row for row in backend.collect(by_reason).to_pylist()}
    fine = counted.get(starts.MATCHED, {"starts": 0, "requests": 0})
    amounts = starts.resources(served)
    sums: dict[str, Any] = {}
    for name in RESOURCES:
        difference = amounts[f"{name}_difference"]
        sums[f"{name}_starts"] = difference.count().cast("int64")
        sums[f"{name}_not_repaid"] = (difference <= 0).fill_null(False).sum().cast("int64")
        for kind in ("initialization", "execution"):
            known = difference.notnull()
            sums[f"{name}_{kind}"] = (
                amounts[f"{name}_{kind}"].sum(where=known).cast("decimal(38, 0)")
            )
    (row,) = backend.collect(amounts.aggregate(**sums)).to_pylist()
    facts: dict[str, Any] = {
        "match": match,
        "cold_starts": sum(one["starts"] for one in counted.values()),
        "matched": fine["starts"],
        "unmatched": {
            reason: counted[code]["starts"]
            for code, reason in starts.UNMATCHED.items()
            if code in counted
        },
        "requests": fine["requests"],
    }
    for name, suffix in _SUFFIX.items():
        n = row[f"{name}_starts"]
        facts[f"{name}_starts"] = n
        facts[f"{name}_not_repaid_share"] = row[f"{name}_not_repaid"] / n if n else None
        for kind in ("initialization", "execution"):
            value = row[f"{name}_{kind}"]
            facts[f"{name}_{kind}_{suffix}"] = None if value is None else Decimal(value)
    return facts


def _quantiles(
    amounts: ir.Table, name: str, n: int, points: int, backend: Backend
) -> Iterable[dict[str, Any]]:
    """Order statistics by rank: the smallest value that a share of the starts does not exceed."""
    import ibis

    if n == 0 or points <= 0:
        return []
    shares = [Fraction(place, max(points - 1, 1)) for place in range(points)]
    ranks = {share: max(1, -(-share.numerator * n // share.denominator)) for share in shares}
    column = f"{name}_difference"
    known = amounts.filter(amounts[column].notnull()).select(column)
    ranked = known.mutate(rank=ibis.row_number().over(order_by=column).cast("int64") + 1)
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
    table: ir.Table, waited: ir.Table, tariffs: Sequence[Tariff], backend: Backend
) -> list[dict[str, Any]]:
    """What turnaround adds: the rows that waited, billed over turnaround and over execution."""
    over = {kind: [_over(tariff, kind) for tariff in tariffs] for kind in _KINDS}
    by_time = [place for place, tariff in enumerate(tariffs) if tariff.time.kind != "cpu"]
    both = [over[kind][place] for kind in _KINDS for place in by_time]
    lines = bill(waited, both, backend=backend) if both else []
    without = dict(zip(by_time, lines[: len(by_time)], strict=True))
    with_wait = dict(zip(by_time, lines[len(by_time) :], strict=True))
    records = []
    for place, line in enumerate(bill(table, over["execution"], backend=backend)):
        record: dict[str, Any] = {"execution_usd": line.cost_usd}
        if place in by_time:
            turned, ran = with_wait[place], without[place]
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
    found: int = backend.collect(table.count().name("n").as_table()).to_pylist()[0]["n"]
    return found
