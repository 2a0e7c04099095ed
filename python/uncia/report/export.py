"""Exports of a run: its tables as CSV, the charts of its report as SVG, PNG or PDF."""

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.csv

from uncia import record
from uncia.backends.atomic_write import atomic_path
from uncia.errors import UnciaError

CHART_WIDTH: Final = 760
"""Width of an exported chart in pixels; in the report, charts are as wide as their container."""

FORMS: Final = ("svg", "png", "pdf")
"""File formats of charts."""

_PNG_SCALE: Final = 2.0


def tables(run_dir: Path, out: Path) -> Iterator[tuple[Path, int]]:
    """Write every table of a run as CSV: UTF-8, a header, RFC 4180 quoting, null as nothing.

    Times, durations and sizes keep their units (ns, bytes, micro-vCPU); a list is JSON. A table
    without rows is a file with a header alone.

    Args:
        run_dir: the run folder, or a file of rows, which is one table.
        out: the folder to write to; created if missing.

    Yields:
        The path of each file, once it is complete, and how many rows it has.

    Raises:
        UnciaError: it is neither, or nothing can be written.
    """
    if run_dir.is_file():
        record.check_whole(run_dir)
        contents = {"invocations": record.read(run_dir)}
    elif run_dir.is_dir():
        contents = {name: record.read(run_dir, name) for name in record.TABLES}
    else:
        raise UnciaError(f"{run_dir} is neither the folder of a run nor a file of rows")
    for name, table in contents.items():
        yield _write(out / f"{name}.csv", partial(_csv, table)), table.num_rows


def charts(run_dir: Path, out: Path, form: str) -> Iterator[Path]:
    """Write every chart of the report as a file, on white.

    Args:
        run_dir: the run folder.
        out: the folder to write to; created if missing.
        form: ``svg``, ``png`` or ``pdf``.

    Yields:
        The path of each file, once it is complete.

    Raises:
        UnciaError: it is not a run folder, the form is unknown, or nothing can be written.
    """
    from uncia.report import data, page, run

    if form not in FORMS:
        raise UnciaError(f"charts are drawn as {', '.join(FORMS)}, not as {form!r}")
    charts = page.charts(run.page(data.load(run_dir)))
    if not charts:
        raise UnciaError(f"the report of {run_dir} has no chart, so there is nothing to export")
    for chart in charts:
        image = drawn(chart.spec, form, chart.title)
        yield _write(out / f"{chart.name}.{form}", partial(_bytes, image))


def drawn(spec: dict[str, Any], form: str, title: str = "") -> bytes:
    """Draw a chart on white, as the content of a file.

    Args:
        spec: the specification.
        form: one of `FORMS`.
        title: shown above it, if any.
    """
    import vl_convert

    from uncia.report import theme

    complete = {
        **spec,
        "width": CHART_WIDTH,
        "autosize": "pad",
        "config": {**theme.config("light"), "background": "#ffffff"},
        "padding": 12,
        **({"title": title} if title else {}),
    }
    match form:
        case "svg":
            return str(vl_convert.vegalite_to_svg(complete)).encode()
        case "png":
            return bytes(vl_convert.vegalite_to_png(complete, scale=_PNG_SCALE))
        case _:
            return bytes(vl_convert.vegalite_to_pdf(complete))


def _write(path: Path, write: Callable[[Path], object]) -> Path:
    """Write a file that gets its name only once it is complete."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UnciaError(f"cannot write {path}: {error.strerror or error}", exit_code=1) from error
    with atomic_path(path, directory=False) as unfinished:
        write(unfinished)
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
