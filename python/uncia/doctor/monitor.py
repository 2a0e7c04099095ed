"""What the monitor `machine` says of a run's noise: its counters, and sentences."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from uncia.doctor.monitors import Asked
from uncia.doctor.noise import BACKGROUND_PERCENT, PRESSURE_PERCENT, STEAL_PERCENT
from uncia.units import NS_PER_S

if TYPE_CHECKING:
    import pyarrow as pa

STEAL: Final = "cpu.steal_percent"
BACKGROUND: Final = "cpu.background_percent"
BUSY: Final = "cpu.busy_percent"
IOWAIT: Final = "cpu.iowait_percent"
LOAD: Final = "load.1m"
AVAILABLE: Final = "memory.available_bytes"

NOISE: Final = "noise"
"""What rows call the monitor that watches beside every run."""

ASKED: Final = Asked("machine", NS_PER_S, name=NOISE)
"""That monitor: a sample each second."""


def warnings(rows: pa.Table) -> list[str]:
    """Return a sentence for each kind of noise that exceeded its threshold on average.

    Args:
        rows: of the table ``machine``; those of other monitors are left out.
    """
    values: dict[str, list[float]] = {}
    for row in rows.select(["monitor", "counter", "value"]).to_pylist():
        if row["monitor"] == NOISE:
            values.setdefault(row["counter"], []).append(row["value"])
    means = {counter: sum(of) / len(of) for counter, of in values.items()}
    peaks = {counter: max(of) for counter, of in values.items()}
    sentences = []
    if means.get(STEAL, 0.0) > STEAL_PERCENT:
        sentences.append(
            f"During the run the host kept {means[STEAL]:.1f} % of the CPU time for others "
            f"(steal; {peaks[STEAL]:.0f} % in the worst second). Tail latencies are longer "
            "than the platform's own."
        )
    if means.get(BACKGROUND, 0.0) > BACKGROUND_PERCENT:
        sentences.append(
            f"During the run other processes used {means[BACKGROUND]:.1f} % of the CPU time "
            f"({peaks[BACKGROUND]:.0f} % in the worst second). They competed with the "
            "functions and with the load generator."
        )
    for resource, name in (("memory", "memory"), ("io", "input and output")):
        counter = pressure_counter(resource)
        if means.get(counter, 0.0) > PRESSURE_PERCENT:
            sentences.append(
                f"During the run tasks waited for {name} {means[counter]:.1f} % of the time "
                f"({peaks[counter]:.0f} % in the worst second)."
            )
    return sentences


def pressure_counter(resource: str) -> str:
    """Return the counter of the time in which tasks waited for ``cpu``, ``memory`` or ``io``."""
    return f"pressure.{resource}_percent"
