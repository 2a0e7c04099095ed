"""Measures a long task and the same task in bursts on the embedded platform.

One run: the instance is started, what a frame and an empty request cost in CPU time is measured at
the size in question, and from that follow the frames of the task and of a burst. Then the two ways
take turns, so that a machine that changes its pace changes it for both.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import ceil
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from uncia.bandwidth.intermittent import BURSTS, LONG, stage
from uncia.bandwidth.overallocation import quota_ns
from uncia.errors import RunFailedError, UnciaError
from uncia.experiment.plan import ExperimentPlan
from uncia.experiment.progress import Reporter
from uncia.experiment.runner import Outcome
from uncia.providers import LAMBDA, LAMBDA_MB
from uncia.record.selection import of_experiments
from uncia.stats.quantiles import quantiles_of
from uncia.suites import lab
from uncia.suites.send import Answer, Sender
from uncia.units import MIB, MICRO_PER_VCPU, NS_PER_MS, format_duration, format_size

EMPTY: Final = "empty"
SAMPLE: Final = "sample"

MARGIN: Final = 0.1
"""Of the quota, left free for what varies from burst to burst."""

_SAMPLES: Final = 25
_SAMPLE_FRAMES: Final = 8
_SEED: Final = 20250515
_LEAST_QUOTA_NS: Final = NS_PER_MS  # of the kernel (docs/reference/sandbox)


@dataclass(frozen=True)
class Settings:
    """What is measured.

    Attributes:
        memory: of the function, bytes.
        cpu_ns: CPU time of the task, about.
        bursts: how many; None: as few as fit the quota.
        repeat: tasks of each way.
        period_ns: of the quota.
        margin: share of the quota that a burst leaves free.
    """

    memory: int = 128 * MIB
    cpu_ns: int = 200 * NS_PER_MS
    bursts: int | None = None
    repeat: int = 100
    period_ns: int = LAMBDA.period_ns
    margin: float = MARGIN

    @property
    def quota_ns(self) -> int:
        """CPU time in a period.

        Raises:
            UnciaError: the size has a whole CPU, or less than the kernel's smallest quota.
        """
        cpu_micro = self.memory // MIB * MICRO_PER_VCPU // LAMBDA_MB
        if cpu_micro >= MICRO_PER_VCPU:
            raise UnciaError(
                f"{format_size(self.memory)} has a whole vCPU, so nothing is held back",
                hint=f"Choose a size below {LAMBDA_MB}MB.",
            )
        quota = quota_ns(cpu_micro, self.period_ns)
        if quota < _LEAST_QUOTA_NS:
            raise UnciaError(
                f"{format_size(self.memory)} has {format_duration(quota)} of CPU in each"
                f" {format_duration(self.period_ns)}; the kernel's smallest quota is 1ms",
                hint="Choose a larger size or a longer period.",
            )
        return quota


@dataclass(frozen=True)
class Cut:
    """How a task is cut.

    Attributes:
        frames: of the task.
        bursts: frames of each burst, in order.
    """

    frames: int
    bursts: tuple[int, ...]


def cut(settings: Settings, frame_ns: float, request_ns: float) -> Cut:
    """Cut a task so that each burst fits the quota.

    Args:
        settings: the size, the task and the margin.
        frame_ns: CPU time of one frame.
        request_ns: CPU time of a request without any frame.

    Raises:
        UnciaError: a burst would not hold one frame, or there are more bursts than frames.
    """
    frames = max(1, round(settings.cpu_ns / frame_ns))
    if settings.bursts is None:
        room = settings.quota_ns * (1 - settings.margin) - request_ns
        each = int(room // frame_ns)
        if each < 1:
            raise UnciaError(
                f"a burst of one frame ({frame_ns / 1e6:.3f} ms) and what a request takes"
                f" ({request_ns / 1e6:.3f} ms) do not fit the quota of"
                f" {settings.quota_ns / 1e6:.3f} ms less {settings.margin:.0%}",
                hint="Choose a larger size, a smaller --margin, or a number of --bursts.",
            )
        count = ceil(frames / each)
    else:
        count = settings.bursts
    if count > frames:
        raise UnciaError(
            f"the task has {frames} frames, which cannot be cut into {count} bursts",
            hint="Give it more --cpu-time, or fewer --bursts.",
        )
    least, more = divmod(frames, count)
    return Cut(frames, tuple(least + (number < more) for number in range(count)))


def document(settings: Settings) -> dict[str, Any]:
    """The experiment file of the part that needs no answers: what a frame and a request cost."""
    period_us = settings.period_ns // 1000
    arrivals = {
        "kind": "uniform",
        "min_gap": format_duration(2 * settings.period_ns),
        "max_gap": format_duration(4 * settings.period_ns),
        "duration": format_duration(_SAMPLES * 3 * settings.period_ns),
    }
    function = {"source": "intermittent", "memory": format_size(settings.memory)}
    return {
        "name": "intermittent",
        "description": (
            "A task once as one invocation and once in bursts that each fit the CPU quota. The"
            f" experiments {LONG} and {BURSTS} are sent by `uncia cpu intermittent`, because each"
            " burst goes on from the answer before."
        ),
        "seed": _SEED,
        # Frozen instances need time to thaw, which is not what is measured here.
        "platform": {"kind": "embedded", "period": f"{period_us}us", "pause_after": "60s"},
        "functions": {"intermittent": function},
        "experiments": {
            EMPTY: {
                "description": "What a request costs in CPU time that does no frame.",
                "function": "intermittent",
                "parameters": {"frames": 0},
                "arrivals": arrivals,
                "warmup": {"kind": "burst", "sizes": [1]},
            },
            SAMPLE: {
                "description": f"The same with {_SAMPLE_FRAMES} frames.",
                "function": "intermittent",
                "parameters": {"frames": _SAMPLE_FRAMES},
                "arrivals": arrivals,
            },
        },
    }


def calibrated(rows: pa.Table) -> tuple[float, float]:
    """CPU time of a frame and of an empty request, in ns, from the rows of both samples.

    The frame's is a difference of means; the request's is the 95th percentile, for a burst has to
    fit with it.

    Raises:
        RunFailedError: CPU time was not measured, or frames cost none.
    """
    import numpy as np

    used: dict[str, Any] = {}
    for name in (EMPTY, SAMPLE):
        own = of_experiments(rows, [name])
        times = [
            user + system
            for user, system in zip(
                own.column("cpu_user").to_pylist(),
                own.column("cpu_system").to_pylist(),
                strict=True,
            )
            if user is not None and system is not None
        ]
        if not times:
            raise RunFailedError(
                "the platform did not measure CPU time",
                hint="`uncia doctor` says what this machine lacks.",
            )
        used[name] = np.array(times)
    frame = (used[SAMPLE].mean() - used[EMPTY].mean()) / _SAMPLE_FRAMES
    if frame <= 0:
        raise RunFailedError("frames took no CPU time, so a task cannot be made of them")
    return float(frame), quantiles_of(used[EMPTY], [0.95])[0]


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
        UnciaError: the settings fit nothing, or the folder cannot be written.
    """
    _ = settings.quota_ns  # refused before anything starts
    made, sources = lab.planned(document(settings), "intermittent")
    like = made.experiments[-1].streams[0]
    gap = lab.Chain(requests=settings.repeat, gap_ns=0, longest_gap_ns=0)
    chains = [
        lab.chain_plan(name, like, gap, {}, f"Sent in turns with {other}.")
        for name, other in ((LONG, BURSTS), (BURSTS, LONG))
    ]
    made = replace(made, experiments=[*made.experiments, *chains])
    turns = _Turns(settings)
    return lab.execute(
        made,
        sources,
        out=out,
        overwrite=overwrite,
        reporter=reporter,
        drivers={LONG: turns.nothing, BURSTS: turns.both},
        prepare={LONG: turns.prepare},
    )


