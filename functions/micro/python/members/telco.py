"""Telephone bills in decimal numbers."""

import os
import struct


def prepare(bench):
    return os.path.join(os.path.dirname(bench.__file__), "data", "telco-bench.b")


def run(bench, repeat, path):
    bench.bench_telco(repeat, path)


def check(bench, path, result):
    printed = []
    bench.print = lambda total, file: printed.append(total)
    try:
        bench.bench_telco(1, path)
    finally:
        del bench.print
    with open(path, "rb") as file:
        calls = struct.unpack(">5000Q", file.read(40_000))
    # In whole hundredths of a cent's thousandth, without decimal numbers.
    return [round(100 * total) for total in printed] == [bill(seconds) for seconds in calls]


def bill(seconds):
    """What a call costs in cents: half even, then taxes that are cut off."""
    far = seconds & 1
    price = seconds * (894 if far else 130)  # in thousandths of a cent
    cents, rest = divmod(price, 1_000)
    cents += rest > 500 or (rest == 500 and cents & 1)
    return cents + cents * 675 // 10_000 + (cents * 341 // 10_000 if far else 0)
