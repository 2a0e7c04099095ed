"""Finds the capacity of a function: one run, with an experiment for each rate that is tried."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa

from uncia import record, yamlio
from uncia.errors import RunFailedError, UnciaError
from uncia.experiment import checks, runner
from uncia.experiment.expect import FAILURES
from uncia.experiment.plan import ExperimentPlan, Plan
from uncia.experiment.planning import plan
from uncia.experiment.progress import Reporter
from uncia.experiment.runner import Outcome
from uncia.experiment.sources import Sources
from uncia.runs.capacity import KnownCapacity
from uncia.stats import capacity, columns
from uncia.stats.capacity import COLUMNS, Found, Rate, Search, Seen, see
from uncia.units import format_rate, parse_rate

CHECK: Final = "check"
"""The experiment that comes first: whether the function answers at all, and how fast."""

_CHECK: Final = {"clients": 1, "requests": 20, "duration": "10s"}
_KEPT: Final = ("function", "parameters", "fields", "settings", "timeout", "connect_timeout")
_SEEDS: Final = 1 << 64
_SHARE_OF_SERIAL: Final = 0.5
"""The first rate, of what one instance would serve if it were never idle."""


@dataclass(frozen=True)
class Probe:
    """A rate at one time: an experiment of the run."""

    name: str
    rate: float
    seed: int | None = None


@dataclass(frozen=True)
class Result:
    """What a search came to.

    Attributes:
        outcome: of the run.
        found: the capacity; None if there is none.
        rates: what was tried, in the order of the first probe of each.
    """

    outcome: Outcome
    found: Found | None
    rates: Sequence[Rate]
    tolerance: float

    def data(self) -> dict[str, Any]:
        """As plain data, for JSON."""
        bracket = self.found
        return {
            "capacity_per_s": None if bracket is None else bracket.capacity,
            "low_per_s": None if bracket is None else bracket.low,
            "high_per_s": None if bracket is None else bracket.high,
            "decided": bracket is not None and bracket.decided,
            "probes": [self._probe(rate) for rate in self.rates],
        }

    def _probe(self, rate: Rate) -> dict[str, Any]:
        slope = rate.slope()
        return {
            "rate": rate.per_s,
            "verdict": rate.verdict(self.tolerance),
            "slope": None if slope is None else slope.value,
            "slope_low": None if slope is None else slope.low,
            "slope_high": None if slope is None else slope.high,
            "requests": sum(seen.requests for seen in rate.seen),
            "failed": rate.failed,
        }


@dataclass
class Finder:
    """Carries out a search as a run.

    Attributes:
        document: an experiment file without experiments.
        sender: what every probe sends, of an experiment of the file: all but when.
        base: the folder that paths in the file are relative to.
        start: the first rate; None: by how fast the function answers.
        tolerance: how much latency may grow, in seconds a second.
    """

    document: Mapping[str, Any]
    sender: Mapping[str, Any]
    base: Path
    start: float | None
    tolerance: float
    search: Search | None = None
    probes: list[Probe] = field(default_factory=list)
    _error: UnciaError | None = None
    _look_s: float = 0.0
    _seed: int = 1

    def find(
        self, *, out: Path | None, overwrite: bool, reporter: Reporter, seed: int | None
    ) -> Result:
        """Try rates until the capacity is known.

        The capacity is kept in the run's folder, too.

        Raises:
            UnciaError: the file is not right, or the folder cannot be written. What goes wrong
                later is the outcome's error.
        """
        first, sources = self._plan()
        self._seed = first.file.seed if seed is None else seed
        outcome = runner.execute(
            first,
            sources,
            out=out,
            overwrite=overwrite,
            reporter=reporter,
            seed=seed,
            extend=self._extend,
            watch=self._is_enough,
        )
        if outcome.error is None and self._error is not None:
            outcome = replace(outcome, error=self._error)
        is_over = outcome.error is None and outcome.interrupted is None
        search = self.search
        capacity = search.found() if search is not None and is_over else None
        rates = [] if search is None else list(search.rates.values())
        result = Result(outcome, capacity, rates, self.tolerance)
        if capacity is not None:
            KnownCapacity.of(outcome.run, result.data()).write(outcome.folder)
        return result

    def _plan(self) -> tuple[Plan, Sources]:
        experiments = {
            CHECK: self._experiment(None),
            **{probe.name: self._experiment(probe.rate) for probe in self.probes},
        }
        file = yamlio.Document(
            str(self.document["name"]), {**self.document, "experiments": experiments}, {}
        )
        sources = Sources(file, self.base)
        made = plan(checks.check(file), sources)
        seeds = {probe.name: probe.seed for probe in self.probes}
        return replace(
            made, experiments=[replace(it, seed=seeds.get(it.name)) for it in made.experiments]
        ), sources

    def _experiment(self, rate: float | None) -> dict[str, Any]:
        experiment = {**self.sender, "expect": dict.fromkeys(FAILURES, "allowed")}
        if "mix" in self.sender:
            parts = self.sender["mix"]
            whole = sum((_rate(part) for part in parts), Fraction(0))
            experiment["mix"] = [
                {
                    **{key: value for key, value in part.items() if key != "arrivals"},
                    **_paced(rate, _rate(part) / whole),
                }
                for part in parts
            ]
            return experiment
        return {**experiment, **_paced(rate)}

    def _extend(self, rows: pa.Table) -> Plan | None:
        """The plan with the next probe; None: the search is over, or cannot go on."""
        by_experiment = columns.by_word(rows, "experiment")
        try:
            if self.search is None:
                self.search = Search(
                    self._first_rate(by_experiment[CHECK]),
                    self.tolerance,
                    may_wait="max_connections" in self.sender,
                )
            else:
                last = self.probes[-1]
                self.search.add(last.rate, self._see(by_experiment[last.name], last))
            rate = self.search.next()
        except RunFailedError as error:
            self._error = error
            return None
        if rate is None:
            return None
        number = len(self.probes) + 1
        # Rates are searched with the run's seed, and watched again with others.
        is_again = any(probe.rate == rate for probe in self.probes)
        seed = (self._seed + number) % _SEEDS if is_again else None
        self.probes.append(Probe(f"probe-{number:02d}", rate, seed))
        self._look_s = capacity.FIRST_LOOK_S
        return self._plan()[0]

    def _see(self, rows: pa.Table, probe: Probe) -> Seen:
        rates = [_rate(part) for part in self.sender.get("mix", [])]
        return see(rows, probe.rate, float(max(rates) / sum(rates)) if rates else 1.0)

    def _first_rate(self, rows: pa.Table) -> float:
        """Where to begin.

        Raises:
            RunFailedError: no request was answered well.
        """
        rows = rows.filter(columns.is_request(rows))
        ok = rows.filter(columns.is_word(rows, "outcome", "ok"))
        if not ok.num_rows:
            outcomes = columns.count_words(rows, "outcome")
            words = ", ".join(f"{count:,} {word}" for word, count in outcomes.items())
            raise RunFailedError(
                f"it never answers right: of {rows.num_rows:,} single requests {words}",
                hint="The errors are in the report; try `uncia invoke` or `uncia load`.",
            )
        if self.start is not None:
            return self.start
        latency = columns.measured(columns.difference(ok, "received", "scheduled"))
        return _SHARE_OF_SERIAL * 1e9 / max(1.0, float(np.median(latency)))

    def _is_enough(self, experiment: ExperimentPlan, rows: Path, event: Mapping[str, Any]) -> bool:
        """Whether the probe that goes on can be judged by its rows so far."""
        if event.get("event") != "progress" or experiment.name == CHECK:
            return False
        elapsed_s = float(event["elapsed_s"])
        # What has failed may end it at once, unless it was throttled while instances first started.
        if elapsed_s < self._look_s and not event["failed"]:
            return False
        if elapsed_s >= self._look_s:
            self._look_s = elapsed_s * capacity.LOOKS
        probe = self.probes[-1]
        read = list(record.scan(rows, COLUMNS)) if rows.exists() else []
        if not read or self.search is None:
            return False
        seen = self._see(pa.concat_tables(read), probe)
        return self.search.is_enough(probe.rate, seen, elapsed_s)


def of_experiment(
    document: yamlio.Document, name: str | None
) -> tuple[dict[str, Any], dict[str, Any]]:
    """What an experiment of a file sends: the file without experiments, and the sender.

    Raises:
        UnciaError: the file is not right, has several experiments and none is named, or what the
            experiment sends has no rate.
    """
    file = checks.check(document)
    if name is None and len(file.experiments) > 1:
        raise UnciaError(
            f"{document.name} has several experiments, and a capacity is of one",
            hint=f"Name it with --experiment: {', '.join(file.experiments)}.",
        )
    name = name or next(iter(file.experiments))
    if name not in file.experiments:
        raise UnciaError(
            f"{document.name} has no experiment {name!r}",
            hint=f"Its experiments are {', '.join(file.experiments)}.",
        )
    content = dict(document.data)
    experiment = content.pop("experiments")[name]
    streams = experiment.get("mix", [experiment])
    if any("chain" in it or (it.get("arrivals") or {}).get("kind") == "replay" for it in streams):
        raise document.error(
            ("experiments", name), "a capacity is of functions that are sent requests at a rate"
        )
    if "mix" in experiment and not all("rate" in (it.get("arrivals") or {}) for it in streams):
        raise document.error(
            ("experiments", name, "mix"), "each stream needs a rate, which says its share"
        )
    kept = {key: experiment[key] for key in (*_KEPT, "mix", "max_connections") if key in experiment}
    return content, kept


def _rate(stream: Mapping[str, Any]) -> Fraction:
    return parse_rate(stream["arrivals"]["rate"])


def _paced(rate: float | None, share: Fraction = Fraction(1)) -> dict[str, Any]:
    """When a probe's requests are sent, of its rate a stream's share; of no rate, one by one."""
    if rate is None:
        return {"closed": dict(_CHECK)}
    each = Fraction(f"{float(Fraction(str(rate)) * share):.6g}")
    seconds = capacity.LONGER * capacity.watch_s(rate)
    return {
        "arrivals": {"kind": "constant", "rate": format_rate(each), "duration": f"{seconds:.3f}s"}
    }
