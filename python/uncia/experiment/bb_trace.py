"""Makes BB Traces: the engine draws, and its rows become Parquet while they come."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from uncia import engine, record, yamlio
from uncia.backends.atomic_write import atomic_path
from uncia.errors import UnciaError
from uncia.traces import bb

ACCOUNT: Final = "trace.json"
"""What a trace was made from, and what is in it."""

PROFILES: Final = "profiles.yaml"
"""The profiles of the suite's functions, as ``--profiles`` takes them."""


@dataclass(frozen=True)
class Made:
    """What was written.

    Attributes:
        invocations: rows of the table ``invocations``.
        functions: rows of the table ``functions``.
        batch: invocations of batch functions.
        warnings: what was left out, a sentence each.
    """

    invocations: int
    functions: int
    batch: int
    warnings: list[str]


def make(
    settings: bb.Settings,
    out: Path,
    *,
    folder: Path | None = None,
    profiles: Path | None = None,
    on_progress: Callable[[int, int], None] | None = None,
) -> Made:
    """Make a BB Trace.

    The folder gets the tables ``invocations``, ordered by ``scheduled``, and ``functions``, the
    suite's profiles and an account of what the trace was made from. The same settings and the same
    import give the same rows on every machine. Memory does not grow with the invocations.

    Args:
        settings: the open choices.
        out: a folder that does not exist, or is empty.
        folder: an import with arrivals and profiles; None for a synthetic population.
        profiles: measured profiles; None to draw them from the prior.
        on_progress: called with the minutes and invocations that are made.

    Raises:
        UnciaError: what is given has too little, or nothing can be written; then nothing is.
    """
    trace, warnings = bb.engine(settings, folder, profiles)
    with atomic_path(out, directory=True) as work:
        work.mkdir()
        streamed = work / "functions.arrows"
        config = {"functions": str(streamed), "trace": trace}
        done = _draw(config, work / "invocations.parquet", on_progress)
        record.write(record.read(streamed, "functions"), work / "functions.parquet", "functions")
        streamed.unlink()
        drawn = {"profiles": done["profiles"]}
        (work / PROFILES).write_text(yamlio.dump(drawn), encoding="utf-8")
        account = {
            "settings": settings.model_dump(),
            "source": "synthetic" if folder is None else "import",
            "profiles": "prior" if profiles is None else "given",
            **{key: done[key] for key in ("functions", "invocations", "batch")},
            "warnings": warnings,
        }
        (work / ACCOUNT).write_text(json.dumps(account, indent=2) + "\n", encoding="utf-8")
    return Made(done["invocations"], done["functions"], done["batch"], warnings)


def _draw(
    config: dict[str, Any], path: Path, on_progress: Callable[[int, int], None] | None
) -> dict[str, Any]:
    """Run the engine, and write its rows to a file while it goes on; return its account."""
    ours, theirs = os.pipe()
    failures: list[Exception] = []

    def write() -> None:
        try:
            with os.fdopen(ours, "rb") as source:
                record.write_stream(source, path, "invocations")
        except (UnciaError, OSError, pa.ArrowException) as error:
            failures.append(error)

    def report(event: dict[str, Any]) -> None:
        if on_progress is not None and event.get("event") == "progress":
            on_progress(event["minute"], event["invocations"])

    writer = threading.Thread(target=write, name="uncia-bb-rows")
    closed = False

    def close(_: int = 0) -> None:
        # Once the engine has its end of the pipe: then the rows end when it does.
        nonlocal closed
        if not closed:
            os.close(theirs)
            closed = True

    writer.start()
    try:
        done = engine.run(["bb", "--config", "-"], config, report, close, stdout=theirs)
    except UnciaError as error:
        close()
        writer.join()
        # A disk that is full here is what ended the engine, which knows only that nobody reads.
        # Rows that were cut off are what its own failure led to.
        causes = [it for it in failures if not isinstance(it.__cause__, pa.ArrowInvalid)]
        raise next((it for it in causes if error.exit_code == 1), error) from None
    finally:
        close()
        writer.join()
    if failures:
        raise failures[0]
    return done
