"""``uncia cpu infer``: period, quota, tick rate and scheduler, inferred from a profile."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import typer

from uncia.cli import pages
from uncia.cli.options import Html
from uncia.text import plural

if TYPE_CHECKING:
    from uncia.bandwidth.infer import Inferred
    from uncia.bandwidth.profiles import Profile

_UNKNOWN: Final = "cannot tell"


def register(app: typer.Typer) -> None:
    """Add the command ``infer`` to ``app``."""

    @app.command()
    @pages.with_figures
    def infer(
        profile: list[str] = typer.Argument(
            metavar="PROFILE...",
            help="Published profiles (JSON, also gzipped; - for standard input), or folders of"
            " uncia cpu profile.",
        ),
        unit: str = typer.Option(
            None, metavar="ns|us|ms|s", help="Unit of a file's times. Default: read from the file."
        ),
        as_json: bool = typer.Option(
            False, "--json", help="Print JSON: an object, or a list if there are several profiles."
        ),
        html: Html = None,
    ) -> None:
        """Infer the period, quota, tick rate and scheduler behind the throttles of a profile.

        Each has a confidence from 0 to 1; it is null, or "cannot tell", where the profile does not
        determine it.
        """
        from uncia.bandwidth.infer import infer as compute

        profiles = [_throttled(_read(path, unit)) for path in profile]
        results = [compute(item) for item in profiles]
        if html is not None:
            _write(html, profile, profiles, results)
        rows = [
            {"profile": path, **result.as_json(), "notes": [*item.notes, *result.notes]}
            for path, item, result in zip(profile, profiles, results, strict=True)
        ]
        if as_json:
            typer.echo(json.dumps(rows if len(rows) > 1 else rows[0], indent=2, allow_nan=False))
            return
        for row in rows:
            _show(row)


def _read(path: str, unit: str | None) -> Profile:
    from uncia.bandwidth import profiles
    from uncia.bandwidth.profiles import NS
    from uncia.errors import UnciaError

    units = {name: name for name in NS}
    if unit is not None and unit not in units:
        raise UnciaError(f"--unit: {unit} is no unit", f"Write one of {', '.join(units)}.")
    return profiles.read(path, unit=units[unit] if unit is not None else None)


def _throttled(profile: Profile) -> Profile:
    """Drop all gaps of a profile whose kernel counted no throttle: they have another cause."""
    if profile.kernel_throttled != 0 or not profile.events:
        return profile
    runs = [replace(run, events=[]) for run in profile.runs]
    return replace(profile, runs=runs, notes=[*profile.notes, "these gaps are left out"])


def _show(row: dict[str, Any]) -> None:
    confidence = row["confidence"]

    def line(name: str, value: str | None, key: str) -> str:
        if value is None:
            return f"  {name:<10} {_UNKNOWN}"
        return f"  {name:<10} {value:<12} confidence {confidence[key]:.2f}"

    period, quota, hz = row["period_us"], row["quota_us"], row["hz"]
    typer.echo(f"{row['profile']}: {plural(row['runs'], 'run')}, {plural(row['gaps'], 'gap')}")
    typer.echo(line("period", None if period is None else f"{period / 1e3:,.4g} ms", "period_us"))
    typer.echo(line("quota", None if quota is None else f"{quota / 1e3:,.4g} ms", "quota_us"))
    typer.echo(line("tick rate", None if hz is None else f"{hz} Hz", "hz"))
    typer.echo(line("scheduler", row["scheduler"], "scheduler"))
    if row["share"] is not None:
        typer.echo(f"  {'share':<10} {row['share']:.4f} of a CPU obtained")
    for note in row["notes"]:
        typer.echo(f"  note: {note}")


def _write(path: Path, names: list[str], profiles: list[Profile], results: list[Inferred]) -> None:
    from uncia.cli import pages
    from uncia.report.cpu.infer import sections

    pages.write(
        path,
        kicker="Uncia CPU bandwidth control",
        title="Settings of CPU bandwidth control, inferred",
        summary="Period, quota, tick rate and scheduler that made the throttles of these profiles,"
        " and the simulated setting that matches them best.",
        sections=sections(names, profiles, results),
        facts=[("Profiles", ", ".join(names))],
    )
