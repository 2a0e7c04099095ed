"""``uncia cost inflation``: how much more tariffs bill for than was used."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import typer

from uncia.cli import pages
from uncia.cli.cost import options

if TYPE_CHECKING:
    import pandas as pd

_VCPU_S = 10**9
_GB_S = 2**30 * 10**9
_MILLION = 10**6


def register(app: typer.Typer) -> None:
    """Add the command ``inflation`` to ``app``."""

    @app.command()
    @pages.with_figures
    def inflation(
        table: options.Tables,
        tariff: options.TariffIds = options.ALL,
        by: list[options.By] = typer.Option(
            [], "--by", help="Analyse each one separately; may be repeated."
        ),
        fit: options.Fit = "allocated",
        cdf: bool = typer.Option(
            False, "--cdf", help="With --json: also the distributions over requests."
        ),
        backend_name: options.BackendName = "duckdb",
        master: options.Master = None,
        memory_limit: options.MemoryLimit = None,
        as_json: options.AsJson = False,
        html: options.Html = None,
    ) -> None:
        """Compare the vCPU and memory that each tariff bills for with what was used."""
        from uncia.cli.querying import open_backend
        from uncia.costs.distributions import inflation_cdf
        from uncia.costs.inflation import inflation as compute

        groups, rule, tariffs = options.unique(by), options.fit_rule(fit), tariff or None
        curves: pd.DataFrame | None = None
        with open_backend(backend_name, memory_limit=memory_limit, master=master) as backend:
            rows = options.results(table, backend, groups)
            frame = compute(
                rows, tariffs, fit=rule, group_by=groups, cdf=cdf and as_json, backend=backend
            )
            if html is not None and not groups:
                curves = inflation_cdf(rows, tariffs, fit=rule, backend=backend)
        if html is not None:
            from uncia.report.cost.inflation import section

            options.write_report(
                html,
                "Inflation of billable resources",
                "What each tariff bills for these rows, over what they used.",
                [section(frame, curves)],
                table,
            )
        if as_json:
            options.emit(frame, as_json=True, notes=notes(frame))
            return
        options.emit(
            readable(frame, groups),
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
            keys=1 + len(groups),
        )


def readable(frame: pd.DataFrame, group_by: Sequence[str]) -> pd.DataFrame:
    """Return the figures that people read, the cheapest tariff first."""
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
        key=lambda row: (
            *(str(row[name]) for name in group_by),
            row["cost"] is None,
            row["cost"] or 0.0,
            row["tariff"],
        )
    )
    names = ["tariff", *group_by, "rows", "vcpu_s", "vcpu", "gb_s", "memory"]
    return pd.DataFrame(records, columns=[*names, "fee", "rounding", "cost"], dtype=object)


def notes(frame: pd.DataFrame) -> list[str]:
    """Say which rows the figures leave out, and which are beyond a platform's limits."""
    from uncia.costs.rows import NOTHING_MEASURED, describe_reasons

    if not frame["rows"].sum():
        return [NOTHING_MEASURED]
    left_out: dict[str, list[str]] = {}
    for _, row in frame.iterrows():
        if row["left_out"]:
            left_out.setdefault(describe_reasons(row["left_out"]), []).append(row["tariff"])
    all_tariffs = set(frame["tariff"])
    sentences = []
    for text, tariffs in left_out.items():
        names = options.unique(tariffs)
        some = "" if set(names) == all_tariffs else f", {', '.join(names)}"
        sentences.append(f"Left out{some}: {text}.")
    beyond = frame[frame["beyond_limits"] > 0]
    for _, row in beyond.iterrows():
        sentences.append(
            f"{row['tariff']}: {row['beyond_limits']:,} of the rows are beyond what the platform"
            " allows (time or memory)."
        )
    return sentences


def _over(value: Any, unit: float) -> float | None:
    return None if value is None else float(value) / unit
