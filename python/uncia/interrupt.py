"""Signals: SIGINT, SIGTERM and SIGHUP all end a run the same way, once and cleanly."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final

_SIGNALS: Final = tuple(
    getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)
)


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
