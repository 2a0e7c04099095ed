"""``uncia cost advice``: which platform and size to choose for each function, what to change."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import typer

from uncia.cli import pages
from uncia.cli.cost import options
from uncia.text import plural

if TYPE_CHECKING:
    import pandas as pd


_MAX_FUNCTIONS: Final = 20  # in the printed tables; JSON has all
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


def register(app: typer.Typer) -> None:
    """Add the command ``advice`` to ``app``."""

    @app.command()
    @pages.with_figures
    def advice(
        context: typer.Context,
        table: options.Tables,
        p95: options.P95 = None,
        of: options.BoundedTime = options.Time.execution,
        function: options.Functions = options.ALL,
        tariff: options.TariffIds = options.ALL,
        present: options.PresentTariff = None,
        confidence: options.Confidence = 0.95,
        top: int = typer.Option(
            5,
            "--top",
            min=1,
            help="For each function, print at most so many measured choices, estimated choices and"
            " hints. JSON has all unless this is given.",
            show_default="5",
        ),
        fit: options.Fit = "allocated",
        backend_name: options.BackendName = "duckdb",
        master: options.Master = None,
        memory_limit: options.MemoryLimit = None,
        as_json: options.AsJson = False,
        html: options.Html = None,
    ) -> None:
        """Find the cheapest platform and size of each function, and what else would save."""
        from uncia.cli.querying import open_backend
        from uncia.costs.advice.frames import choice_frame, hint_frame, matrix_frame
        from uncia.costs.advice.gather import study

        with (
            open_backend(backend_name, memory_limit=memory_limit, master=master) as backend,
            study(
                table,
                p95=p95,
                functions=function or None,
                tariffs=tariff or None,
                fit=options.fit_rule(fit),
                confidence=confidence,
                of=of.value,
                present=present,
                backend=backend,
            ) as advised,
        ):
            choices, hints = choice_frame(advised), hint_frame(advised)
            cells = None if html is None else matrix_frame(advised)
        if html is not None and cells is not None:
            from uncia.report.cost.advice import section
            from uncia.report.cost.matrix import section as matrix_section

            options.write_report(
                html,
                "What to choose",
                "The cheapest platform and size of each function, and what else would save.",
                [section(choices, hints), matrix_section(cells, headings=False)],
                table,
            )
        if as_json:
            source = context.get_parameter_source("top")
            if source is not None and source.name == "COMMANDLINE":
                choices = best(choices, top)
                hints = hints.groupby("function", sort=False).head(top)
            typer.echo(json.dumps(objects(choices, hints), indent=2, allow_nan=False))
            for note in choices.attrs["notes"]:
                typer.echo(f"note: {note}", err=True)
            return
        _print(choices, hints, top, bound=p95, of=of.value)


def best(choices: pd.DataFrame, top: int) -> pd.DataFrame:
    """Select the first choices of each function, measured and estimated, and the present one."""
    usable = choices[choices["rank"].notna()]
    heads = usable.groupby(["function", "basis"], sort=False).head(top)
    present = usable[usable["present"].astype(bool)]
    return choices.loc[sorted({*heads.index, *present.index})]


def records(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """Return the rows as dicts; with pandas' own methods, None among texts would become NaN."""
    return [
        dict(zip(map(str, frame.columns), row, strict=True))
        for row in frame.itertuples(index=False, name=None)
    ]


def objects(choices: pd.DataFrame, hints: pd.DataFrame) -> list[dict[str, Any]]:
    """List choices and hints as JSON objects, each with its ``kind``; amounts are exact text."""
    return [
        {"kind": kind} | {name: options.plain(value) for name, value in row.items()}
        for kind, frame in (("choice", choices), ("hint", hints))
        for row in records(frame)
    ]


def _print(
    choices: pd.DataFrame, hints: pd.DataFrame, top: int, *, bound: str | None, of: str
) -> None:
    from uncia.report.cost.headline import headlines

    functions = _costliest(choices)
    shown, sentences = best(choices, top), headlines(choices)
    for function in functions[:_MAX_FUNCTIONS]:
        function_choices = shown[shown["function"] == function]
        now = f"nothing can be chosen. Now: {choices.attrs['present'][function]}."
        typer.echo(f"{function}: {sentences.get(function, now)}")
        options.emit(_readable(function_choices), as_json=False, columns=_columns(bound))
        _print_notes(function_choices)
        function_hints = hints[hints["function"] == function]
        alike = _alike(records(function_hints))
        for group in alike[:top]:
            typer.echo(f"  {_sentence(group)}")
        if len(alike) > top:
            typer.echo(f"  {plural(len(alike) - top, 'more hint')}: --top {len(alike)}")
        typer.echo("")
    notes = list(choices.attrs["notes"])
    if len(functions) > _MAX_FUNCTIONS:
        notes.append(
            f"{len(functions) - _MAX_FUNCTIONS:,} more functions, which cost less, are not shown:"
            " --function NAME, or --json for all."
        )
    # Without a tariff in use each tariff's own price of the present size stands in for it.
    present = "at present (*)"
    if not choices["present"].astype(bool).any():
        present = "at present, as billed now"
        if not choices.attrs["in_use_known"]:
            present = "at the present size under the same tariff"
    notes.append(
        f"p95: of the {of}, with its interval. Measured choices first, then estimated ones. saves:"
        f" USD a million less than {present}."
    )
    for note in notes:
        typer.echo(note)


