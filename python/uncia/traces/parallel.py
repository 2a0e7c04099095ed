"""Work on blocks in several threads, with the results in order of the blocks."""

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final, TypeVar

T = TypeVar("T")
R = TypeVar("R")

MAX_THREADS: Final = 8
"""More are of no use: one thread reads and another writes for all of them."""


def in_order(items: Iterable[T], work: Callable[[T], R]) -> Iterator[R]:
    """``work(item)`` for every item, in order of the items, several at a time.

    As many items are taken ahead as there are threads, and one more; so memory is bounded. An
    exception of ``work`` or ``items`` ends it, after the results before it.
    """
    threads = min(MAX_THREADS, os.cpu_count() or 1)
    waiting: deque[Future[R]] = deque()
    with ThreadPoolExecutor(threads, thread_name_prefix="uncia-trace") as pool:
        try:
            for item in _until_failure(items, waiting):
                waiting.append(pool.submit(work, item))
                if len(waiting) > threads:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()


def _until_failure(items: Iterable[T], waiting: deque[Future[R]]) -> Iterator[T]:
    """The items; if they fail, what is under way before may fail too, and is raised instead."""
    try:
        yield from items
    except Exception:
        while waiting:
            waiting.popleft().result()
        raise
