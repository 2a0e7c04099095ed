"""``uncia cost decompose``: what each part of a bill pays for."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

import typer

from uncia.cli import pages
from uncia.cli.cost import options

if TYPE_CHECKING:
    import pandas as pd

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
_TIME_HEADINGS: Final = {
    "cpu": "on a CPU",
    "throttled": "throttled",
    "cpu_wait": "waiting for a CPU",
    "blocked": "blocked",
    "unmeasured": "unmeasured",
    "rest": "rest",
}


def register(app: typer.Typer) -> None:
    """Add the command ``decompose`` to ``app``."""

    @app.command()
    @pages.with_figures
    def decompose(
        table: options.Tables,
        tariff: options.TariffIds = options.ALL,
        by: list[options.By] = typer.Option(
            [], "--by", help="Decompose the bill of each one separately; may be repeated."
        ),
        by_time: bool = typer.Option(
            False,
            "--time",
            help="Split by what executions did: on a CPU, throttled, waiting for a CPU, blocked.",
        ),
        fit: options.Fit = "allocated",
        backend_name: options.BackendName = "duckdb",
        master: options.Master = None,
        memory_limit: options.MemoryLimit = None,
        as_json: options.AsJson = False,
        html: options.Html = None,
    ) -> None:
        """Split each bill: use, over-allocation, idle time, initialization, rounding, fee."""
        from uncia.cli.querying import open_backend
        from uncia.costs.decompose import decompose as compute

        groups, rule = options.unique(by), options.fit_rule(fit)
        with open_backend(backend_name, memory_limit=memory_limit, master=master) as backend:
            rows = options.results(table, backend, groups)
            frame = compute(
                rows, tariff or None, group_by=groups, fit=rule, backend=backend, by_time=by_time
            )
        headings = _TIME_HEADINGS if by_time else _HEADINGS
        if html is not None:
            from uncia.report.cost.decompose import section

            options.write_report(
                html,
                "What the bill pays for",
                "Each tariff's bill of these rows, in parts that sum to it.",
                [section(frame, by_time=by_time)],
                table,
            )
        if as_json:
            options.emit(frame, as_json=True, notes=notes(frame))
            return
        options.emit(
            per_million(frame, groups, list(headings)),
            as_json=False,
            columns={"tariff": "tariff", **{name: name for name in groups}}
            | {"rows": "rows", "cost": "USD a million"}
            | headings,
            notes=[*notes(frame), "Parts in USD a million rows; they sum to the bill."],
            keys=1 + len(groups),
        )


def per_million(frame: pd.DataFrame, group_by: list[str], parts: list[str]) -> pd.DataFrame:
    """Return the parts in USD a million rows, cheapest tariff first."""
    import pandas as pd

    def over(value: object, rows: int) -> float | None:
        return None if value is None else float(str(value)) * 1e6 / rows

    records = [
        {
            "tariff": row["tariff"],
            **{name: row[name] for name in group_by},
            "rows": row["rows"],
            "cost": over(row["cost_usd"], row["rows"]),
            **{part: over(row[f"{part}_usd"], row["rows"]) for part in parts},
        }
        for _, row in frame.iterrows()
    ]
    records.sort(key=lambda row: (row["cost"] is None, row["cost"] or 0.0, row["tariff"]))
    names = ["tariff", *group_by, "rows", "cost", *parts]
    return pd.DataFrame(records, columns=names, dtype=object)


def notes(frame: pd.DataFrame) -> list[str]:
    """Say which bills leave rows out, and why."""
    left_out: dict[str, Counter[str]] = {}
    for _, row in frame.iterrows():
        left_out.setdefault(row["tariff"], Counter()).update(row["left_out"])
    return options.unpriced_notes(left_out.items())
