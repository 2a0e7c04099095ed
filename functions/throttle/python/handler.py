"""Watches the monotonic clock in a busy loop; where it jumps, this process did not run."""

import time

from uncia_envelope import Parameter, enveloped


def watch(duration_ns, threshold_ns):
    """Algorithm 1: the jumps as [time, gap], the start, the end and the turns of the loop."""
    clock = time.monotonic_ns
    jumps = []
    turns = 0
    start = last = clock()
    while True:
        now = clock()
        turns += 1
        if now - last >= threshold_ns:
            jumps.append([now, now - last])
        last = now
        if now - start >= duration_ns:
            return jumps, start, now, turns


def unix_offset():
    """What to add to the monotonic clock for Unix time; the closest of some pairs of readings."""
    pairs = []
    for _ in range(8):
        before = time.monotonic_ns()
        unix = time.time_ns()
        after = time.monotonic_ns()
        pairs.append((after - before, unix - (before + after) // 2))
    return min(pairs)[1]


@enveloped(
    {
        "duration": Parameter(1_000, 1, 600_000, "ms", whole=False),
        "threshold": Parameter(500, 10, 1_000_000, "us", whole=False),
    }
)
def handler(duration, threshold):
    offset = unix_offset()
    jumps, start, end, turns = watch(round(duration * 1_000_000), round(threshold * 1_000))
    spans = [["probe", start + offset, end + offset]]
    spans += [["throttle", time - gap + offset, time + offset] for time, gap in jumps]
    valid = all(start <= time - gap and time <= end for time, gap in jumps)
    return {
        "data": jumps,
        "t0": start,
        "end_ns": end,
        "iteration_counter": turns,
        "uncia": {"spans": spans},
    }, valid
