"""Signals: SIGINT, SIGTERM and SIGHUP all end a run the same way, once and cleanly.

A child receives a signal, too, when its parent is gone.
"""

from __future__ import annotations

import ctypes
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final

_SIGNALS: Final = tuple(
    getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)
)

_PR_SET_PDEATHSIG: Final = 1


def end_with_parent(parent: int, number: int = signal.SIGINT) -> Callable[[], None]:
    """Make a function that asks the kernel to signal a child when its parent dies.

    It is for ``preexec_fn``, and the thread that starts the child must outlive it: to the kernel
    that is the parent.

    Args:
        parent: the process that starts the child.
        number: of the signal.
    """
    # Only Linux has prctl; elsewhere an orphan goes on to its end.
    prctl = getattr(ctypes.CDLL(None), "prctl", None)

    def ask() -> None:
        if prctl is not None:
            prctl(_PR_SET_PDEATHSIG, number)
        if os.getppid() != parent:
            os._exit(128 + number)

    return ask


class Interruption:
    """Turns the first signal into KeyboardInterrupt; can be held back while cleaning up.

    It raises once: whoever presses Ctrl-C twice wants the end sooner, not half a clean-up.

    Attributes:
        signal: the number of the first signal received, or None.
    """

    def __init__(self) -> None:
        self.signal: int | None = None
        self._held = False
        self._raised = False

    @property
    def exit_code(self) -> int:
        """128 + the signal's number, as shells report it."""
        return 128 + (self.signal or signal.SIGINT)

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Raise KeyboardInterrupt in the main thread on a signal, while the context lasts."""
        if threading.current_thread() is not threading.main_thread():
            # Python lets only its main thread set signal handlers.
            yield
            return
        before = [(number, signal.getsignal(number)) for number in _SIGNALS]
        try:
            for number in _SIGNALS:
                signal.signal(number, self._on_signal)
            yield
        except RuntimeError as error:
            # DuckDB raises it in the place of the exception of a signal that interrupts a query.
            # What ends a command with an exit code is a kind of it.
            if not self._raised or type(error) is not RuntimeError:
                raise
            raise KeyboardInterrupt from None
        finally:
            for number, handler in before:
                signal.signal(number, handler)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Record signals without raising, while the context lasts: a removal must complete."""
        outer, self._held = self._held, True
        try:
            yield
        finally:
            self._held = outer

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        self.signal = self.signal or number
        if not self._held and not self._raised:
            self._raised = True
            raise KeyboardInterrupt
