"""The most flips of a prefix that any permutation takes."""

# OEIS A000375, from 1 on.
MOST = [0, 1, 2, 4, 7, 10, 16, 22, 30, 38]
N = 8


def run(bench, repeat, prepared):
    return {bench.fannkuch(N) for _ in range(repeat)}


def check(bench, prepared, results):
    return results == {MOST[N - 1]}
