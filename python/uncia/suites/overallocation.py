"""Measures a function at many memory sizes on the embedded platform, one request at a time.

The experiment is a chain whose stages are the sizes, in a closed loop of one client. So requests
visit the sizes in turn, and a machine that changes its pace changes it for all of them; and each
waits a random part of the quota's period after the answer before, so that it begins at any phase.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from uncia.bandwidth.overallocation import EVENT_DRIVEN
from uncia.bandwidth.sizes import memory_spread
from uncia.errors import UnciaError
from uncia.providers import LAMBDA_MB, LAMBDA_MIN_MB
from uncia.suites.study import SEED, TIMEOUT_NS
from uncia.units import format_duration

SIZES: Final = "sizes"
"""The experiment, and its chain."""

_VISITS_AT_ONE_VCPU: Final = 4


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
    chosen = memory_spread(text, count)
    if min(chosen) < LAMBDA_MIN_MB:
        raise UnciaError(f"--memory: the platform's smallest size is {LAMBDA_MIN_MB}MB")
    if max(chosen) < LAMBDA_MB:
        chosen.append(LAMBDA_MB)
    if min(chosen) >= LAMBDA_MB:
        raise UnciaError(f"--memory: from {LAMBDA_MB}MB on a function has a whole vCPU")
    return sorted(set(chosen))


def document(settings: Settings) -> dict[str, Any]:
    """The experiment file."""
    visits = [
        (size, enforcement)
        for enforcement in settings.enforcement
        for size in settings.memory_mb
        # Every model rests on the rows at a whole vCPU.
        for _ in range(_VISITS_AT_ONE_VCPU if size >= LAMBDA_MB else 1)
    ]
    random.Random(SEED).shuffle(visits)
    think = {"min": "0ns", "max": format_duration(settings.period_ns - 1)}
    stages: dict[str, Any] = {}
    for size, enforcement in visits:
        changed: dict[str, Any] = {"memory": f"{size}MB"}
        name = f"at-{size}"
        if enforcement == EVENT_DRIVEN:
            changed["enforcement"] = EVENT_DRIVEN
            name += "-event"
        again = sum(1 for other in stages if other == name or other.startswith(f"{name}-again"))
        stages[f"{name}-again-{again}" if again else name] = {
            "function": settings.function,
            "settings": changed,
            "think": think,
            # A size at which every request fails must not hide those that come after it.
            "after_failures": True,
        }
    # The client thinks before the first, which waits for no other.
    first = next(iter(stages.values()))
    del first["think"], first["after_failures"]
    deployments = len({(size, enforcement) for size, enforcement in visits})
    return {
        "name": "overallocation",
        "description": (
            f"{settings.function} at {len(settings.memory_mb)} memory sizes, one request at a time,"
            " the sizes in turn. Each request waits a random part of a period after the answer"
            " before, of whichever size."
        ),
        "seed": SEED,
        # Frozen instances need time to thaw, which is not what is measured here.
        "platform": {
            "kind": "embedded",
            "period": format_duration(settings.period_ns),
            "pause_after": "1h",
            "keep_alive": "2h",
            "max_instances": deployments + 1,
        },
        "functions": {settings.function: {"source": settings.function}},
        "chains": {SIZES: {"stages": stages}},
        "experiments": {
            SIZES: {
                "chain": SIZES,
                "kind": "client",
                "closed": {"clients": 1, "requests": settings.samples, "think": think},
                # Starts the instances.
                "warmup": {"kind": "burst", "sizes": [1]},
                "timeout": format_duration(TIMEOUT_NS),
            }
        },
    }
