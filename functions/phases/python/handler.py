"""Holds memory and runs threads, phase by phase, as a row of a trace says.

Threads hash blocks of 64 KiB: Python lets go of its lock meanwhile, so that they run side by side.
"""

import hashlib
import json
import threading
import time

from uncia_envelope import enveloped
from uncia_memory import MB, hold, resident

BLOCK = bytes(range(256)) * 256

MOST_PHASES = 1_000
# Of duration (ns), threads and memory (bytes).
MOST = {"duration": 900 * 10**9, "threads": 256, "memory": 10_240 * MB}


def parse(name, given):
    """The phases of a list, or of JSON text of one. Raises ValueError with the parameter's name."""
    if isinstance(given, str):
        try:
            given = json.loads(given)
        except ValueError:
            raise ValueError(f"{name}: the text is no JSON") from None
    if not isinstance(given, list) or not 1 <= len(given) <= MOST_PHASES:
        raise ValueError(f"{name}: not a list of 1 to {MOST_PHASES} phases")
    for number, phase in enumerate(given):
        if not isinstance(phase, dict) or set(phase) != set(MOST):
            raise ValueError(f"{name}: phase {number} has not duration, threads and memory")
        for key, most in MOST.items():
            value = phase[key]
            if type(value) is not int or not 0 <= value <= most:
                raise ValueError(
                    f"{name}: {key} of phase {number} is no whole number from 0 to {most}"
                )
    return given


class Phases:
    """The parameter of the event; it stays as it was given."""

    default = '[{"duration": 50000000, "threads": 1, "memory": 67108864}]'

    def read(self, name, given):
        """What was given, once it is known to be phases."""
        parse(name, given)
        return given


def burn(target_ns, used):
    """Hashes until this thread has used the CPU time, and notes how much it was."""
    clock = time.thread_time_ns
    while clock() < target_ns:
        hashlib.sha256(BLOCK).digest()
    used.append(clock())


def run(phase):
    """Carries out a phase; what it took."""
    begin = time.monotonic_ns()
    hold(phase["memory"])
    held = resident()
    used = []
    threads = [
        threading.Thread(target=burn, args=(phase["duration"], used))
        for _ in range(phase["threads"])
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if not threads:
        time.sleep(phase["duration"] / 1e9)
    wall = time.monotonic_ns() - begin
    return {"wall_ns": wall, "cpu_ns": sum(used), "resident_bytes": held}, used


@enveloped({"phases": Phases()})
def handler(phases):
    measured, valid = [], True
    for phase in parse("phases", phases):
        took, used = run(phase)
        measured.append(took)
        valid = valid and len(used) == phase["threads"]
        valid = valid and all(it >= phase["duration"] for it in used)
        if not used:
            # To the microsecond: the sleep's length goes through a float.
            valid = valid and took["wall_ns"] >= phase["duration"] - 1_000
    return {"measured": measured}, valid