def _costliest(choices: pd.DataFrame) -> list[str]:
    """List the functions, the costliest at present first."""
    costs: dict[str, float] = {}
    for row in records(choices):
        cost = row["rows"] * float(row["cost_usd_per_million"] or 0)
        if row["present"] or row["function"] not in costs:  # the first row is the best measured
            costs[row["function"]] = cost
    return sorted(costs, key=lambda function: (-costs[function], function))


def _columns(bound: str | None) -> dict[str, str]:
    hidden = set() if bound else {"meets", "confidence"}
    return {name: heading for name, heading in _HEADINGS.items() if name not in hidden}


def _readable(choices: pd.DataFrame) -> pd.DataFrame:
    frame = choices.copy()
    frame["rank"] = [
        f"{rank}{'*' if present else ''}"
        for rank, present in zip(choices["rank"], choices["present"], strict=True)
    ]
    frame["memory_mb"] = [
        "-" if value is None else f"{value:,.10g}" for value in choices["memory_mb"]
    ]
    frame["vcpu"] = [_number(value) for value in choices["vcpu"]]
    frame["p95"] = [
        _with_interval(*values)
        for values in zip(
            choices["p95_ms"], choices["p95_low_ms"], choices["p95_high_ms"], strict=True
        )
    ]
    frame["meets"] = [
        {True: "yes", False: "no"}.get(value, "not known") for value in choices["meets_bound"]
    ]
    frame["confidence"] = [
        "-" if value is None else f"{min(value, 0.9999):.2%}" for value in choices["confidence"]
    ]
    frame["saving"] = [
        _with_interval(*values)
        for values in zip(
            choices["saving_vs_present"], choices["saving_low"], choices["saving_high"], strict=True
        )
    ]
    return frame


def _print_notes(choices: pd.DataFrame) -> None:
    ranks: dict[str, list[str]] = {}
    for rank, note in zip(choices["rank"], choices["note"], strict=True):
        if note:
            ranks.setdefault(note, []).append(f"#{rank}")
    for note, numbers in ranks.items():
        typer.echo(f"  {', '.join(numbers)}: {note}")


def _with_interval(value: Any, low: Any, high: Any) -> str:
    text = _number(value)
    if low is None or high is None or (low == high == value):
        return text
    return f"{text} ({_number(low)} to {_number(high)})"


def _number(value: Any) -> str:
    from uncia.report.numbers import figure

    return "-" if value is None else figure(float(value), 4)


def _alike(hints: Sequence[Mapping[str, Any]]) -> list[list[Mapping[str, Any]]]:
    """Group the hints that say the same of several tariffs, each group where its first was."""
    groups: dict[tuple[object, ...], list[Mapping[str, Any]]] = {}
    for hint in hints:
        judged = hint["saving_usd_per_million"] is not None
        same = (hint["hint"], hint["advice"], hint["assumption"], judged or hint["note"])
        groups.setdefault(same, []).append(hint)
    return list(groups.values())


def _sentence(alike: Sequence[Mapping[str, Any]]) -> str:
    hint, *others = alike
    if hint["saving_usd_per_million"] is None:
        return f"{hint['hint']}: {hint['note']}"
    share = f", {hint['saving_share']:.1%}" if hint["saving_share"] is not None else ""
    qualifier = {"at most": "at most ", "estimated": "about "}.get(hint["basis"], "")
    text = (
        f"{hint['hint']}: {hint['advice']}; saves {qualifier}"
        f"{_number(hint['saving_usd_per_million'])} USD a million{share} ({hint['tariff']}), if"
        f" {hint['assumption']} ({hint['note']})"
    )
    if others:
        more = (f"{_number(o['saving_usd_per_million'])} ({o['tariff']})" for o in others)
        text += f"; likewise {', '.join(more)}"
    return text
