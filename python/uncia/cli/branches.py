"""``uncia branches``: what predictors of branches, and last-level caches, make of functions."""

from __future__ import annotations

import json
import platform
import tempfile
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import typer

from uncia import terminal
from uncia.cli.options import Quiet
from uncia.errors import UnciaError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from uncia.services.debian import Program

_TABLE: Final = "locality.parquet"
_SUMMARY: Final = "branches.json"
_INVOCATIONS: Final = 3
_TABLES: Final = ("warm", "cold", "shared")
"""Which of a predictor the last invocation has."""


def register(app: typer.Typer) -> None:
    """Add the command ``branches`` to ``app``."""

    @app.command()
    def branches(
        functions: list[str] = typer.Argument(
            metavar="FUNCTION...",
            help="Functions in Python or Node.js, of the catalogue or a folder (./mine), if need be"
            " with a runtime (json@node) or parameters (micro:benchmark=pidigits,repeat=2).",
        ),
        runtime: str | None = typer.Option(
            None,
            help="Of functions that name none: python or node. Default: their first of these.",
            show_default=False,
        ),
        size: str = typer.Option("small", help="Of their events: test, small or large."),
        invocations: int | None = typer.Option(
            None,
            "--invocations",
            "-n",
            min=1,
            help=f"Of each function, after its start. Default: {_INVOCATIONS}; for caches one.",
            show_default=False,
        ),
        caches: list[str] = typer.Option(
            [],
            "--llc",
            metavar="SIZE",
            help="Simulate last-level caches instead, of this size, such as 2MB; may be repeated,"
            " and `all` is 1 to 20 MB.",
            show_default=False,
        ),
        timeout: str = typer.Option("10min", metavar="TIME", help="For all of it."),
        as_json: bool = typer.Option(False, "--json", help="Print JSON."),
        out: Path | None = typer.Option(
            None,
            "--out",
            metavar="DIR",
            help=f"The folder for {_TABLE} and {_SUMMARY}. Default: results/branches-TIME.",
            show_default=False,
        ),
        quiet: Quiet = False,
    ) -> None:
        """Trace functions into predictors of branches, or into last-level caches.

        Each runs as a bare process, under QEMU's user mode or valgrind's cachegrind, which see what
        it does in user mode. Predictors are simulated as the process keeps them, emptied before
        each invocation, and shared by all functions that are named, whose invocations take turns.
        """
        import pyarrow as pa

        from uncia import record
        from uncia.cli.quantities import quantity
        from uncia.locality import (
            Work,
            branch_lines,
            cache_lines,
            check,
            measure,
            prepare,
            simulate,
            tools,
            trace,
        )
        from uncia.units import NS_PER_S, parse_duration

        timeout_s = quantity("--timeout", timeout, parse_duration) / NS_PER_S
        if not timeout_s:
            raise UnciaError("--timeout is 0, and nothing runs in no time", hint="Write 10min.")
        sizes = _sizes(caches)
        if caches and invocations is not None:
            raise UnciaError(
                "--invocations is of predictors: for caches (--llc) each function is invoked once",
                hint="Leave one of both out.",
            )
        count = 1 if caches else invocations or _INVOCATIONS
        folder = _folder(out)
        if not caches:
            tools.require_architecture()
            tools.compiler()
        # Before anything is installed.
        check(functions, size, runtime)
        with _made(folder):
            _install(tools.VALGRIND if caches else tools.QEMU, quiet=quiet)
            with Work(timeout_s) as work:
                targets = prepare(functions, size, runtime, work.folder)
                if not quiet:
                    under = "cachegrind" if caches else "QEMU"
                    typer.echo(f"Running {', '.join(functions)} under {under}.", err=True)
                began = time.monotonic()
                if caches:
                    simulated = simulate(targets, work, sizes)
                    measured = measure(targets, work, "last_level_cache", invocations=count)
                else:
                    simulated = trace(targets, work, invocations=count)
                    measured = measure(targets, work, "branch_predictor", invocations=count)
                seconds = time.monotonic() - began
                events = {target.label: target.event for target in targets}
        rows = pa.concat_tables([simulated, measured]).unify_dictionaries()
        lines = cache_lines(rows) if caches else branch_lines(rows)
        record.write(rows, folder / _TABLE, "locality")
        configuration = {
            "functions": events,
            "runtimes": {target.label: target.runtime for target in targets},
            "invocations": count,
            "seconds": round(seconds, 3),
            "machine": platform.platform(),
            "versions": tools.versions(caches=bool(caches)),
        }
        (folder / _SUMMARY).write_text(
            json.dumps({"configuration": configuration, "lines": lines}, indent=2) + "\n",
            encoding="utf-8",
        )
        if as_json:
            typer.echo(json.dumps(lines, indent=2))
        else:
            _show(lines)
            typer.echo(
                f"In user mode; simulated, but for pmu. {rows.num_rows:,} rows in {folder / _TABLE}"
            )


