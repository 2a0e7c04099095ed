"""Options that commands share: one name and one meaning each."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, TypeAlias

import typer

AsJson: TypeAlias = Annotated[
    bool, typer.Option("--json", help="Print JSON, with exact amounts as text.")
]
Html: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        "--html",
        metavar="FILE",
        help="Also write an HTML page with tables and charts.",
        show_default=False,
    ),
]
RunFolder: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        "--out", metavar="DIR", help="The run's folder. Default: results/ID.", show_default=False
    ),
]
Overwrite: TypeAlias = Annotated[
    bool, typer.Option("--overwrite", help="Replace what an earlier run left in --out.")
]
Seed: TypeAlias = Annotated[
    int,
    typer.Option("--seed", metavar="S", help="Seed; the same seed gives the same trace."),
]
OtherSeed: TypeAlias = Annotated[
    int | None,
    typer.Option(min=0, help="Seed to use instead of the file's.", show_default=False),
]
Quiet: TypeAlias = Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress.")]
Endpoint: TypeAlias = Annotated[
    str,
    typer.Option(
        "--endpoint",
        envvar="UNCIA_ENDPOINT",
        metavar="ADDRESS",
        help="Where the platform listens, as `uncia serve` says.",
    ),
]
