"""``uncia cost decompose``: what each part of a bill pays for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

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

_ALL: Final[list[str]] = []
_HEADINGS: Final = {
    "use": "use",
    "over_allocation": "over-alloc.",
    "idle": "idle",
    "unmeasured": "unmeasured",
    "initialization": "init.",
    "rounding": "rounding",
    "minimum": "minimum",
    "credit": "credit",
    "fee": "fee",
}


def register(app: typer.Typer) -> None:
    """Add the command ``decompose`` to ``app``."""

    @app.command()
    def decompose(
        table: Tables,
        tariff: TariffIds = _ALL,
        by: list[By] = typer.Option([], "--by", help="Decompose the bill of each apart."),
        fit: Fit = "allocated",
        engine: EngineName = "duckdb",
        master: Master = None,
        memory_limit: MemoryLimit = None,
        as_json: AsJson = False,
        report: ReportFile = None,
    ) -> None:
        """Split each bill: use, over-allocation, idle time, initialization, rounding, fee."""
        from uncia.backends import connect
        from uncia.costs.decompose import decompose as compute

        groups = list(dict.fromkeys(str(one) for one in by))
        with connect(engine, memory_limit=memory_limit, master=master) as backend:
            frame = compute(
                one_or_many(table),
                tariff or None,
                group_by=groups,
                fit=fit_rule(fit),
                backend=backend,
            )
        if report is not None:
            from uncia.report.cost.decompose import section

            write_report(
                report,
                "What the bill pays for",
                "Each tariff's bill of these rows, in parts that sum to it.",
                [section(frame)],
                table,
            )
        if as_json:
            emit(frame, as_json=True, notes=notes(frame))
            return
        emit(
            per_million(frame, groups),
            as_json=False,
            columns={"tariff": "tariff", **{name: name for name in groups}}
            | {"rows": "rows", "cost": "USD a million"}
            | _HEADINGS,
            notes=[*notes(frame), "Parts in USD a million rows; they sum to the bill."],
        )


def per_million(frame: pd.DataFrame, group_by: list[str]) -> pd.DataFrame:
    """Dollars a million rows by part, cheapest tariff first."""
    import pandas as pd

    def over(value: object, rows: int) -> float | None:
        return None if value is None else float(str(value)) * 1e6 / rows

    records = [
        {
            "tariff": row["tariff"],
            **{name: row[name] for name in group_by},
            "rows": row["rows"],
            "cost": over(row["cost_usd"], row["rows"]),
            **{part: over(row[f"{part}_usd"], row["rows"]) for part in _HEADINGS},
        }
        for _, row in frame.iterrows()
    ]
    records.sort(key=lambda one: (one["cost"] is None, one["cost"] or 0.0, one["tariff"]))
    names = ["tariff", *group_by, "rows", "cost", *_HEADINGS]
    return pd.DataFrame(records, columns=names, dtype=object)


def notes(frame: pd.DataFrame) -> list[str]:
    """Which bills leave rows out, and why."""
    found: dict[str, dict[str, int]] = {}
    for _, row in frame.iterrows():
        reasons = found.setdefault(row["tariff"], {})
        for reason, count in row["left_out"].items():
            reasons[reason] = reasons.get(reason, 0) + count
    alike: dict[tuple[tuple[str, int], ...], list[str]] = {}
    for tariff, reasons in found.items():
        if reasons:
            alike.setdefault(tuple(reasons.items()), []).append(tariff)
    return [
        f"Not in the bill of {', '.join(tariffs)}: "
        + ", ".join(
            f"{count:,} row{'' if count == 1 else 's'} ({reason})" for reason, count in reasons
        )
        + "."
        for reasons, tariffs in alike.items()
    ]
