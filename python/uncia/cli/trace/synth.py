"""``uncia trace synth``: synthetic traces in the providers' raw formats."""

import json
from pathlib import Path

import typer


def register(trace: typer.Typer) -> None:
    """Add the command to ``trace``."""

    @trace.command("synth")
    def synth(
        kind: str = typer.Argument(
            metavar="KIND",
            help="huawei2025, huawei2023, azure2019, azure2021, ibm2026, aws-logs or gcp-logs.",
        ),
        rows: int = typer.Option(..., "--rows", metavar="N", help="How many requests."),
        out: Path = typer.Option(..., "--out", metavar="DIR", help="A new or empty folder."),
        seed: int = typer.Option(1, "--seed", metavar="S", help="What everything is drawn from."),
        files: int | None = typer.Option(
            None, "--files", metavar="K", help="Days, weeks or parts; by default as rows suit."
        ),
        malformed: float = typer.Option(
            0.0, "--malformed", metavar="SHARE", help="Share of the rows to spoil, from 0 to 1."
        ),
        gzip: bool = typer.Option(False, "--gzip", help="Compress the files."),
        parquet: bool = typer.Option(
            False, "--parquet", help="Write the table that an import would give (huawei2025)."
        ),
        jobs: int | None = typer.Option(
            None, "--jobs", metavar="J", help="Processes; by default one for each processor."
        ),
        as_json: bool = typer.Option(False, "--json", help="Print what was written as JSON."),
    ) -> None:
        """Make a synthetic trace; planted.json beside the files tells what is in them."""
        from uncia.traces.base import plural
        from uncia.traces.synth import make

        made = make(
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
                        "files": {file.path: file.rows for file in made.files},
                        "natural": made.natural,
                        "planted": made.planted,
                    },
                    indent=2,
                )
            )
            return
        for file in made.files:
            typer.echo(f"{out / file.path}: {plural(file.rows, 'row')}")
        for what, counts in (("as in the trace", made.natural), ("planted", made.planted)):
            for name, count in counts.items():
                typer.echo(f"{what}: {plural(count, 'row')} of {name}")
