"""The sections of a run's report: each module turns a run into one part of the page.

A section says what it shows even when there is little to show; it returns None only where the
run has nothing of its kind at all and nobody would miss it.
"""

from collections.abc import Callable
from typing import Final, TypeAlias

from uncia.report.data import RunData
from uncia.report.page import Section
from uncia.report.sections import client, latency, machine, memory, money, time

Maker: TypeAlias = Callable[[RunData], Section | None]

SECTIONS: Final[tuple[Maker, ...]] = (
    latency.overview,
    latency.distributions,
    latency.ratios,
    latency.bursts,
    time.breakdown,
    time.startup,
    memory.scaling,
    money.bills,
    time.alive,
    client.lag,
    client.outcomes,
    machine.machine,
)
"""In the order of the page."""