class _Turns:
    """Sends both ways in turns."""

    def __init__(self, settings: Settings) -> None:
        self._settings: Final = settings
        self._cut = Cut(0, ())

    def prepare(self, run: lab.Lab) -> None:
        """Cut the task by what was measured, and let the plan say so."""
        frame, request = calibrated(run.measured())
        self._cut = cut(self._settings, frame, request)
        frames, count = self._cut.frames, len(self._cut.bursts)
        repeat, period = self._settings.repeat, self._settings.period_ns
        told = {one.name: one for one in run.plan.experiments}
        measured = (
            f"A frame took {frame / 1e3:.1f} us of CPU time, a request without frames at most"
            f" {request / 1e3:.0f} us (95th percentile)."
        )
        run.reporter.note(f"{measured} A task: {frames:,} frames, in {count:,} bursts.")
        changed = {}
        for name, each, requests in (
            (LONG, frames, repeat),
            (BURSTS, max(self._cut.bursts), repeat * count),
        ):
            stream = replace(
                told[name].streams[0],
                arrivals=lab.Chain(requests=requests, gap_ns=period, longest_gap_ns=2 * period),
                event={"first": 0, "frames": each, "digest": 0},
            )
            changed[name] = replace(
                told[name],
                streams=[stream],
                description=(
                    f"{repeat} tasks of {frames:,} frames, each as one request."
                    if name == LONG
                    else f"{repeat} tasks of {frames:,} frames, each in {count:,} requests of at"
                    f" most {each} frames that go on from the answer before."
                )
                + f" The two ways take turns. {measured}",
            )
        run.redefine(changed)

    def nothing(self, bench: lab.Bench, experiment: ExperimentPlan) -> None:
        """The long tasks are sent in turns with the bursts."""

    def both(self, bench: lab.Bench, experiment: ExperimentPlan) -> None:
        """Send every task in both ways, each request a period or more after the answer before."""
        rng = random.Random(bench.seed)
        period = self._settings.period_ns
        long, bursts = bench.sender(LONG), bench.sender(BURSTS)

        def due(answer: Answer | None) -> int:
            """A time at which the quota is there again, at any phase of the period."""
            last = bench.clock.now() if answer is None else answer.received_ns
            return last + period + rng.randrange(period)

        last: Answer | None = None
        for number in range(self._settings.repeat):
            event = {"first": 0, "frames": self._cut.frames, "digest": 0}
            last = whole = long.send(event, at_ns=due(last), stage=LONG)
            last = self._chain(bursts, due, last)
            if whole.outcome == last.outcome == "ok" and _differ(whole, last):
                _spoil(bench, last)
            if (number + 1) % 10 == 0:
                bench.note(f"    {number + 1} of {self._settings.repeat} tasks, each both ways")

    def _chain(self, sender: Sender, due: Any, last: Answer) -> Answer:
        """One task in bursts; ends when one fails, for then there is no state to go on from."""
        state: Mapping[str, Any] = {"next": 0, "digest": 0}
        parent: str | None = None
        count = len(self._cut.bursts)
        for number, frames in enumerate(self._cut.bursts):
            last = sender.send(
                {"first": state.get("next"), "frames": frames, "digest": state.get("digest")},
                at_ns=due(last),
                parent=parent,
                stage=stage(number, count),
            )
            if last.outcome != "ok":
                return last
            state, parent = last.body, last.invocation
        return last


def _differ(whole: Answer, parts: Answer) -> bool:
    return any(whole.body.get(key) != parts.body.get(key) for key in ("next", "digest"))


def _spoil(bench: lab.Bench, answer: Answer) -> None:
    """A task whose result differs from that of the other way has failed."""
    for row in reversed(bench.rows.invocations):
        if row["invocation"] == answer.invocation:
            row["outcome"] = "function_error"
            row["error"] = "the thumbnails differ from those of the same task as one request"
            return
