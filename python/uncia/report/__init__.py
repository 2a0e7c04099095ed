"""The report of a run: one HTML file that works offline.

``render(run_dir)`` reads the run folder and writes ``report.html`` into it. Every number comes from
the tables; the text under a table names the rows and columns that it was computed from.
"""

from pathlib import Path

REPORT = "report.html"


def render(run_dir: Path) -> Path:
    """Write the report of a run.

    Args:
        run_dir: the run folder.

    Returns:
        The path of the file, ``report.html`` in the run folder, which gets its name only once it
        is complete.

    Raises:
        UnciaError: it is not a run folder, a file in it is damaged, or nothing can be written.
    """
    from uncia.report import data, page, run

    return page.write(run.page(data.load(run_dir)), run_dir / REPORT)


__all__ = ["REPORT", "render"]
