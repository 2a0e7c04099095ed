"""Takes memory, touches every page of it, holds it for a time, and says what the kernel counted."""

import mmap
import time

from uncia_envelope import Parameter, enveloped

MB = 1 << 20

# The kernel keeps resident-set counts per CPU and adds them up late; 1 MB and 5 % cover that.
SLACK_BYTES = MB
SLACK_SHARE = 0.05


def resident():
    """This process's resident set now and at its peak, in bytes; None where it is not available."""
    try:
        with open("/proc/self/status", encoding="ascii") as status:
            fields = dict(line.split(":", 1) for line in status)
        return tuple(int(fields[key].split()[0]) * 1024 for key in ("VmRSS", "VmHWM"))
    except (OSError, KeyError):
        return None, None


def reset_peak():
    """Asks the kernel to count the peak anew from now on; says whether it did."""
    try:
        with open("/proc/self/clear_refs", "w", encoding="ascii") as refs:
            refs.write("5")
        return True
    except OSError:
        return False


@enveloped(
    {"size": Parameter(64, 1, 10_240, "MB"), "hold": Parameter(100, 0, 900_000, "ms", whole=False)}
)
def handler(size, hold):
    since_start = not reset_peak()
    before, _ = resident()
    try:
        region = mmap.mmap(-1, size * MB)
    except OSError as error:
        raise MemoryError(f"the kernel refused {size} MB: {error.strerror}") from None
    with region:
        pages = size * MB // mmap.PAGESIZE
        region[:: mmap.PAGESIZE] = b"\x01" * pages
        start = time.monotonic_ns()
        time.sleep(hold / 1000)
        held = time.monotonic_ns() - start
        now, peak = resident()
        valid = region[:: mmap.PAGESIZE].count(1) == pages
    if now is not None:
        # The peak, not what is resident now: pages may have been swapped out while they were held.
        valid = valid and peak - before >= size * MB * (1 - SLACK_SHARE) - SLACK_BYTES
    result = {
        "held_ns": held,
        "rss_before_bytes": before,
        "rss_held_bytes": now,
        "rss_peak_bytes": peak,
        "peak_since_process_start": since_start,
    }
    return result, valid
