"""What the processor itself counts of functions, where it shows its counters (a PMU)."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final, Literal

import pyarrow as pa

from uncia import perf_events, record
from uncia.locality.targets import Target
from uncia.locality.work import Work

Structure = Literal["branch_predictor", "last_level_cache"]
Events = Mapping[str, perf_events.Event]

EVENTS: Final[Mapping[Structure, Events]] = {
    "branch_predictor": {
        "instructions": perf_events.HARDWARE_INSTRUCTIONS,
        "accesses": perf_events.HARDWARE_BRANCHES,
        "misses": perf_events.HARDWARE_BRANCH_MISSES,
    },
    "last_level_cache": {
        "instructions": perf_events.HARDWARE_INSTRUCTIONS,
        "accesses": perf_events.HARDWARE_CACHE_REFERENCES,
        "misses": perf_events.HARDWARE_CACHE_MISSES,
    },
}
"""What each column of the table ``locality`` counts."""

MODEL: Final = "pmu"

# Until its counters are open, the process is a shell that waits for a line.
_WAIT: Final = ("sh", "-c", 'read -r _ && exec "$@"', "sh")


def is_counted(events: Events) -> bool:
    """Whether the kernel counts these events here."""
    try:
        for event in events.values():
            os.close(perf_events.open_counter(event))
    except OSError:
        return False
    return True


def measure(
    targets: Sequence[Target],
    work: Work,
    structure: Structure,
    *,
    invocations: int,
    events: Events | None = None,
) -> pa.Table:
    """Run functions as they are, one after the other, and count what they do in user mode.

    Args:
        targets: the functions.
        work: where their processes run.
        structure: what is counted.
        invocations: of each, after its start.
        events: what each column counts, if not `EVENTS`.

    Returns:
        Rows of the table ``locality``, a row for the start and each invocation; none where the
        kernel does not count these events.

    Raises:
        UnciaError: a function failed.
    """
    chosen = EVENTS[structure] if events is None else events
    rows = []
    if is_counted(chosen):
        for target in targets:
            rows += _measure(target, work, structure, invocations, chosen)
    names = list(rows[0]) if rows else []
    if not rows:
        return record.empty("locality")
    return record.conform(pa.table({it: [row[it] for row in rows] for it in names}), "locality")


def _measure(
    target: Target, work: Work, structure: Structure, invocations: int, events: Events
) -> list[dict[str, Any]]:
    counters: dict[str, int] = {}
    readings: list[dict[str, int]] = []
    with ExitStack() as closing:

        def start(process: subprocess.Popen[bytes]) -> None:
            assert process.stdin is not None, "it is a pipe"
            for name, event in events.items():
                counters[name] = perf_events.open_counter(event, process.pid, from_exec=True)
                closing.callback(os.close, counters[name])
            process.stdin.write(b"\n")
            process.stdin.flush()

        def read() -> None:
            readings.append({name: perf_events.read_counter(counters[name]) for name in counters})

        command = [*_WAIT, *target.command]
        work.invoke(target, command, invocations, on_start=start, on_part=read)()
    size = cache_bytes() if structure == "last_level_cache" else None
    rows = []
    before = dict.fromkeys(events, 0)
    for part, now in enumerate(readings):
        counted = {name: now[name] - before[name] for name in events}
        before = now
        rows.append(
            {
                "function": target.label,
                "structure": structure,
                "model": MODEL,
                "bytes": size,
                "simulated": False,
                "sharers": 1,
                "part": part,
                "until": now["instructions"],
                **counted,
            }
        )
    return rows


def cache_bytes() -> int | None:
    """The size of this machine's last-level cache; None if the kernel does not say."""
    levels: dict[int, int] = {}
    for folder in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*"):
        try:
            level = int((folder / "level").read_text(encoding="ascii"))
            size = (folder / "size").read_text(encoding="ascii").strip()
        except (OSError, ValueError):
            continue
        if size.endswith("K") and size[:-1].isdigit():
            levels[level] = int(size[:-1]) << 10
    return levels[max(levels)] if levels else None
