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
    """Hashes until this thread's CPU clock is at the target, and notes where it ended.

    A new thread's clock begins at 0.
    """
    clock = time.thread_time_ns
    while clock() < target_ns:
        hashlib.sha256(BLOCK).digest()
    used.append(clock())


def run(phase, ahead):
    """Carries out a phase; what it took, the others' CPU time, and how far this one is ahead.

    This thread is the first of the phase: it takes the memory, and the CPU time for that is part
    of what the phase asks of it. What it has used beyond that, as in a phase that sleeps, counts in
    the next phase.
    """
    begin, before = time.monotonic_ns(), time.thread_time_ns()
    asked = phase["duration"] if phase["threads"] else 0
    others = []
    threads = [
        threading.Thread(target=burn, args=(phase["duration"], others))
        for _ in range(phase["threads"] - 1)
    ]
    for thread in threads:
        thread.start()
    hold(phase["memory"])
    held = resident()
    burn(before + asked - ahead, [])
    if not phase["threads"]:
        left = begin + phase["duration"] - time.monotonic_ns()
        time.sleep(max(0, left) / 1e9)
    used = time.thread_time_ns() - before
    for thread in threads:
        thread.join()
    wall = time.monotonic_ns() - begin
    took = {"wall_ns": wall, "cpu_ns": used + sum(others), "resident_bytes": held}
    return took, others, ahead + used - asked


@enveloped({"phases": Phases()})
def handler(phases):
    measured, valid, ahead = [], True, 0
    for phase in parse("phases", phases):
        took, others, ahead = run(phase, ahead)
        measured.append(took)
        valid = valid and len(others) == max(0, phase["threads"] - 1)
        valid = valid and all(it >= phase["duration"] for it in others)
        if not phase["threads"]:
            # To the microsecond: the sleep's length goes through a float.
            valid = valid and took["wall_ns"] >= phase["duration"] - 1_000
    return {"measured": measured}, valid
