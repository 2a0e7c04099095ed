"""Neighbours: functions that are kept busy while an experiment is measured.

An experiment with neighbours is measured twice: alone, as ``<name>.alone``, and with them. What
they answer is an experiment of its own, ``<name>.neighbours``, so that no figure mixes the two.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Final

from uncia import engine
from uncia.errors import RunFailedError, UnciaError
from uncia.experiment.plan import ExperimentPlan
from uncia.units import NS_PER_S
from uncia.workload.client import Load, drive

ALONE_SUFFIX: Final = ".alone"
NEIGHBOURS_SUFFIX: Final = ".neighbours"

LONGEST_NS: Final = 24 * 3_600 * NS_PER_S
"""Neighbours end with the experiment that they are beside, and at last after this time."""


@dataclass
class Neighbours:
    """The load of an experiment's neighbours while it goes on, in a thread of its own.

    Attributes:
        experiment: the plan of the neighbours.
        load: what they are sent.
        on_event: gets the load generator's warnings, once it has ended.
    """

    experiment: ExperimentPlan
    load: Load
    on_start: Callable[[int], None]
    warnings: list[engine.Event] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._busy = threading.Event()
        self._enough = threading.Event()
        self._failure: UnciaError | None = None
        # What is in flight at the end is waited for.
        self.load = replace(self.load, drain_timeout_ns=self.experiment.timeout_ns)
        self._thread = threading.Thread(target=self._run, name="neighbours", daemon=True)

    def start(self) -> None:
        """Begin, and return when each of them has answered for the first time.

        Raises:
            UnciaError: they do not.
        """
        self._thread.start()
        patience = self.experiment.timeout_ns / NS_PER_S
        answered = self._busy.wait(patience)
        if self._failure is not None:
            raise self._failure
        if not answered:
            self.stop()
            raise RunFailedError(
                f"{self.experiment.name}: no answer within {patience:g} s, so that there is nothing"
                " to be measured beside"
            )

    def stop(self) -> None:
        """End them, and return when the last has answered. May be called twice.

        Raises:
            UnciaError: the load generator failed.
        """
        self._enough.set()
        if self._thread.is_alive():
            self._thread.join()
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    def _run(self) -> None:
        try:
            drive(self.load, self._event, self.on_start)
        except UnciaError as error:
            self._failure = error
        except KeyboardInterrupt:
            # Only this process's first thread is interrupted; the generator was, by somebody else.
            self._failure = RunFailedError(f"{self.experiment.name}: the load generator was ended")
        finally:
            self._busy.set()

    def _event(self, event: engine.Event) -> None:
        if event.get("event") == "warning":
            self.warnings.append(event)
        clients = sum(
            stream.closed.clients for stream in self.load.streams if stream.closed is not None
        )
        if event.get("event") == "progress" and event["done"] >= clients:
            self._busy.set()
        if self._enough.is_set():
            raise engine.Enough
