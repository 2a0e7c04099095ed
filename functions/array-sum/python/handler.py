"""Adds one to the sum of the stages before it."""

from uncia_envelope import Parameter, enveloped


@enveloped({"n": Parameter(0, 0, 1_000_000), "expected": Parameter(0, 0, 1_000_001)})
def handler(n, expected):
    if expected not in (0, n + 1):
        raise ValueError(f"expected: the sum is {n + 1}, not {expected}")
    return {"sum": n + 1}, True
