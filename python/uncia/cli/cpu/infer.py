"""``uncia cpu infer``: period, quota, tick rate and scheduler from a profile alone."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import typer

from uncia.cli.cost.options import ReportFile

if TYPE_CHECKING:
    from uncia.bandwidth.infer import Inferred
    from uncia.bandwidth.profiles import Profile

_UNKNOWN: Final = "cannot tell"


def register(app: typer.Typer) -> None:
    """Add the command ``infer`` to ``app``."""

    @app.command()
    def infer(
        profile: list[str] = typer.Argument(
            metavar="PROFILE...",
            help="Published profiles (JSON, also gzipped; - for standard input), or folders of"
            " uncia cpu profile.",
        ),
        unit: str = typer.Option(
            None, metavar="ns|us|ms|s", help="Of a file's times; by default the file tells."
        ),
        as_json: bool = typer.Option(
            False, "--json", help="Print JSON: an object, or a list if there are several profiles."
        ),
        report: ReportFile = None,
    ) -> None:
        """Which period, quota, tick rate and scheduler made these throttles.

        Null, or "cannot tell", where a profile does not tell. Each has a confidence from 0 to 1.
        """
        from uncia.bandwidth.infer import infer as compute

        read = [_throttled(_read(path, unit)) for path in profile]
        found = [compute(one) for one in read]
        if report is not None:
            _write(report, profile, read, found)
        rows = [
            {"profile": path, **one.as_json(), "notes": [*of.notes, *one.notes]}
            for path, of, one in zip(profile, read, found, strict=True)
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

    known = {name: name for name in NS}
    if unit is not None and unit not in known:
        raise UnciaError(f"--unit is {unit}", f"It is one of {', '.join(known)}.")
    return profiles.read(path, unit=known[unit] if unit is not None else None)


def _throttled(profile: Profile) -> Profile:
    """The profile without gaps of which the kernel itself says that they are no throttles."""
    if profile.kernel_throttled != 0 or not profile.events:
        return profile
    runs = [replace(run, events=[]) for run in profile.runs]
    return replace(profile, runs=runs, notes=[*profile.notes, "these gaps are left out"])


def _show(row: dict[str, Any]) -> None:
    sure = row["confidence"]

    def line(name: str, value: str | None, key: str) -> str:
        if value is None:
            return f"  {name:<10} {_UNKNOWN}"
        return f"  {name:<10} {value:<12} confidence {sure[key]:.2f}"

    period, quota, hz = row["period_us"], row["quota_us"], row["hz"]
    typer.echo(f"{row['profile']}: {row['runs']:,} runs, {row['gaps']:,} gaps")
    typer.echo(line("period", None if period is None else f"{period / 1e3:,.4g} ms", "period_us"))
    typer.echo(line("quota", None if quota is None else f"{quota / 1e3:,.4g} ms", "quota_us"))
    typer.echo(line("tick rate", None if hz is None else f"{hz} Hz", "hz"))
    typer.echo(line("scheduler", row["scheduler"], "scheduler"))
    if row["share"] is not None:
        typer.echo(f"  {'share':<10} {row['share']:.4f} of a CPU obtained")
    for note in row["notes"]:
        typer.echo(f"  note: {note}")


def _write(path: Path, names: list[str], read: list[Profile], found: list[Inferred]) -> None:
    from uncia.cli import pages
    from uncia.report.cpu.infer import sections

    pages.write(
        path,
        kicker="Uncia CPU bandwidth control",
        title="Settings of CPU bandwidth control, inferred",
        summary="Period, quota, tick rate and scheduler that made the throttles of these profiles,"
        " and the simulated setting that matches them best.",
        sections=sections(names, read, found),
        facts=[("Profiles", ", ".join(names))],
    )
