"""``uncia cpu predict``: durations and bills at every size, and which size to take."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import typer

from uncia.errors import UnciaError

if TYPE_CHECKING:
    from uncia.bandwidth.predict.study import Study
    from uncia.bandwidth.presets import Preset
    from uncia.tariffs import Tariff

_SHOWN: Final = 24


def register(app: typer.Typer) -> None:
    """Add the command ``predict`` to ``app``."""

    @app.command()
    def predict(
        cpu_time: str = typer.Option(
            ...,
            "--cpu-time",
            metavar="DIST|FILE",
            help="CPU time: 16ms, normal(16ms, 1ms), lognormal(16ms, 2ms), uniform(14ms, 18ms),"
            " p5=14.9ms,p50=17.3ms,p95=18.1ms; or a measured table (CSV: memory_mb or vcpu,"
            " mean_ms, p5_ms...) or a run, of which the rows at one vCPU and more tell it.",
        ),
        like: str = typer.Option("aws", "--like", metavar="aws|gcp|ibm", help="The platform."),
        memory: str = typer.Option(
            None, metavar="RANGE", help="Memory sizes in MB: 128..1769, 128..1769/64, 128,512."
        ),
        vcpu: str = typer.Option(
            None, metavar="RANGE", help="Shares of a CPU: 0.08..1, 0.25,0.5 (gcp, ibm)."
        ),
        at: str = typer.Option(
            None, "--at", metavar="SIZE", help="The size in use now, such as 1024 or 0.5."
        ),
        arrivals: str = typer.Option(
            None,
            metavar="random|closed|closed:TIME",
            help="When requests come: at any time, or one so long after the end of the last."
            " Default: as a measured table was driven, if that is known; else random.",
        ),
        tariff: str = typer.Option(
            None, "--tariff", "-t", metavar="ID", help="What bills. Default: the platform's."
        ),
        measured: Path = typer.Option(
            None, metavar="FILE.csv", help="A measured table to compare with."
        ),
        samples: int = typer.Option(2_500, min=1, max=100_000, help="Invocations at each size."),
        seed: int = typer.Option(0, min=0, help="Of the random numbers."),
        as_json: bool = typer.Option(False, "--json", help="Print JSON, one object a size."),
        report: Path = typer.Option(
            None, metavar="FILE.html", help="Also write a page with charts and tables (Figure 10)."
        ),
    ) -> None:
        """Predict durations and bills at each size, and advise which size to take.

        The kernel holds a function back in steps: some sizes cost more than others and are no
        faster. The CPU time that a function needs tells at which sizes it is so.
        """
        from uncia.bandwidth.predict.study import study
        from uncia.bandwidth.presets import preset

        platform = preset(like)
        chosen = _tariff(tariff or platform.tariff)
        now = _sizes(
            platform, at if platform.by_memory else None, None if platform.by_memory else at
        )
        if at is not None and len(now) != 1:
            raise UnciaError(f"--at: {at!r} is not one size", "Write 1024, or 0.5.")
        sizes = _sizes(platform, memory, vcpu) or _all(platform)
        if at is not None:
            sizes = sorted({*sizes, *now})
        found = study(
            platform,
            cpu_time,
            sizes,
            chosen,
            arrivals=arrivals,
            compare=measured,
            samples=samples,
            seed=seed,
        )
        said = [*found.notes(), *_of_now(found, now[0] if at is not None else None)]
        if report is not None:
            _write(report, found, said)
        if as_json:
            typer.echo(json.dumps(found.rows(), indent=2, allow_nan=False))
            for note in said:
                typer.echo(f"note: {note}", err=True)
        else:
            _print(found, said)


def _tariff(name: str) -> Tariff:
    from uncia import tariffs

    return tariffs.find(name)


def _sizes(platform: Preset, memory: str | None, vcpu: str | None) -> list[int]:
    from uncia.bandwidth import sizes

    if platform.by_memory and vcpu is not None:
        raise UnciaError(
            f"--vcpu: {platform.title} is sized by memory", "Write --memory 128..1769."
        )
    if not platform.by_memory and memory is not None:
        raise UnciaError(f"--memory: {platform.title} is sized by vCPU", "Write --vcpu 0.08..1.")
    if memory is not None:
        return sizes.memory(memory)
    return [] if vcpu is None else sizes.vcpu(vcpu)


def _all(platform: Preset) -> list[int]:
    own = platform.platform
    return list(range(own.least, platform.whole + 1, own.step))


def _of_now(found: Study, now: int | None) -> list[str]:
    """What could be saved against the size in use."""
    from uncia.bandwidth.predict.cpu import size_words

    if now is None:
        return []
    choices = {one.size: one for one in found.choices()}
    if now not in choices:
        return [f"{size_words(found.preset, now)}: no price, so no advice."]
    own, other = choices[now], found.instead().get(now)
    if other is None:
        return [
            f"At {size_words(found.preset, now)} a million invocations cost {own.usd:.4g} USD; no"
            " size that is as fast costs less."
        ]
    best = choices[other.size]
    speed = f"{other.faster:.1%} faster" if other.faster > 0 else f"{-other.faster:.1%} slower"
    return [
        f"Instead of {size_words(found.preset, now)} ({own.usd:.4g} USD a million,"
        f" {own.mean_ms:.4g} ms) take {size_words(found.preset, other.size)} ({best.usd:.4g} USD,"
        f" {best.mean_ms:.4g} ms): {other.saves:.1%} less, {speed}."
    ]


def _print(found: Study, said: Sequence[str]) -> None:
    import pandas as pd

    from uncia.bandwidth.predict.cpu import size_words
    from uncia.cli.cost.options import emit

    rows = found.rows()
    places = list(range(len(rows)))
    if len(rows) > _SHOWN:
        places = sorted({round(place * (len(rows) - 1) / (_SHOWN - 1)) for place in range(_SHOWN)})
    columns = {
        "mean_ms": "mean, ms",
        "p5_ms": "p5",
        "p50_ms": "p50",
        "p95_ms": "p95",
        "reciprocal_ms": "reciprocal",
        "equation2_ms": "Eq. (2)",
        "measured_mean_ms": "measured",
        "cost_usd_per_million": "USD a million",
        "instead": "take instead",
        "instead_saves": "saves",
    }
    shown: list[dict[str, Any]] = [
        {
            "size": size_words(found.preset, found.predicted[place].size),
            **{title: rows[place][name] for name, title in columns.items()},
        }
        for place in places
    ]
    emit(pd.DataFrame(shown, dtype=object), as_json=False)
    if len(shown) < len(rows):
        typer.echo(f"{len(rows) - len(shown):,} more sizes: see --json.")
    ladder = found.ladder()
    if ladder:
        words = ", ".join(
            f"{size_words(found.preset, one.size)} ({one.mean_ms:.4g} ms, {one.usd:.4g} USD)"
            for one in ladder
        )
        typer.echo(f"Worth taking, cheapest first: {words}.")
    for step in found.steps():
        if step.avoid is not None and step.extra is not None:
            typer.echo(
                f"{size_words(found.preset, step.avoid.size)} costs {step.extra:.0%} more than"
                f" {size_words(found.preset, step.take.size)}: {step.avoid.mean_ms:.4g} instead of"
                f" {step.take.mean_ms:.4g} ms."
            )
    for note in said:
        typer.echo(note)


def _write(path: Path, found: Study, said: Sequence[str]) -> None:
    from uncia.cli import pages
    from uncia.report.cpu.predict import sections

    pages.write(
        path,
        kicker="Uncia CPU bandwidth control",
        title="Durations and bills by size",
        summary=" ".join(said),
        sections=sections(found),
        facts=[
            ("Platform", found.preset.title),
            ("CPU time", found.work.cpu.words),
            ("Tariff", found.tariff.id),
            ("Sizes", f"{len(found.predicted):,}"),
        ],
    )
