"""Lets a function work in the background of its keep-alive, under each of its behaviours."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from uncia.bandwidth.background import BILLED, COLLECT, COUNTER, SPAN, START
from uncia.experiment.plan import ExperimentPlan
from uncia.experiment.progress import Reporter
from uncia.experiment.runner import Outcome
from uncia.suites import lab
from uncia.suites.send import Answer
from uncia.units import NS_PER_MIN, NS_PER_MS, format_duration, format_size

_SEED: Final = 20250515
# Longer than any experiment: the work is collected, it does not end.
_ENDLESS: Final = "1h"
_BILLED_REQUESTS: Final = 5
_BILLED_CPU: Final = "200ms"
_GAP_NS: Final = 50 * NS_PER_MS


@dataclass(frozen=True)
class Settings:
    """What is measured.

    Attributes:
        behaviours: of ``freeze``, ``scale-down`` and ``run``.
        memory: of the function, bytes.
        idle_ns: from the answer that began work to the request that collects it.
        repeat: rounds of each behaviour.
        pause_after_ns: when the platform begins to treat an instance as idle; None: its default.
    """

    behaviours: Sequence[str]
    memory: int
    idle_ns: int
    repeat: int
    pause_after_ns: int | None = None


def document(settings: Settings) -> dict[str, Any]:
    """The experiment file of the first requests, which start the instances."""
    platform: dict[str, Any] = {
        "kind": "embedded",
        # No instance may end while it works.
        "keep_alive": format_duration(2 * settings.idle_ns + 10 * NS_PER_MIN),
    }
    if settings.pause_after_ns is not None:
        platform["pause_after"] = format_duration(settings.pause_after_ns)
    return {
        "name": "background",
        "description": (
            "Work in the background of an instance that idles, under each keep-alive behaviour. The"
            " requests that are measured are sent by `uncia cpu background`: one begins the work,"
            " the next collects it."
        ),
        "seed": _SEED,
        "platform": platform,
        "functions": {
            "background": {"source": "background", "memory": format_size(settings.memory)}
        },
        "experiments": {
            name: {
                "description": "Starts an instance.",
                "function": "background",
                "parameters": {"cpu": "0ms"},
                # The billed requests idle as well, but with nothing to do.
                "settings": {} if name == BILLED else {"keep_alive_cpu": name},
                "arrivals": {"kind": "burst", "sizes": [1], "bursts": 1, "interval": "1s"},
            }
            for name in (BILLED, *settings.behaviours)
        },
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
    made, sources = lab.planned(document(settings), "background")
    first = lab.warmups(made)
    idle = lab.Chain(
        requests=2 * settings.repeat, gap_ns=settings.idle_ns, longest_gap_ns=settings.idle_ns
    )
    short = lab.Chain(requests=_BILLED_REQUESTS, gap_ns=_GAP_NS, longest_gap_ns=_GAP_NS)
    chains = [
        lab.chain_plan(
            one.name,
            one.streams[0],
            short if one.name == BILLED else idle,
            {"cpu": _BILLED_CPU, "wait": 1} if one.name == BILLED else {"cpu": _ENDLESS},
            "The work is done within the request."
            if one.name == BILLED
            else "In turns a request that begins work in the background, and one that collects it.",
        )
        for one in made.experiments
    ]
    made = replace(made, experiments=[*first, *chains])
    rounds = _Rounds(settings)
    return lab.execute(
        made,
        sources,
        out=out,
        overwrite=overwrite,
        reporter=reporter,
        drivers={BILLED: rounds.billed, **dict.fromkeys(settings.behaviours, rounds.behaviour)},
    )


class _Rounds:
    """Sends the requests."""

    def __init__(self, settings: Settings) -> None:
        self._settings: Final = settings

    def billed(self, bench: lab.Bench, experiment: ExperimentPlan) -> None:
        """Requests that do the work within themselves."""
        sender = bench.sender(experiment.name)
        for _ in range(_BILLED_REQUESTS):
            sender.send(experiment.streams[0].event, at_ns=bench.clock.now() + _GAP_NS)

    def behaviour(self, bench: lab.Bench, experiment: ExperimentPlan) -> None:
        """Rounds of one behaviour."""
        sender = bench.sender(experiment.name)
        for _ in range(self._settings.repeat):
            begun = sender.send(
                experiment.streams[0].event, at_ns=bench.clock.now() + _GAP_NS, stage=START
            )
            if begun.outcome != "ok":
                continue
            collected = sender.send(
                {"cpu": "0ms"},
                at_ns=begun.received_ns + self._settings.idle_ns,
                parent=begun.invocation,
                stage=COLLECT,
            )
            _keep(bench, collected)


def _keep(bench: lab.Bench, answer: Answer) -> None:
    """What the function says of its work becomes a span and two readings of its clock."""
    told = answer.body.get("collected")
    if not isinstance(told, dict):
        return
    names = ("answer_ns", "answer_cpu_ns", "collect_ns", "cpu_ns")
    values = [value for name in names if isinstance(value := told.get(name), int)]
    if len(values) < len(names):
        return
    begin, begin_cpu, end, end_cpu = values
    epoch = bench.clock.epoch_unix_ns
    bench.rows.spans.append(
        {
            "invocation": answer.invocation,
            "name": SPAN,
            "start": begin - epoch,
            "end": end - epoch,
            "clock": "function",
        }
    )
    bench.counters.append((begin - epoch, COUNTER, answer.instance, float(begin_cpu)))
    bench.counters.append((end - epoch, COUNTER, answer.instance, float(end_cpu)))
