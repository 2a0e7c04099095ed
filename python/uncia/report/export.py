"""A run in other forms: its tables as CSV, the charts of its report as SVG, PNG or PDF."""

import contextlib
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.csv

from uncia import record
from uncia.errors import UnciaError

CHART_WIDTH: Final = 760
"""Pixels; in the report a chart is as wide as its place, a file needs a number."""

_PNG_SCALE: Final = 2.0


def tables(run_dir: Path, out: Path) -> Iterator[Path]:
    """Write every table of a run as CSV: UTF-8, a header, RFC 4180 quoting, null as nothing.

    Times, durations and sizes keep their units (ns, bytes, micro-vCPU); a list is JSON.

    Args:
        run_dir: the run folder.
        out: the folder to write to; made if it is not there.

    Yields:
        The path of each file, once it is complete.

    Raises:
        UnciaError: it is not a run folder, or nothing can be written.
    """
    if not run_dir.is_dir():
        raise UnciaError(f"{run_dir} is not the folder of a run")
    found = {name: record.read(run_dir, name) for name in record.TABLES}
    for name, table in found.items():
        yield _write(out / f"{name}.csv", partial(_csv, table))


def charts(run_dir: Path, out: Path, form: str) -> Iterator[Path]:
    """Write every chart of the report as a file, on white.

    Args:
        run_dir: the run folder.
        out: the folder to write to; made if it is not there.
        form: ``svg``, ``png`` or ``pdf``.

    Yields:
        The path of each file, once it is complete.

    Raises:
        UnciaError: it is not a run folder, the form is unknown, or nothing can be written.
    """
    import vl_convert

    from uncia.report import data, page, run, theme

    draw: dict[str, Callable[[dict[str, Any]], bytes]] = {
        "svg": lambda spec: vl_convert.vegalite_to_svg(spec).encode(),
        "png": lambda spec: vl_convert.vegalite_to_png(spec, scale=_PNG_SCALE),
        "pdf": vl_convert.vegalite_to_pdf,
    }
    if form not in draw:
        raise UnciaError(f"charts are drawn as {', '.join(draw)}, not as {form!r}")
    config = {**theme.config("light"), "background": "#ffffff"}
    for chart in page.charts(run.page(data.load(run_dir))):
        spec = {
            **chart.spec,
            "width": CHART_WIDTH,
            "autosize": "pad",
            "config": config,
            "padding": 12,
        }
        if chart.title:
            spec["title"] = chart.title
        image = draw[form](spec)
        yield _write(out / f"{chart.name}.{form}", partial(_bytes, image))


def _write(path: Path, write: Callable[[Path], None]) -> Path:
    """Write a file that appears under its name only when it is complete."""
    unfinished = path.with_name(f"{path.name}.partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write(unfinished)
        unfinished.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            unfinished.unlink()
        raise UnciaError(f"cannot write {path}: {error.strerror or error}", exit_code=1) from error
    return path


def _bytes(content: bytes, path: Path) -> None:
    path.write_bytes(content)


def _csv(table: pa.Table, path: Path) -> None:
    import json

    arrays: list[Any] = []
    for field in table.schema:
        column: Any = table.column(field.name)
        if pa.types.is_list(field.type):
            column = pa.array(
                [None if item is None else json.dumps(item) for item in column.to_pylist()],
                pa.utf8(),
            )
        elif pa.types.is_dictionary(field.type):
            column = column.cast(pa.utf8())
        elif pa.types.is_decimal(field.type):
            # Arrow writes decimals in scientific notation.
            column = pa.array(
                [None if item is None else f"{item:f}" for item in column.to_pylist()], pa.utf8()
            )
        arrays.append(column)
    plain = pa.table(arrays, names=table.column_names)
    options = pyarrow.csv.WriteOptions(include_header=True, quoting_style="needed")
    pyarrow.csv.write_csv(plain, str(path), options)
