"""``uncia cost inflation``: what tariffs bill for, over what was used."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import typer

from uncia.cli.cost.options import (
    AsJson,
    By,
    EngineName,
    Fit,
    Master,
    MemoryLimit,
    ReportFile,
    Tables,
    TariffIds,
    emit,
    fit_rule,
    one_or_many,
    write_report,
)

if TYPE_CHECKING:
    import pandas as pd

_VCPU_S = 10**9
_GB_S = 2**30 * 10**9
_MILLION = 10**6


def register(app: typer.Typer) -> None:
    """Add the command ``inflation`` to ``app``."""

    @app.command()
    def inflation(
        table: Tables,
        tariff: TariffIds = [],  # noqa: B006
        by: list[By] = typer.Option([], "--by", help="Tell these apart."),
        fit: Fit = "allocated",
        cdf: bool = typer.Option(
            False, "--cdf", help="With --json: also the distributions over requests."
        ),
        engine: EngineName = "duckdb",
        master: Master = None,
        memory_limit: MemoryLimit = None,
        as_json: AsJson = False,
        report: ReportFile = None,
    ) -> None:
        """How many times the use is billed for: vCPU and memory, under each tariff."""
        from uncia.backends import connect
        from uncia.costs.distributions import inflation_cdf
        from uncia.costs.inflation import inflation as compute

        groups = list(dict.fromkeys(str(one) for one in by))
        source, rule, chosen = one_or_many(table), fit_rule(fit), tariff or None
        curves: pd.DataFrame | None = None
        with connect(engine, memory_limit=memory_limit, master=master) as backend:
            frame = compute(
                source, chosen, fit=rule, group_by=groups, cdf=cdf and as_json, backend=backend
            )
            if report is not None and not groups:
                curves = inflation_cdf(source, chosen, fit=rule, backend=backend)
        if report is not None:
            from uncia.report.cost.inflation import section

            write_report(
                report,
                "Inflation of billable resources",
                "What each tariff bills for these rows, over what they used.",
                [section(frame, curves)],
                table,
            )
        if as_json:
            emit(frame, as_json=True, notes=notes(frame))
            return
        emit(
            shown(frame, groups),
            as_json=False,
            columns={"tariff": "tariff", **{name: name for name in groups}}
            | {
                "rows": "rows",
                "vcpu_s": "vCPU-s",
                "vcpu": "x used",
                "gb_s": "GB-s",
                "memory": "x used ",
                "fee": "fee, %",
                "rounding": "rounding, %",
                "cost": "USD a million",
            },
            notes=notes(frame),
        )


def shown(frame: pd.DataFrame, group_by: Sequence[str]) -> pd.DataFrame:
    """The figures that people read, the cheapest tariff first."""
    import pandas as pd

    records: list[dict[str, Any]] = []
    for _, row in frame.iterrows():
        cost, rows = row["cost_usd"], row["rows"]

        def share(part: Any, of: Any = cost) -> float | None:
            return None if part is None or not of else float(part) / float(of) * 100

        records.append(
            {
                "tariff": row["tariff"],
                **{name: row[name] for name in group_by},
                "rows": rows,
                "vcpu_s": _over(row["billable_vcpu_ns"], _VCPU_S),
                "vcpu": row["vcpu"],
                "gb_s": _over(row["billable_byte_ns"], _GB_S),
                "memory": row["memory"],
                "fee": share(row["fee_usd"]),
                "rounding": share(row["rounding_usd"]),
                "cost": _over(cost, rows / _MILLION) if rows else None,
            }
        )
    records.sort(
        key=lambda one: (
            *(str(one[name]) for name in group_by),
            one["cost"] is None,
            one["cost"] or 0.0,
            one["tariff"],
        )
    )
    names = ["tariff", *group_by, "rows", "vcpu_s", "vcpu", "gb_s", "memory"]
    return pd.DataFrame(records, columns=[*names, "fee", "rounding", "cost"], dtype=object)


def notes(frame: pd.DataFrame) -> list[str]:
    """What the figures leave out."""
    from uncia.costs.rows import NOTHING_MEASURED, said

    if not frame["rows"].sum():
        return [NOTHING_MEASURED]
    found: dict[str, list[str]] = {}
    for _, row in frame.iterrows():
        if row["left_out"]:
            found.setdefault(said(row["left_out"]), []).append(row["tariff"])
    every = set(frame["tariff"])
    sentences = []
    for words, tariffs in found.items():
        names = list(dict.fromkeys(tariffs))
        of = "" if set(names) == every else f"{', '.join(names)}: "
        sentences.append(f"Left out, {of}{words}." if of else f"Left out: {words}.")
    beyond = frame[frame["beyond_limits"] > 0]
    for _, row in beyond.iterrows():
        sentences.append(
            f"{row['tariff']}: {row['beyond_limits']:,} of the rows are beyond what the platform"
            " allows (time or memory)."
        )
    return sentences


def _over(value: Any, unit: float) -> float | None:
    return None if value is None else float(value) / unit
