"""``uncia cost advice``: the platform and size to choose for each function, and what to change."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

import typer

from uncia.cli.cost.options import (
    AsJson,
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
    plain,
    write_report,
)

if TYPE_CHECKING:
    import pandas as pd


_ALL: Final[list[str]] = []
_MOST_FUNCTIONS: Final = 20  # in the printed tables; JSON has all
_HEADINGS: Final = {
    "rank": "#",
    "tariff": "tariff",
    "memory_mb": "MB",
    "vcpu": "vCPU",
    "basis": "basis",
    "rows": "rows",
    "p95": "p95, ms",
    "meets": "keeps p95",
    "confidence": "confidence",
    "cost_usd_per_million": "USD a million",
    "saving": "saves",
}


class Of(StrEnum):
    """Which time a bound is of."""

    execution = "execution"
    turnaround = "turnaround"


def register(app: typer.Typer) -> None:
    """Add the command ``advice`` to ``app``."""

    @app.command()
    def advice(
        context: typer.Context,
        table: Tables,
        p95: str = typer.Option(
            None, "--p95", metavar="DURATION", help="Bound of the 95th percentile, such as 200ms."
        ),
        of: Of = typer.Option(
            Of.execution, "--of", help="The time that the bound is of, without or with starts."
        ),
        function: list[str] = typer.Option(
            _ALL, "--function", metavar="NAME", help="A function; again for more. Default: all."
        ),
        tariff: TariffIds = _ALL,
        present: str = typer.Option(
            None,
            "--present",
            metavar="ID",
            help="The tariff in use. Default: that of the platform that the rows ran on.",
        ),
        confidence: float = typer.Option(
            0.95, "--confidence", help="With which a claim must hold."
        ),
        top: int = typer.Option(
            5,
            "--top",
            min=1,
            help="How many choices, measured and estimated apart, and hints of each function are"
            " printed. JSON has all unless this is given.",
            show_default="5",
        ),
        fit: Fit = "allocated",
        engine: EngineName = "duckdb",
        master: Master = None,
        memory_limit: MemoryLimit = None,
        as_json: AsJson = False,
        report: ReportFile = None,
    ) -> None:
        """Find the cheapest platform and size of each function, and what else would save."""
        from uncia.backends import connect
        from uncia.costs.advice.frames import choice_frame, hint_frame
        from uncia.costs.advice.gather import study

        with (
            connect(engine, memory_limit=memory_limit, master=master) as backend,
            study(
                one_or_many(table),
                p95=p95,
                functions=function or None,
                tariffs=tariff or None,
                fit=fit_rule(fit),
                confidence=confidence,
                of=of.value,
                present=present,
                backend=backend,
            ) as found,
        ):
            choices, hints = choice_frame(found), hint_frame(found)
        if report is not None:
            from uncia.report.cost.advice import section

            write_report(
                report,
                "What to choose",
                "The cheapest platform and size of each function, and what else would save.",
                [section(choices, hints, None if found.bound is None else found.bound / 1e6)],
                table,
            )
        given = context.get_parameter_source("top")
        if as_json:
            named = given is not None and given.name == "COMMANDLINE"
            shown = best(choices, top) if named else choices
            said = hints.groupby("function", sort=False).head(top) if named else hints
            typer.echo(json.dumps(objects(shown, said), indent=2, allow_nan=False))
            for note in choices.attrs["notes"]:
                typer.echo(f"note: {note}", err=True)
            return
        _print(choices, hints, top, bound=p95, of=of.value)


def best(choices: pd.DataFrame, top: int) -> pd.DataFrame:
    """The first choices of each function, measured and estimated apart; and the present one."""
    usable = choices[choices["rank"].notna()]
    heads = usable.groupby(["function", "basis"], sort=False).head(top)
    present = usable[usable["present"].astype(bool)]
    kept = sorted({*heads.index, *present.index})
    return choices.loc[kept]


def records(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """Rows as they are; pandas would make a row of texts and None one of texts and NaN."""
    return [
        dict(zip(map(str, frame.columns), row, strict=True))
        for row in frame.itertuples(index=False, name=None)
    ]


def objects(choices: pd.DataFrame, hints: pd.DataFrame) -> list[dict[str, Any]]:
    """Choices and hints as a flat list, each with its ``kind``; amounts as exact text."""
    return [
        {"kind": kind} | {name: plain(value) for name, value in row.items()}
        for kind, frame in (("choice", choices), ("hint", hints))
        for row in records(frame)
    ]


def _print(
    choices: pd.DataFrame, hints: pd.DataFrame, top: int, *, bound: str | None, of: str
) -> None:
    functions = _costliest(choices)
    shown = best(choices, top)
    for function in functions[:_MOST_FUNCTIONS]:
        own = shown[shown["function"] == function]
        typer.echo(f"{function}")
        emit(_readable(own), as_json=False, columns=_columns(bound), notes=())
        _print_notes(own)
        said = hints[hints["function"] == function]
        for hint in records(said.head(top)):
            typer.echo(f"  {_sentence(hint)}")
        if len(said) > top:
            typer.echo(f"  {len(said) - top} more hints: --top {len(said)}")
        typer.echo("")
    notes = list(choices.attrs["notes"])
    if len(functions) > _MOST_FUNCTIONS:
        notes.append(
            f"{len(functions) - _MOST_FUNCTIONS:,} more functions, which cost less, are not shown:"
            " --function NAME, or --json for all."
        )
    notes.append(
        f"p95: of the {of}, with its interval. Measured choices first, then estimated ones. saves:"
        " USD a million less than at present (*)."
    )
    for note in notes:
        typer.echo(note)


def _costliest(choices: pd.DataFrame) -> list[str]:
    """The functions, the costliest at present first."""
    costs: dict[str, float] = {}
    for row in records(choices):
        cost = row["rows"] * float(row["cost_usd_per_million"] or 0)
        if row["present"] or row["function"] not in costs:  # the first is the best measured
            costs[row["function"]] = cost
    return sorted(costs, key=lambda function: (-costs[function], function))


def _columns(bound: str | None) -> dict[str, str]:
    hidden = set() if bound else {"meets", "confidence"}
    return {name: heading for name, heading in _HEADINGS.items() if name not in hidden}


def _readable(own: pd.DataFrame) -> pd.DataFrame:
    frame = own.copy()
    frame["rank"] = [
        f"{rank}{'*' if present else ''}"
        for rank, present in zip(own["rank"], own["present"], strict=True)
    ]
    frame["memory_mb"] = [_number(value) for value in own["memory_mb"]]
    frame["vcpu"] = [_number(value) for value in own["vcpu"]]
    frame["p95"] = [
        _with_interval(*values)
        for values in zip(own["p95_ms"], own["p95_low_ms"], own["p95_high_ms"], strict=True)
    ]
    frame["meets"] = [
        {True: "yes", False: "no"}.get(value, "not known") for value in own["meets_bound"]
    ]
    frame["confidence"] = [
        "-" if value is None else f"{min(value, 0.9999):.2%}" for value in own["confidence"]
    ]
    frame["saving"] = [
        _with_interval(*values)
        for values in zip(
            own["saving_vs_present"], own["saving_low"], own["saving_high"], strict=True
        )
    ]
    return frame


def _print_notes(own: pd.DataFrame) -> None:
    said: dict[str, list[str]] = {}
    for rank, note in zip(own["rank"], own["note"], strict=True):
        if note:
            said.setdefault(note, []).append(f"#{rank}")
    for note, ranks in said.items():
        typer.echo(f"  {', '.join(ranks)}: {note}")


def _with_interval(value: Any, low: Any, high: Any) -> str:
    text = _number(value)
    if low is None or high is None or (low == high == value):
        return text
    return f"{text} ({_number(low)} to {_number(high)})"


def _number(value: Any) -> str:
    from uncia.report.numbers import figure

    return "-" if value is None else figure(float(value), 4)


def _sentence(hint: Mapping[str, Any]) -> str:
    if hint["saving_usd_per_million"] is None:
        return f"{hint['hint']}: {hint['note']}"
    share = f", {hint['saving_share']:.1%}" if hint["saving_share"] is not None else ""
    about = {"at most": "at most ", "estimated": "about "}.get(hint["basis"], "")
    return (
        f"{hint['hint']}: {hint['advice']}; saves {about}"
        f"{_number(hint['saving_usd_per_million'])} USD a million{share} ({hint['tariff']}), if"
        f" {hint['assumption']} ({hint['note']})"
    )


__all__: Sequence[str] = ("best", "objects", "register")
