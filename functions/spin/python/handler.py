"""Burns a given amount of CPU time, measured here, in the thread that burns it.

A loop count calibrated elsewhere would be wrong on another CPU, runtime or allocation. The
thread's own CPU clock stands still while the thread is descheduled or throttled.
"""

import time

from uncia_envelope import Parameter, enveloped
from uncia_memory import MB, hold

# Reading the CPU clock is a system call of some 0.3 us. 400 additions between two reads take some
# 10 us: that is how far the spin overshoots, and system time stays a few per cent.
STEPS_PER_READ = 400

# The CPU clock itself may jump: on a virtual machine, time stolen by the host can be charged to us.
EXCESS_NS = 10_000_000
EXCESS_SHARE = 0.1


def burn(start_ns, target_ns):
    """Spins until this thread has used `target_ns` of CPU time since `start_ns` of its clock."""
    clock = time.thread_time_ns
    used = clock() - start_ns
    x = 1
    while used < target_ns:
        for _ in range(STEPS_PER_READ):
            x += 1
        used = clock() - start_ns
    return used


@enveloped(
    {
        "cpu": Parameter(100, 0, 600_000, "ms", whole=False),
        "duration": Parameter(0, 0, 900_000, "ms", whole=False),
        "memory": Parameter(0, 0, 10_240, "MB", whole=False),
    }
)
def handler(cpu, duration, memory):
    target = round(cpu * 1_000_000)
    begin = time.monotonic_ns()
    start = time.thread_time_ns()
    hold(round(memory * MB))
    filled = time.thread_time_ns() - start
    used = burn(start, target)
    wall = time.monotonic_ns() - begin
    rest = round(duration * 1_000_000) - wall
    if rest > 0:
        time.sleep(rest / 1e9)
    # What taking the memory takes is part of the CPU time, and may be more than was asked for.
    most = max(target, filled)
    valid = target <= used <= most + max(EXCESS_NS, most * EXCESS_SHARE)
    return {"cpu_ns": used, "wall_ns": wall}, valid
