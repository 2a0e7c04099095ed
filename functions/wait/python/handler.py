"""Sleeps a given wall-clock time and uses next to no CPU: an invocation that holds its instance."""

from time import monotonic_ns, sleep

from uncia_envelope import Parameter, enveloped


@enveloped({"time": Parameter(1000, 0, 900_000, "ms", whole=False)})
def handler(time):
    start = monotonic_ns()
    sleep(time / 1000)
    waited = monotonic_ns() - start
    # To the microsecond: the sleep's length goes through a float.
    return {"wall_ns": waited}, waited >= time * 1_000_000 - 1_000
