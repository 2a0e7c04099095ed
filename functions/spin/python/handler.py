"""Burns a given amount of CPU time, measured here, in the thread that burns it.

A loop count calibrated elsewhere would be wrong on another CPU, runtime or allocation. The
thread's own CPU clock stands still while the thread is descheduled or throttled.
"""

import time

from uncia_envelope import Parameter, enveloped

# Reading the CPU clock is a system call of some 0.3 us. 400 additions between two reads take some
# 10 us: that is how far the spin overshoots, and system time stays a few per cent.
STEPS_PER_READ = 400

# The CPU clock itself may jump: on a virtual machine, time stolen by the host can be charged to us.
EXCESS_NS = 10_000_000
EXCESS_SHARE = 0.1


def burn(target_ns):
    """Spins until this thread has used `target_ns` of CPU time; returns what it used, in ns."""
    clock = time.thread_time_ns
    start = clock()
    used = 0
    x = 1
    while used < target_ns:
        for _ in range(STEPS_PER_READ):
            x += 1
        used = clock() - start
    return used


@enveloped({"cpu": Parameter(100, 0, 600_000, "ms", whole=False)})
def handler(cpu):
    target = round(cpu * 1_000_000)
    wall = time.monotonic_ns()
    used = burn(target)
    wall = time.monotonic_ns() - wall
    valid = target <= used <= target + max(EXCESS_NS, target * EXCESS_SHARE)
    return {"cpu_ns": used, "wall_ns": wall}, valid
