"""Work in other threads: blocks, with results in their order, and tasks beside the caller."""

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final, TypeVar

T = TypeVar("T")
R = TypeVar("R")

MAX_THREADS: Final = 8
"""More are of no use: one thread reads and another writes for all of them."""

_AHEAD: Final = 3  # items taken for each thread: enough to do while the caller waits for a writer


def in_order(items: Iterable[T], work: Callable[[T], R]) -> Iterator[R]:
    """``work(item)`` for every item, in order of the items, several at a time.

    At most `_AHEAD` items are taken for each thread, and one more; so memory is bounded. An
    exception of ``work`` or ``items`` ends it, after the results before it.
    """
    threads = min(MAX_THREADS, os.cpu_count() or 1)
    waiting: deque[Future[R]] = deque()
    with ThreadPoolExecutor(threads, thread_name_prefix="uncia-trace") as pool:
        try:
            for item in _until_failure(items, waiting):
                waiting.append(pool.submit(work, item))
                if len(waiting) > _AHEAD * threads:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()


class Background:
    """Runs tasks in one other thread, in order, while the caller goes on.

    Args:
        waiting: tasks that may wait beside the one that runs; a caller that adds more waits itself,
            so that the memory that tasks hold is bounded.
    """

    def __init__(self, waiting: int = 1) -> None:
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="uncia-trace")
        self._most = waiting
        self._tasks: deque[Future[None]] = deque()

    def add(self, task: Callable[[], None]) -> None:
        """Run a task after those before it.

        Raises:
            Exception: what a task before raised.
        """
        while self._tasks and (len(self._tasks) > self._most or self._tasks[0].done()):
            self._tasks.popleft().result()
        self._tasks.append(self._pool.submit(task))

    def finish(self) -> None:
        """Wait for all tasks.

        Raises:
            Exception: what the first of them that failed raised.
        """
        try:
            while self._tasks:
                self._tasks.popleft().result()
        finally:
            self.abandon()

    def abandon(self) -> None:
        """Wait for the task that runs; those that wait do not run."""
        self._tasks.clear()
        self._pool.shutdown(cancel_futures=True)


def _until_failure(items: Iterable[T], waiting: deque[Future[R]]) -> Iterator[T]:
    """The items; if they fail, what is under way before may fail too, and is raised instead."""
    try:
        yield from items
    except Exception:
        while waiting:
            waiting.popleft().result()
        raise
