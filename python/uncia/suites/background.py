"""Lets a function work in the background of its keep-alive, under each of its behaviours.

A chain for each behaviour: one request begins work in a thread that goes on after the answer, and
after an idle time the next collects it. The function reports what the thread did as spans.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from uncia.bandwidth.background import BILLED, COLLECT, START
from uncia.suites.study import SEED, TIMEOUT_NS
from uncia.units import NS_PER_MIN, NS_PER_MS, format_duration, format_size

FIRST: Final = "first"
"""The experiment that starts the instances."""

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
    """The experiment file."""
    platform: dict[str, Any] = {
        "kind": "embedded",
        # No instance may end while it works.
        "keep_alive": format_duration(2 * settings.idle_ns + 10 * NS_PER_MIN),
    }
    if settings.pause_after_ns is not None:
        platform["pause_after"] = format_duration(settings.pause_after_ns)
    gap = format_duration(_GAP_NS)
    # The instance of the billed requests idles as well, but with nothing to do.
    instances = [{}, *({"keep_alive_cpu": name} for name in settings.behaviours)]
    experiments: dict[str, Any] = {
        FIRST: {
            "description": "Starts an instance for each of the experiments.",
            "mix": [
                {
                    "function": "background",
                    "parameters": {"cpu": "0ms"},
                    "settings": changed,
                    "arrivals": {"kind": "burst", "sizes": [1]},
                }
                for changed in instances
            ],
            "timeout": format_duration(TIMEOUT_NS),
        },
        BILLED: {
            "description": "The work is done within the request.",
            "function": "background",
            "parameters": {"cpu": _BILLED_CPU, "wait": 1},
            "closed": {"clients": 1, "requests": _BILLED_REQUESTS, "think": gap},
            "pause": gap,
            "timeout": format_duration(TIMEOUT_NS),
        },
    }
    for name in settings.behaviours:
        experiments[name] = {
            "description": (
                "In turns a request that begins work in the background, and one that collects it."
            ),
            "chain": name,
            "kind": "client",
            "closed": {"clients": 1, "requests": settings.repeat, "think": gap},
            "timeout": format_duration(TIMEOUT_NS),
        }
    return {
        "name": "background",
        "description": (
            "Work in the background of an instance that idles, under each keep-alive behaviour: one"
            " request begins it, the next collects it."
        ),
        "seed": SEED,
        "platform": platform,
        "functions": {
            "background": {"source": "background", "memory": format_size(settings.memory)}
        },
        "chains": {name: _round(name, settings.idle_ns) for name in settings.behaviours},
        "experiments": experiments,
    }


def _round(behaviour: str, idle_ns: int) -> dict[str, Any]:
    """The chain of one behaviour."""
    shared = {"function": "background", "settings": {"keep_alive_cpu": behaviour}}
    return {
        "stages": {
            START: {**shared, "parameters": {"cpu": _ENDLESS}},
            COLLECT: {
                **shared,
                "think": format_duration(idle_ns),
                "parameters": {"cpu": "0ms"},
            },
        }
    }
