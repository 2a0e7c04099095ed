"""Points normalised, and their greatest coordinates."""

import math

POINTS = 20_000


def run(bench, repeat, prepared):
    for _ in range(repeat):
        most = bench.benchmark(POINTS)
    return most.x, most.y, most.z


def check(bench, prepared, most):
    greatest = [-2.0] * 3
    for i in range(POINTS):
        point = math.sin(i), 3 * math.cos(i), math.sin(i) ** 2 / 2
        length = math.hypot(*point)
        greatest = [max(old, value / length) for old, value in zip(greatest, point)]
    return all(abs(a - b) < 1e-12 for a, b in zip(most, greatest))
