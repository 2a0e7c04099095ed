"""Fast Fourier transforms."""

import cmath

FOLDER = "scimark"
POINTS = 1_024


def run(bench, repeat, prepared):
    bench.bench_FFT(repeat, POINTS, 5)


def check(bench, prepared, result):
    vector = bench.Random(7).RandomVector(2 * POINTS)
    mine = bench.copy_vector(vector)
    bench.FFT_transform(2 * POINTS, mine)
    numbers = [complex(vector[2 * n], vector[2 * n + 1]) for n in range(POINTS)]
    # Some of them by the definition.
    for k in (0, 1, 7, POINTS // 2, POINTS - 1):
        slow = sum(x * cmath.exp(-2j * cmath.pi * k * n / POINTS) for n, x in enumerate(numbers))
        if abs(slow - complex(mine[2 * k], mine[2 * k + 1])) > 1e-6:
            return False
    return True
