"""The report of a run: one HTML file that works offline.

``render(run_dir)`` reads the run folder and writes ``report.html`` into it. Every number comes from
the tables; the text under a table names the rows and columns that it was computed from.
"""

from pathlib import Path

REPORT = "report.html"


def render(run_dir: Path) -> Path:
    """Write the report of a run.

    Args:
        run_dir: the run folder, or a file of rows.

    Returns:
        The path of the file, ``report.html`` in the run folder or ``NAME.html`` beside the rows,
        which gets its name only once it is complete.

    Raises:
        UnciaError: it is not a run folder, a file in it is damaged, or nothing can be written.
    """
    from uncia.report import data, page, run

    path = run_dir.with_suffix(".html") if run_dir.is_file() else run_dir / REPORT
    return page.write(run.page(data.load(run_dir)), path)


__all__ = ["REPORT", "render"]
