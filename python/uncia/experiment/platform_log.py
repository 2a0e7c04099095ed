"""The platform's log of a run: fetched until it holds what the platform has answered."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa

from uncia import record
from uncia.experiment import hops
from uncia.experiment.describe import Description
from uncia.experiment.join import rename, shift, unmatched
from uncia.experiment.plan import ExperimentPlan
from uncia.platforms import Platform
from uncia.units import NS_PER_S, format_duration

_COLLECT_POLL_S: Final = 0.05
_LONGEST_POLL_S: Final = 1.0


@dataclass
class PlatformLog:
    """What the platform has logged of a run; times are since the run's epoch.

    Attributes:
        description: of the run; learns of warnings.
        aliases: what the file calls a function, by the name that it has on the platform.
        lag_ns: how long the log may lag behind the platform's answers.
        names_invocations: whether the platform names invocations itself, in its answers.
        invocations: as they were fetched, a table each time.
        spans: likewise.
        instances: all so far.
    """

    description: Description
    aliases: Mapping[str, str]
    lag_ns: int
    names_invocations: bool
    invocations: list[pa.Table] = field(default_factory=list)
    spans: list[pa.Table] = field(default_factory=list)
    instances: pa.Table | None = None

    def await_answers(
        self, platform: Platform, answered: Iterable[tuple[ExperimentPlan, pa.Table]]
    ) -> None:
        """Fetch the log until it holds what the platform has answered, and its chains have ended.

        Args:
            platform: of the run.
            answered: the experiments that were just carried out at once, with the client's rows of
                each. What is fetched for one may hold rows of another.
        """
        logged: list[pa.Table] = []
        for experiment, rows in answered:
            deadline = time.monotonic() + self.lag_ns / NS_PER_S
            poll_s = _COLLECT_POLL_S
            while True:
                fetched = self.fetch(platform)
                if fetched is not None:
                    logged.append(fetched)
                missing = unmatched(
                    rows, record.merge(logged), names_invocations=self.names_invocations
                )
                if missing == 0 or time.monotonic() > deadline:
                    break
                time.sleep(poll_s)
                poll_s = min(2 * poll_s, _LONGEST_POLL_S)
            if missing:
                self.description.warnings.append(
                    f"{experiment.name}: {missing} answered requests are not in the platform's log"
                )
            self._await_hops(platform, experiment, rows, logged)

    def _await_hops(
        self,
        platform: Platform,
        experiment: ExperimentPlan,
        rows: pa.Table,
        logged: list[pa.Table],
    ) -> None:
        """Wait until chains of events have ended, for as long as an answer would be waited for."""
        chains = [
            (number, stream.hops)
            for number, stream in enumerate(experiment.streams)
            if stream.hops is not None and stream.hops.kind == "asynchronous"
        ]
        if not chains:
            return
        deadline = time.monotonic() + experiment.timeout_ns / NS_PER_S
        while True:
            known = record.merge(logged)
            left = sum(hops.outstanding(rows, known, chain, stream) for stream, chain in chains)
            if left == 0:
                return
            if time.monotonic() > deadline:
                self.description.warnings.append(
                    f"{experiment.name}: {left} invocations of its chains had not ended"
                    f" {format_duration(experiment.timeout_ns)} after the last answer"
                )
                return
            time.sleep(_COLLECT_POLL_S)
            if (fetched := self.fetch(platform)) is not None:
                logged.append(fetched)

    def await_triggers(self, platform: Platform, experiment: ExperimentPlan) -> None:
        """Wait until all that changes of documents began has ended, and fetch its rows.

        As long as an answer would be waited for.
        """
        deadline = time.monotonic() + experiment.timeout_ns / NS_PER_S
        while not platform.is_settled():
            if time.monotonic() > deadline:
                self.description.warnings.append(
                    f"{experiment.name}: what its triggers began had not ended"
                    f" {format_duration(experiment.timeout_ns)} after the last answer"
                )
                break
            time.sleep(_COLLECT_POLL_S)
        self.fetch(platform)

    def fetch(self, platform: Platform) -> pa.Table | None:
        """What the platform logged since the last time; kept, and its invocations returned."""
        collected = platform.collect()
        self.description.warnings.extend(collected.warnings)
        epoch, run = self.description.epoch_unix_ns, self.description.run
        if collected.instances is not None:
            shifted = shift(collected.instances, "instances", epoch, run)
            self.instances = rename(shifted, self.aliases)
        if collected.spans is not None and collected.spans.num_rows:
            self.spans.append(shift(collected.spans, "spans", epoch, run))
        if collected.invocations is None or not collected.invocations.num_rows:
            return None
        self.invocations.append(shift(collected.invocations, "invocations", epoch, run))
        return self.invocations[-1]
