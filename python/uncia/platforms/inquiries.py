"""What a running platform answers about itself: its tables, functions and warnings."""

from __future__ import annotations

import json
import urllib.error
import urllib.parse
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, Literal

from uncia.errors import RunFailedError
from uncia.platforms import wire

_TIMEOUT_S: Final = 60.0


def fetch_rows(
    address: str, table: str, after: int, log: Callable[[str], object]
) -> tuple[Any, int]:
    """Return the rows of a platform's table after ``after``, and the last row's id.

    Args:
        address: where the platform listens.
        table: ``invocations``, ``spans`` or ``instances``.
        after: the id of the row before the first.
        log: receives a line on rows that are missing because the disk is full.

    Raises:
        RunFailedError: the platform does not answer.
    """
    import pyarrow as pa

    pages: list[pa.Table] = []
    has_more = True
    while has_more:
        page, after, has_more = fetch_page(address, table, after, log)
        pages.append(page)
    rows = pages[0] if len(pages) == 1 else pa.concat_tables(pages).unify_dictionaries()
    # An instance that ended between two pages is on both.
    return (_last_of_each(rows, "instance") if table == "instances" else rows), after


def fetch_page(
    address: str,
    table: str,
    after: int | Literal["newest"],
    log: Callable[[str], object],
    limit: int | None = None,
    living: bool = False,
) -> tuple[Any, int, bool]:
    """Return a page of a platform's table, the id of its last row, and whether another follows.

    Args:
        address: where the platform listens.
        table: ``invocations``, ``spans`` or ``instances``.
        after: the id of the row before the page; ``newest``: the newest row's, so that none comes.
        log: receives a line on rows that are missing because the disk is full.
        limit: the most rows of the page; None: as many as fit.
        living: of ``instances``, the rows of those that live now, all of them, and no others.

    Raises:
        RunFailedError: the platform does not answer.
    """
    import pyarrow as pa

    path = f"/uncia/v1/{table}?after={after}"
    if limit is not None:
        path += f"&limit={limit}"
    if living:
        path += "&living=true"
    with _ask(address, path, f"{table} cannot be fetched") as answer:
        last = int(answer.headers["x-uncia-last-rowid"])
        has_more = answer.headers.get("x-uncia-more") == "true"
        held_up = answer.headers.get("x-uncia-held-up", "0")
        if held_up != "0":
            log(f"the disk is full: {held_up} rows are missing from the {table}")
        with pa.ipc.open_stream(answer.read()) as reader:
            return reader.read_all(), last, has_more


def list_functions(address: str) -> list[dict[str, Any]]:
    """Return the configurations of the functions of a platform, as Lambda's API lists them.

    Raises:
        RunFailedError: the platform does not answer.
    """
    functions: list[dict[str, Any]] = []
    marker: str | None = ""
    while marker is not None:
        query = f"?Marker={urllib.parse.quote(marker)}" if marker else ""
        path = f"/2015-03-31/functions/{query}"
        with _ask(address, path, "functions cannot be listed") as answer:
            page = json.load(answer)
        functions += page["Functions"]
        marker = page.get("NextMarker")
    return functions


def fetch_warnings(address: str) -> list[str]:
    """Return what a platform warns of.

    Raises:
        RunFailedError: the platform does not answer.
    """
    with _ask(address, "/uncia/v1/health", "warnings cannot be fetched") as answer:
        warnings: list[str] = json.load(answer)["warnings"]
    return warnings


def fetch_unserved_events(address: str) -> int:
    """Return how many events a platform has accepted that wait still, or went with their function.

    Raises:
        RunFailedError: the platform does not answer.
    """
    families = (b"uncia_events_waiting", b"uncia_events_dropped_total")
    with _ask(address, "/metrics", "unserved events cannot be counted") as answer:
        samples = (line.split() for line in answer)
        return sum(int(sample[1]) for sample in samples if sample[0] in families)


def _last_of_each(rows: Any, column: str) -> Any:
    """Keep the last of the rows that share a value in a column, in the order of the rows."""
    indices = {name: index for index, name in enumerate(rows.column(column).to_pylist())}
    return rows if len(indices) == rows.num_rows else rows.take(sorted(indices.values()))


@contextmanager
def _ask(address: str, path: str, failure: str) -> Iterator[Any]:
    """Yield a platform's answer, to be read within.

    Args:
        address: where the platform listens.
        path: with its query, beginning with ``/``.
        failure: what of the platform's cannot be done then, for the error.

    Raises:
        RunFailedError: the platform does not answer, or with something else.
    """
    try:
        with wire.open_path(address, path, _TIMEOUT_S) as answer:
            yield answer
    except (urllib.error.URLError, TimeoutError, ConnectionError, ValueError) as error:
        raise RunFailedError(f"the embedded platform's {failure}: {error}") from error
