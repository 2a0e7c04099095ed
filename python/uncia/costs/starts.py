"""Cold starts, matched to the requests that each started instance then served.

Cold starts are the rows of the instances table. Without one, they are the requests that waited for
a start (``start`` cold or restored, ``initialization`` known); the start then began
``initialization`` before the handler did.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Literal

import ibis
from ibis.expr import types as ir

from uncia.backends.dtypes import type_name
from uncia.backends.integers import signed
from uncia.errors import UnciaError
from uncia.record import INSTANCE_STARTS
from uncia.tariffs.exact import integer, product
from uncia.tariffs.rows import MAX_CPU, MAX_MEMORY
from uncia.units import MAX_TIME

Match = Literal["ordered", "paper"]

MATCHED: Final = 0
UNMATCHED: Final[dict[int, str]] = {
    1: "the instance has no name",
    2: "its start or initialization is not known",
    3: "its initialization is negative or absurd",
    4: "no request of its instance",
    5: "requests of its instance only before it or after the next start",
}
"""Why no request is matched to a cold start, by code."""

DEPLOYMENT: Final = ("code", "dependencies")
"""The parts of a cold start that the published analysis counts, as importers name their spans."""

OF_INSTANCES: Final = ("instance", "started", "initialized")
OF_WAITS: Final = ("instance", "started", "start", "initialization")
OF_REQUESTS: Final = ("instance", "started")
"""The columns that cold starts are told by, in instances and in requests, and requests by."""

_TEXTS: Final = ("instance", "start")
_KEYS: Final = ("run", "platform", "instance")
_FIRST_WITHOUT_REQUESTS: Final = 4


def from_instances(table: ir.Table, by_run: bool = True) -> ir.Table:
    """Select the cold starts of an instances table.

    Args:
        table: the instances.
        by_run: whether rows of different runs are kept apart.

    Returns:
        An expression with the columns ``run`` and ``platform`` (text, never null), ``instance``,
        ``began``, ``initialization`` (ns), ``cpu`` (micro-vCPU), ``memory`` (bytes), ``reason``.

    Raises:
        UnciaError: a needed column is missing.
    """
    _require(table, OF_INSTANCES, "instances")
    began, ready = signed(table["started"]), signed(table["initialized"])
    return _starts(table, began, ready - began, by_run)


def from_requests(table: ir.Table, by_run: bool = True) -> ir.Table:
    """Select the cold starts that requests waited for, as `from_instances`.

    Raises:
        UnciaError: a needed column is missing.
    """
    _require(table, OF_WAITS, "invocations")
    cold = table.filter(
        table["start"].cast("string").isin(INSTANCE_STARTS).fill_null(False)
        | signed(table["initialization"]).notnull()
    )
    initialization = signed(cold["initialization"])
    began = signed(cold["started"]) - initialization
    return _starts(cold, began, initialization, by_run)


def from_deployment(spans: ir.Table, instances: ir.Table) -> ir.Table:
    """Select the cold starts as published: deployment of code and of dependencies alone.

    In the published trace, the duration of a cold start includes pod allocation and scheduling. An
    instance and the request that caused it identify a start; its allocation is that of the
    instance's name.

    Args:
        spans: those named `DEPLOYMENT` are the parts of starts.
        instances: have the allocations.

    Returns:
        As `from_instances`; ``platform`` is empty, as `matched` by ``paper`` ignores it.
    """
    parts = spans.filter(spans["name"].cast("string").isin(DEPLOYMENT))
    text = {name: parts[name].cast("string") for name in ("instance", "invocation")}
    parts = parts.select(**text, began=parts["start"], took=parts["end"] - parts["start"])
    each = parts.group_by(["instance", "invocation"]).aggregate(
        began=lambda t: t["began"].min(), took=lambda t: t["took"].sum().cast("int64")
    )
    sizes = instances.select(
        of=instances["instance"].cast("string"),
        cpu=_plausible(instances, "allocated_cpu", MAX_CPU),
        memory=_plausible(instances, "allocated_memory", MAX_MEMORY),
    )
    sizes = sizes.group_by("of").aggregate(
        allocated_cpu=lambda t: t["cpu"].max(), allocated_memory=lambda t: t["memory"].max()
    )
    joined = each.left_join(sizes, each["instance"] == sizes["of"])
    return _starts(joined, joined["began"], joined["took"], by_run=False)


def requests(table: ir.Table, by_run: bool = True) -> ir.Table:
    """Select the requests that ran, with run, platform, instance, ``started`` and ``execution``.

    Raises:
        UnciaError: a needed column is missing.
    """
    _require(table, (*OF_REQUESTS, "execution"), "invocations")
    execution = signed(table["execution"])
    ran = (execution >= integer(0)) & (execution <= integer(MAX_TIME))
    return table.filter(ran & table["instance"].notnull()).select(
        run=_text(table, "run", by_run),
        platform=_text(table, "platform"),
        instance=table["instance"].cast("string"),
        started=signed(table["started"]),
        execution=execution,
    )


def matched(starts: ir.Table, ran: ir.Table, match: Match) -> ir.Table:
    """Match each cold start to the requests that its instance then served.

    ``ordered``: a request belongs to the last start of its run, platform and instance that began no
    later than the request's handler. The bound is where the start began, not where it ended, as two
    different clocks measure them; a request cannot run in between. ``paper``: all
    requests of an instance of that name, on whatever platform and at whatever time, as in the
    published analysis; then several starts of one instance share the same requests.

    Args:
        starts: of `from_instances` or `from_requests`.
        ran: of `requests`.
        match: which of the two.

    Returns:
        The columns of `starts`, and ``n`` (requests matched), ``execution`` (their sum, ns,
        DECIMAL(38, 0)), ``first`` (the earliest ``started`` of them) and ``reason`` (0: matched).
    """
    # The order covers all columns, so that a second evaluation gives the same numbers.
    order = (*_KEYS, "began", "initialization", "cpu", "memory")
    numbered = starts.mutate(id=ibis.row_number().over(order_by=[starts[name] for name in order]))
    following = ibis.window(group_by=list(_KEYS), order_by=["began", "initialization", "id"])
    numbered = numbered.mutate(next=numbered["began"].lead().over(following))
    sums = _paper(numbered, ran) if match == "paper" else _ordered(numbered, ran)
    joined = numbered.left_join(sums, numbered["id"] == sums["of"])
    total, n = joined["of_instance"].fill_null(0), joined["n"].fill_null(0)
    reason = ibis.cases(
        (joined["reason"] != MATCHED, joined["reason"]),
        (total == 0, _FIRST_WITHOUT_REQUESTS),
        (n == 0, _FIRST_WITHOUT_REQUESTS + 1),
        else_=MATCHED,
    ).cast("int16")
    return joined.select(
        *(*_KEYS, "began", "initialization", "cpu", "memory"),
        n=n.cast("int64"),
        execution=joined["execution"],
        first=joined["first"],
        reason=reason,
    )


def waiting(table: ir.Table, served: ir.Table, by_run: bool = True) -> ir.Table:
    """Select the first request of each matched start, with the start's initialization.

    Args:
        table: the invocation table.
        served: of `matched`, in order.
        by_run: as for the others.
    """
    firsts = served.filter(served["reason"] == MATCHED).select(
        **{f"of_{name}": served[name] for name in _KEYS},
        of_first=served["first"],
        of_initialization=served["initialization"],
    )
    execution = signed(table["execution"])
    ran = (execution >= integer(0)) & (execution <= integer(MAX_TIME))
    rows = table.filter(ran)
    rows = rows.mutate(
        of_run=_text(rows, "run", by_run),
        of_platform=_text(rows, "platform"),
        of_instance=rows["instance"].cast("string"),
    )
    joined = rows.inner_join(
        firsts,
        [
            *(rows[f"of_{name}"] == firsts[f"of_{name}"] for name in _KEYS),
            signed(rows["started"]) == firsts["of_first"],
        ],
    )
    # Of requests that began in the same ns, the shortest; then by the row's identity.
    by = [name for name in ("execution", "invocation", "request_id") if name in table.columns]
    rank = ibis.row_number().over(
        group_by=[*(f"of_{name}" for name in _KEYS), "of_first"], order_by=by
    )
    first = joined.mutate(of_rank=rank)
    first = first.filter(first["of_rank"] == 0)
    changed = first.mutate(
        initialization=first["of_initialization"], start=ibis.literal("cold").cast("string")
    )
    return changed.select(*dict.fromkeys((*table.columns, "initialization", "start")))


def waited(table: ir.Table) -> ir.Table:
    """Select the rows that waited for a start, with a known initialization."""
    if "initialization" not in table.columns:
        return table.limit(0)
    _require(table, ("initialization",), "invocations")
    return table.filter(signed(table["initialization"]).notnull())


def _ordered(starts: ir.Table, ran: ir.Table) -> ir.Table:
    pairs = starts.inner_join(ran, [starts[name] == ran[name] for name in _KEYS]).select(
        of=starts["id"],
        usable=starts["reason"] == MATCHED,
        began=starts["began"],
        next=starts["next"],
        started=ran["started"],
        execution=ran["execution"],
    )
    inside = pairs["usable"] & (pairs["started"] >= pairs["began"])
    inside = inside & (pairs["next"].isnull() | (pairs["started"] < pairs["next"]))
    inside = inside.fill_null(False)
    return pairs.mutate(inside=inside).pipe(_served)


def _paper(starts: ir.Table, ran: ir.Table) -> ir.Table:
    # Requests are summed by instance first, as an instance may have many starts.
    of = ran.group_by("instance").aggregate(
        of_instance=lambda t: t.count(),
        n=lambda t: t.count(),
        execution=lambda t: _total(t["execution"]),
        first=lambda t: t["started"].min(),
    )
    named = starts.filter(starts["instance"].notnull())
    return named.inner_join(of, named["instance"] == of["instance"]).select(
        of=named["id"],
        of_instance=of["of_instance"],
        n=of["n"],
        execution=of["execution"],
        first=of["first"],
    )


def _served(pairs: ir.Table) -> ir.Table:
    def inside_only(t: ir.Table, name: str) -> Any:
        return ibis.ifelse(t["inside"], t[name], ibis.null("int64"))

    return pairs.group_by("of").aggregate(
        of_instance=lambda t: t.count(),
        n=lambda t: t["inside"].sum(),
        execution=lambda t: _total(inside_only(t, "execution")),
        first=lambda t: inside_only(t, "started").min(),
    )


def _total(value: Any) -> Any:
    return value.cast("decimal(18, 0)").sum().cast("decimal(38, 0)")


def resources(served: ir.Table) -> ir.Table:
    """Compute allocation x time of initialization and execution for each matched start.

    Returns:
        ``cpu_initialization``, ``cpu_execution``, ``cpu_difference`` (execution less
        initialization, micro-vCPU x ns) and the same of ``memory`` (bytes x ns), DECIMAL(38, 0);
        null where the allocation is unknown.
    """
    rows = served.filter(served["reason"] == MATCHED)
    columns: dict[str, Any] = {}
    for name in ("cpu", "memory"):
        columns[f"{name}_initialization"] = product(rows["initialization"], rows[name])
        columns[f"{name}_execution"] = product(rows["execution"], rows[name])
    amounts = rows.select(**columns)
    return amounts.mutate(
        **{
            f"{name}_difference": (
                amounts[f"{name}_execution"] - amounts[f"{name}_initialization"]
            ).cast("decimal(38, 0)")
            for name in ("cpu", "memory")
        }
    )


def _starts(table: ir.Table, began: Any, initialization: Any, by_run: bool) -> ir.Table:
    absurd = (initialization < integer(0)) | (initialization > integer(MAX_TIME))
    reason = ibis.cases(
        (table["instance"].isnull(), 1),
        ((began.isnull() | initialization.isnull()), 2),
        (absurd, 3),
        else_=MATCHED,
    ).cast("int16")
    return table.select(
        run=_text(table, "run", by_run),
        platform=_text(table, "platform"),
        instance=table["instance"].cast("string"),
        began=began,
        initialization=initialization,
        cpu=_plausible(table, "allocated_cpu", MAX_CPU),
        memory=_plausible(table, "allocated_memory", MAX_MEMORY),
        reason=reason,
    )


def _plausible(table: ir.Table, name: str, maximum: int) -> Any:
    """An allocation; null where it is missing or absurd."""
    if name not in table.columns or not table.schema()[name].is_integer():
        return ibis.null("int64")
    value = signed(table[name])
    return ibis.ifelse(
        (value >= integer(0)) & (value <= integer(maximum)), value, ibis.null("int64")
    )


def _text(table: ir.Table, name: str, named: bool = True) -> Any:
    # Rows without a run or platform get the same one, so that they match.
    if not named or name not in table.columns:
        return ibis.literal("").cast("string")
    return table[name].cast("string").fill_null("")


def obstacle(table: ir.Table, names: Sequence[str], kind: str) -> str | None:
    """What is wrong with the columns that cold starts are matched by, as a clause; None: nothing.

    Args:
        table: invocations or instances.
        names: of the columns.
        kind: which of the two it is, for the message.
    """
    schema = table.schema()
    missing = [name for name in names if name not in schema]
    if missing:
        return f"the {kind} table has no column {' and no '.join(missing)}"
    for name in names:
        dtype = schema[name]
        if name not in _TEXTS and not (dtype.is_integer() or dtype.is_null()):
            return f"the column {name} of the {kind} table is {type_name(dtype)}, not whole ns"
    return None


def _require(table: ir.Table, names: Sequence[str], kind: str) -> None:
    wrong = obstacle(table, names, kind)
    if wrong is not None:
        raise UnciaError(
            f"{wrong}, so cold starts cannot be matched to requests",
            "Times of other types become whole ns by: uncia trace import uncia.",
        )