def _sizes(caches: Sequence[str]) -> list[int]:
    """The sizes of caches, in bytes."""
    from uncia.cli.quantities import quantity
    from uncia.locality.caches import SIZES
    from uncia.units import parse_size

    sizes: list[int] = []
    for text in caches:
        sizes += SIZES if text == "all" else [quantity("--llc", text, parse_size)]
    return sorted(set(sizes))


def _folder(out: Path | None) -> Path:
    """Where the results go.

    Raises:
        UnciaError: there are some already, or it is no folder.
    """
    folder = out or Path("results") / time.strftime("branches-%Y%m%d-%H%M%S")
    if (folder / _TABLE).exists() or (folder.exists() and not folder.is_dir()):
        raise UnciaError(
            f"{folder} is there already",
            hint="Choose another folder with --out; nothing was deleted.",
        )
    return folder


@contextmanager
def _made(folder: Path) -> Iterator[None]:
    """Make the folder of the results, before the time that they take; it goes if they do not come.

    Raises:
        UnciaError: it cannot be made, or nothing can be written to it.
    """
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    try:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            # Says more than os.access, such as that the file system is read-only.
            tempfile.TemporaryFile(dir=folder).close()
        except OSError as error:
            raise UnciaError(
                f"cannot write to {folder}: {error.strerror or error}",
                hint="Choose another folder with --out.",
            ) from error
        yield
    except BaseException:
        for path in missing:
            with suppress(OSError):
                path.rmdir()
        raise


def _install(program: Program, *, quiet: bool) -> None:
    """Install what is missing, as root on Debian.

    Raises:
        UnciaError: it is missing, and cannot be installed.
    """
    try:
        program.find()
    except UnciaError as missing:
        if not program.can_install():
            raise
        if not quiet:
            typer.echo(f"{missing.message}: installing Debian's package.", err=True)
        program.install()


def _show(lines: Sequence[dict[str, Any]]) -> None:
    """Print the lines as a table: mispredictions, or misses, for a thousand instructions."""
    from rich.console import Console
    from rich.table import Table

    is_cache = "cache_bytes" in lines[0]
    columns = {
        "function": "function",
        **({"model": "model", "cache_bytes": "cache"} if is_cache else {"predictor": "predictor"}),
        "instructions": "million\ninstr.",
        "start_share": "start's\nshare",
        "mpki": "both,\nMPKI",
        "start_mpki": "start,\nMPKI",
        "first_mpki": "first,\nMPKI",
        **({} if is_cache else {f"{it}_mpki": f"last,\n{it}" for it in _TABLES}),
    }
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0))
    for name, title in columns.items():
        is_text = name in ("function", "predictor", "model")
        table.add_column(
            title,
            justify="left" if is_text else "right",
            vertical="bottom",
            no_wrap=True,
        )
    for line in lines:
        table.add_row(*(_cell(name, line[name]) for name in columns))
    terminal.show(Console(highlight=False, markup=False, emoji=False), table, keys=2)
    counted = "misses" if is_cache else "mispredicted branches"
    typer.echo(
        f"\nMPKI: {counted} for a thousand instructions.\nboth: the start and the first invocation."
    )
    if not is_cache:
        typer.echo(
            "last: the last invocation, with tables that its process has kept (warm),\n"
            "that are empty (cold), or that all functions share in turns (shared)."
        )


def _cell(name: str, value: Any) -> str:
    from uncia.units import format_size

    if value is None:
        return "-"
    if name == "cache_bytes":
        # The processor's own may have any size.
        return format_size(value)
    if name == "start_share":
        return f"{100 * value:.1f} %"
    if name == "instructions":
        return f"{value / 1e6:,.1f}"
    return f"{value:.2f}" if isinstance(value, float) else str(value)
