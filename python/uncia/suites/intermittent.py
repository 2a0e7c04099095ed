"""Measures a long task and the same task in bursts on the embedded platform.

One run: the instance is started, what a frame and an empty request cost in CPU time is measured at
the size in question, and from that follow the frames of the task and of a burst. Then a chain sends
the task as one request and in bursts, in turns, so that a machine that changes its pace changes it
for both.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil
from typing import Any, Final

import pyarrow as pa

from uncia.bandwidth.intermittent import LONG, TASKS, stage
from uncia.bandwidth.overallocation import quota_ns
from uncia.errors import RunFailedError, UnciaError
from uncia.experiment.progress import Reporter
from uncia.profiles.cpu import LAMBDA
from uncia.providers import LAMBDA_MB, lambda_cpu
from uncia.record.selection import of_experiments
from uncia.stats.quantiles import quantiles_of
from uncia.suites.study import SEED, TIMEOUT_NS
from uncia.text import plural
from uncia.units import MIB, MICRO_PER_VCPU, NS_PER_MS, format_duration, format_size

EMPTY: Final = "empty"
SAMPLE: Final = "sample"

MARGIN: Final = 0.1
"""Of the quota, left free for what varies from burst to burst."""

_SAMPLES: Final = 25
_SAMPLE_FRAMES: Final = 8
_MIN_QUOTA_NS: Final = NS_PER_MS  # of the kernel (docs/reference/sandbox)


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
        cpu_micro = lambda_cpu(self.memory)
        if cpu_micro >= MICRO_PER_VCPU:
            raise UnciaError(
                f"{format_size(self.memory)} has a whole vCPU, so nothing is held back",
                hint=f"Choose a size below {LAMBDA_MB}MB.",
            )
        quota = quota_ns(cpu_micro, self.period_ns)
        if quota < _MIN_QUOTA_NS:
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
    """The experiment file of the samples: what a frame and an empty request cost.

    Raises:
        UnciaError: the settings fit no quota.
    """
    _ = settings.quota_ns  # refused before anything starts
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
            "A task once as one invocation and once in bursts that each fit the CPU quota, cut by"
            " what the first experiments measure."
        ),
        "seed": SEED,
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


def whole_document(settings: Settings, task: Cut, measured: str) -> dict[str, Any]:
    """The experiment file with the tasks: a chain of the whole task and then its bursts.

    Args:
        settings: the size and how often.
        task: how the task is cut.
        measured: what that was made of, in a sentence.
    """
    samples = document(settings)
    count = len(task.bursts)
    # The quota is there again then, at any phase of the period.
    think = {
        "min": format_duration(settings.period_ns),
        "max": format_duration(2 * settings.period_ns),
    }
    experiment = {
        "description": (
            f"{plural(settings.repeat, 'task')} of {plural(task.frames, 'frame')}, each as one"
            f" request and then in {count:,} of at most {max(task.bursts):,} frames that go on"
            f" from the answer before. {measured}"
        ),
        "chain": TASKS,
        "kind": "client",
        "closed": {"clients": 1, "requests": settings.repeat, "think": think},
        "pause": think["min"],
        "timeout": format_duration(TIMEOUT_NS),
    }
    return {
        **samples,
        "chains": {TASKS: {"stages": _stages(task, think)}},
        "experiments": {**samples["experiments"], TASKS: experiment},
    }


def _stages(task: Cut, think: Mapping[str, str]) -> dict[str, Any]:
    """One request for the whole task; bursts, of which the last checks that both came to the same.

    Each waits for the one above it.
    """
    stages: dict[str, Any] = {
        LONG: {"function": "intermittent", "parameters": {"frames": task.frames}}
    }
    count = len(task.bursts)
    for number, frames in enumerate(task.bursts):
        parameters: dict[str, Any] = {"frames": frames}
        if number > 0:
            parameters |= {"first": "{{answer.next}}", "digest": "{{answer.digest}}"}
        if number == count - 1:
            parameters["expected"] = f"{{{{answers.{LONG}.digest}}}}"
        stages[stage(number, count)] = {
            "function": "intermittent",
            "think": dict(think),
            "parameters": parameters,
        }
    return stages


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
        sample = of_experiments(rows, [name])
        times = [
            user + system
            for user, system in zip(
                sample.column("cpu_user").to_pylist(),
                sample.column("cpu_system").to_pylist(),
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


def go_on(settings: Settings, rows: pa.Table, reporter: Reporter) -> dict[str, Any]:
    """The experiment file with the tasks, cut by what the samples took.

    Args:
        settings: what is measured.
        rows: those of the samples, with the platform's columns.
        reporter: receives a note of how the task is cut.

    Raises:
        UnciaError: the samples were not measured, or no burst fits the quota.
    """
    frame, request = calibrated(rows)
    task = cut(settings, frame, request)
    measured = (
        f"A frame took {frame / 1e3:.1f} us of CPU time, a request without frames at most"
        f" {request / 1e3:.0f} us (95th percentile)."
    )
    frames, bursts = plural(task.frames, "frame"), plural(len(task.bursts), "burst")
    reporter.note(f"{measured} A task: {frames}, in {bursts}.")
    return whole_document(settings, task, measured)
