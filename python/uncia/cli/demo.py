"""``uncia demo``: the experiment that ships with uncia, on the embedded platform."""

from __future__ import annotations

from pathlib import Path

import typer

from uncia.cli.options import OtherSeed, Quiet


def register(app: typer.Typer) -> None:
    """Add the command ``demo`` to ``app``."""

    @app.command()
    def demo(
        out: Path | None = typer.Option(
            None,
            help="The run's folder; an earlier demo in it is replaced. "
            "Default: results/demo, with --quick results/demo-quick.",
            show_default=False,
        ),
        quick: bool = typer.Option(
            False, "--quick", help="Measure less, in 30 seconds: enough for a first look."
        ),
        seed: OtherSeed = None,
        quiet: Quiet = False,
    ) -> None:
        """Measure a few real functions on this machine and write a report, in 90 seconds."""
        from uncia.cli.run import finish, perform
        from uncia.paths import data

        name = "demo-quick" if quick else "demo"
        outcome = perform(
            data("experiments") / f"{name}.yaml",
            out=Path("results") / name if out is None else out,
            seed=seed,
            overwrite=True,
            quiet=quiet,
        )
        assert outcome is not None, "only a dry run has no outcome"
        finish(outcome, allow_failures=False)
