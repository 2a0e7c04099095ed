"""``uncia trace synth``: synthetic traces in the providers' raw formats."""

import json
from pathlib import Path

import typer

from uncia.cli.options import AsJson, Seed


def register(app: typer.Typer) -> None:
    """Add the command ``synth`` to ``app``."""

    @app.command("synth")
    def synth(
        kind: str = typer.Argument(
            metavar="KIND",
            help="huawei2025, huawei2023, azure2019, azure2021, ibm2026, aws-logs or gcp-logs.",
        ),
        rows: int = typer.Option(..., "--rows", metavar="N", help="Number of requests."),
        out: Path = typer.Option(..., "--out", metavar="DIR", help="A new or empty folder."),
        seed: Seed = 1,
        files: int | None = typer.Option(
            None,
            "--files",
            metavar="K",
            help="Number of days, weeks or parts. Default: depends on the rows.",
        ),
        malformed: float = typer.Option(
            0.0, "--malformed", metavar="SHARE", help="Share of malformed rows, from 0 to 1."
        ),
        gzip: bool = typer.Option(False, "--gzip", help="Compress the files."),
        parquet: bool = typer.Option(
            False, "--parquet", help="Write the table that an import would give (huawei2025)."
        ),
        jobs: int | None = typer.Option(
            None, "--jobs", metavar="J", help="Processes. Default: one for each processor."
        ),
        as_json: AsJson = False,
    ) -> None:
        """Make a synthetic trace; planted.json next to the files lists what is in them."""
        from uncia.text import plural
        from uncia.traces.synth import make

        trace = make(
            kind,
            rows,
            out,
            seed=seed,
            files=files,
            malformed=malformed,
            gzip=gzip,
            parquet=parquet,
            jobs=jobs,
        )
        if as_json:
            typer.echo(
                json.dumps(
                    {
                        "files": {file.path: file.rows for file in trace.files},
                        "natural": trace.natural,
                        "planted": trace.planted,
                    },
                    indent=2,
                )
            )
            return
        for file in trace.files:
            typer.echo(f"{out / file.path}: {plural(file.rows, 'row')}")
        for origin, counts in (("as in the trace", trace.natural), ("planted", trace.planted)):
            for name, count in counts.items():
                typer.echo(f"{origin}: {plural(count, 'row')} of {name}")
