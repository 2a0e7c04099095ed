"""Measures a function at many memory sizes on the embedded platform, one request at a time.

Requests visit the sizes in turn, so that a machine that changes its pace changes it for all sizes,
and begin at random points of the quota's period.
"""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from uncia.bandwidth import intermittent_lab as lab
from uncia.bandwidth.overallocation import EVENT_DRIVEN, KERNEL
from uncia.errors import UnciaError
from uncia.experiment.plan import ExperimentPlan
from uncia.experiment.progress import Reporter
from uncia.experiment.runner import Outcome
from uncia.units import MIB, UnitError, format_duration, parse_size

FULL_MB: Final = 1769
"""The size with one vCPU, of Lambda and of the embedded platform."""

LEAST_MB: Final = 128
_SEED: Final = 20250515
_WHOLE_VISITS: Final = 4
_RANGE: Final = re.compile(r"(\d+)\.\.(\d+)(?:/(\d+))?")


@dataclass(frozen=True)
class Settings:
    """What is measured.

    Attributes:
        function: of the catalogue.
        memory_mb: the sizes, ascending, the last at a whole vCPU or more.
        samples: requests at each size below a whole vCPU; four times as many at one.
        enforcement: each of ``kernel`` and ``event-driven`` that is to be measured.
        period_ns: of the quota.
    """

    function: str
    memory_mb: Sequence[int]
    samples: int
    enforcement: Sequence[str]
    period_ns: int


def sizes(text: str, count: int) -> list[int]:
    """Memory sizes in MB: a list (``128,1GB``), or a range ``128..1769`` or ``128..1769/50``.

    A range has ``count`` sizes, evenly spaced, or one every so many MB, and always its ends. 1769,
    at which a function has a whole vCPU, is added, for models start from it.

    Raises:
        UnciaError: it is neither, or a size is not one.
    """
    found = _RANGE.fullmatch(text.replace("MB", ""))
    if found is None:
        chosen = [_megabytes(part) for part in text.split(",")]
    else:
        low, high = int(found[1]), int(found[2])
        if low >= high:
            raise UnciaError(f"--memory: {text} does not rise")
        if found[3] is not None:
            step = int(found[3])
            if step < 1:
                raise UnciaError(f"--memory: {text} has no step")
            chosen = [*range(low, high, step), high]
        else:
            if count < 2:
                raise UnciaError("--sizes: a range has at least 2 sizes")
            chosen = [low + round((high - low) * at / (count - 1)) for at in range(count)]
    if min(chosen) < LEAST_MB:
        raise UnciaError(f"--memory: the platform's smallest size is {LEAST_MB}MB")
    if max(chosen) < FULL_MB:
        chosen.append(FULL_MB)
    if min(chosen) >= FULL_MB:
        raise UnciaError(f"--memory: from {FULL_MB}MB on a function has a whole vCPU")
    return sorted(set(chosen))


def _megabytes(text: str) -> int:
    text = text.strip()
    try:
        size = parse_size(f"{text}MB" if text.isdecimal() else text)
    except UnitError as error:
        raise UnciaError(
            f"--memory: {error}", "Write sizes (128,1769) or a range (128..1769)."
        ) from error
    if size % MIB:
        raise UnciaError(f"--memory: {text} is no whole number of MB")
    return size // MIB


def experiment(size: int, enforcement: str) -> str:
    """The name of a size's experiment."""
    return f"at-{size}" if enforcement == KERNEL else f"at-{size}-event"


def document(settings: Settings) -> dict[str, Any]:
    """The experiment file of the first requests, which start the instances."""
    experiments: dict[str, Any] = {}
    for enforcement in settings.enforcement:
        for size in settings.memory_mb:
            changed: dict[str, Any] = {"memory": f"{size}MB"}
            if enforcement == EVENT_DRIVEN:
                changed["enforcement"] = EVENT_DRIVEN
            experiments[experiment(size, enforcement)] = {
                "description": "Starts an instance.",
                "function": settings.function,
                "settings": changed,
                "arrivals": {"kind": "burst", "sizes": [1], "bursts": 1, "interval": "1s"},
            }
    return {
        "name": "overallocation",
        "description": (
            f"{settings.function} at {len(settings.memory_mb)} memory sizes. The requests that are"
            " measured are sent by `uncia cpu overallocation`: one at a time, the sizes in turn."
        ),
        "seed": _SEED,
        # Frozen instances need time to thaw, which is not what is measured here.
        "platform": {
            "kind": "embedded",
            "period": format_duration(settings.period_ns),
            "pause_after": "1h",
            "keep_alive": "2h",
            "max_instances": len(experiments) + 1,
        },
        "functions": {settings.function: {"source": settings.function}},
        "experiments": experiments,
    }


def measure(
    settings: Settings, *, out: Path | None, overwrite: bool, reporter: Reporter
) -> Outcome:
    """Carry the experiment out.

    Args:
        settings: what is measured.
        out: the folder of the run; by default results/NAME-TIME.
        overwrite: an earlier run there may be replaced.
        reporter: is told how it goes.

    Raises:
        UnciaError: the settings are not right, or the folder cannot be written.
    """
    made, sources = lab.planned(document(settings), "overallocation")
    first = lab.warmups(made)
    arrivals = lab.Chain(requests=settings.samples, gap_ns=0, longest_gap_ns=settings.period_ns)
    chains = [
        lab.chain_plan(
            one.name,
            one.streams[0],
            arrivals,
            one.streams[0].event,
            "One request at a time; the sizes take turns, and each request waits a random part of a"
            " period after the answer before, of whichever size.",
        )
        for one in made.experiments
    ]
    made = replace(made, experiments=[*first, *chains])
    names = [one.name for one in chains]
    turns = _Turns(settings, names)
    return lab.execute(
        made,
        sources,
        out=out,
        overwrite=overwrite,
        reporter=reporter,
        drivers={name: turns.all if name == names[0] else turns.nothing for name in names},
    )


class _Turns:
    """Sends to all sizes in turns."""

    def __init__(self, settings: Settings, names: Sequence[str]) -> None:
        self._settings: Final = settings
        self._names: Final = names

    def nothing(self, bench: lab.Bench, experiment: ExperimentPlan) -> None:
        """Its requests were sent with those of the first size."""

    def all(self, bench: lab.Bench, plan: ExperimentPlan) -> None:
        """Each round visits every size, in a new order."""
        rng = random.Random(bench.seed)
        senders = {name: bench.sender(name) for name in self._names}
        event = plan.streams[0].event
        # Every model rests on the rows at a whole vCPU.
        whole = {
            experiment(size, who)
            for size in self._settings.memory_mb
            if size >= FULL_MB
            for who in self._settings.enforcement
        }
        order = [name for name in self._names for _ in range(_WHOLE_VISITS if name in whole else 1)]
        for number in range(self._settings.samples):
            rng.shuffle(order)
            for name in order:
                think = rng.randrange(self._settings.period_ns)
                senders[name].send(event, at_ns=bench.clock.now() + think)
            if (number + 1) % 10 == 0:
                bench.note(f"    {number + 1} of {self._settings.samples} rounds")
