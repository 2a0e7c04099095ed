"""``uncia cpu predict``: durations and bills at every size, and which size to choose."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import typer

from uncia.cli import completion, pages
from uncia.cli.options import AsJson, Html
from uncia.errors import UnciaError

if TYPE_CHECKING:
    from uncia.bandwidth.predict.study import Study
    from uncia.bandwidth.presets import Preset

_MAX_ROWS: Final = 24  # of the printed table; JSON has all


def register(app: typer.Typer) -> None:
    """Add the command ``predict`` to ``app``."""

    @app.command()
    @pages.with_figures
    def predict(
        cpu_time: str = typer.Option(
            ...,
            "--cpu-time",
            metavar="DIST|FILE",
            help="CPU time: 16ms, normal(16ms, 1ms), lognormal(16ms, 2ms), uniform(14ms, 18ms),"
            " p5=14.9ms,p50=17.3ms,p95=18.1ms; or a measured table (CSV: memory_mb or vcpu,"
            " mean_ms, p5_ms...) or a run, whose rows at one vCPU or more give the CPU time.",
        ),
        like: str = typer.Option(
            "aws", "--like", metavar="aws|gcp|ibm", help="The platform to predict."
        ),
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
            help="When requests arrive: at random times; or in a closed loop, each when the one"
            " before has ended, or TIME later. Default: as the rows of a run came, or a measured"
            " table was driven, if known; else random.",
        ),
        tariff: str = typer.Option(
            None,
            "--tariff",
            "-t",
            metavar="ID",
            autocompletion=completion.tariffs,
            help="A tariff's id or file. Default: the platform's.",
        ),
        measured: Path = typer.Option(
            None, metavar="FILE.csv", help="A measured table to compare with."
        ),
        function: str = typer.Option(
            None,
            "--function",
            "-f",
            metavar="NAME",
            help="The function of a run that --cpu-time names, if it has several.",
        ),
        samples: int = typer.Option(
            2_500, min=1, max=100_000, help="Simulated invocations at each size."
        ),
        seed: int = typer.Option(0, min=0, help="Seed of the random numbers."),
        as_json: AsJson = False,
        html: Html = None,
    ) -> None:
        """Predict durations and bills at each size, and advise which size to choose.

        Because the kernel throttles in whole periods, some sizes cost more than smaller ones
        without being faster. Which ones depends on the CPU time that the function needs.
        """
        from uncia import tariffs
        from uncia.bandwidth.predict.study import study
        from uncia.bandwidth.presets import preset

        platform = preset(like)
        now = None if at is None else _size(platform, at)
        sizes = _sizes(platform, memory, vcpu) or _all(platform)
        if now is not None:
            sizes = sorted({*sizes, now})
        prediction = study(
            platform,
            cpu_time,
            sizes,
            tariffs.find(tariff or platform.tariff),
            arrivals=arrivals,
            compare=measured,
            function=function,
            samples=samples,
            seed=seed,
        )
        notes = [
            *prediction.notes(),
            *_alternatives(prediction, now),
        ]
        if html is not None:
            _write(html, prediction, notes)
        if as_json:
            typer.echo(json.dumps(prediction.rows(), indent=2, allow_nan=False))
            for note in notes:
                typer.echo(f"note: {note}", err=True)
        else:
            _print(prediction, notes)


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


def _size(platform: Preset, at: str) -> int:
    """The size that ``--at`` names.

    Raises:
        UnciaError: it is none, or several.
    """
    from uncia.bandwidth import sizes

    example = (
        "Write a size in MB, such as 1024."
        if platform.by_memory
        else "Write a share of a CPU, such as 0.5."
    )
    parse = sizes.memory if platform.by_memory else sizes.vcpu
    try:
        found = parse(at, "--at")
    except UnciaError as error:
        raise UnciaError(error.message, example) from error
    if len(found) != 1:
        raise UnciaError(f"--at: {at!r} is not one size", example)
    return found[0]


def _all(platform: Preset) -> list[int]:
    steps = platform.platform
    return list(range(steps.min_size, platform.whole + 1, steps.step))


def _alternatives(prediction: Study, now: int | None) -> list[str]:
    """Say which size would save money compared with the one in use, if any."""
    from uncia.bandwidth.predict.cpu import size_words

    if now is None:
        return []
    present = size_words(prediction.preset, now)
    choices = {choice.size: choice for choice in prediction.choices()}
    if now not in choices:
        return [f"{present}: no price, so no advice."]
    current, better = choices[now], prediction.instead().get(now)
    if better is None:
        return [
            f"At {present} a million invocations cost {current.usd:.4g} USD; no size that is as"
            " fast costs less."
        ]
    best = choices[better.size]
    speed = f"{better.faster:.1%} faster" if better.faster > 0 else f"{-better.faster:.1%} slower"
    return [
        f"Instead of {present} ({current.usd:.4g} USD a million,"
        f" {current.mean_ms:.4g} ms) take {size_words(prediction.preset, better.size)}"
        f" ({best.usd:.4g} USD, {best.mean_ms:.4g} ms): {better.saves:.1%} less, {speed}."
    ]


def _print(prediction: Study, notes: Sequence[str]) -> None:
    import pandas as pd

    from uncia.bandwidth.predict.cpu import size_words
    from uncia.cli.cost.options import emit

    rows = prediction.rows()
    indexes = list(range(len(rows)))
    if len(rows) > _MAX_ROWS:
        step = (len(rows) - 1) / (_MAX_ROWS - 1)
        indexes = sorted({round(index * step) for index in range(_MAX_ROWS)})
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
            "size": size_words(prediction.preset, prediction.predicted[index].size),
            **{title: rows[index][name] for name, title in columns.items()},
        }
        for index in indexes
    ]
    emit(pd.DataFrame(shown, dtype=object), as_json=False)
    if len(shown) < len(rows):
        typer.echo(f"{len(rows) - len(shown):,} more sizes: see --json.")
    ladder = prediction.ladder()
    if ladder:
        sizes = ", ".join(
            f"{size_words(prediction.preset, choice.size)} ({choice.mean_ms:.4g} ms,"
            f" {choice.usd:.4g} USD)"
            for choice in ladder
        )
        typer.echo(f"Worth taking, cheapest first: {sizes}.")
    for advice in prediction.steps():
        if advice.avoid is not None and advice.extra is not None:
            typer.echo(
                f"{size_words(prediction.preset, advice.avoid.size)} costs {advice.extra:.0%} more"
                f" than {size_words(prediction.preset, advice.take.size)}:"
                f" {advice.avoid.mean_ms:.4g} instead of {advice.take.mean_ms:.4g} ms."
            )
    for note in notes:
        typer.echo(note)


def _write(path: Path, prediction: Study, notes: Sequence[str]) -> None:
    from uncia.cli import pages
    from uncia.report.cpu.predict import sections

    pages.write(
        path,
        kicker="Uncia CPU bandwidth control",
        title="Durations and bills by size",
        summary=" ".join(notes),
        sections=sections(prediction),
        facts=[
            ("Platform", prediction.preset.title),
            ("CPU time", prediction.work.cpu.words),
            ("Tariff", prediction.tariff.id),
            ("Sizes", f"{len(prediction.predicted):,}"),
        ],
    )
