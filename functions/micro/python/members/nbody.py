"""Planets that move by gravity."""

import copy

# Of the Computer Language Benchmarks Game: before, and after a thousand steps.
BEFORE, AFTER = -0.169075164, -0.169087605


def prepare(bench):
    return copy.deepcopy(bench.SYSTEM)


def run(bench, repeat, start):
    results = set()
    for _ in range(repeat):
        bodies = copy.deepcopy(start)
        pairs = bench.combinations(bodies)
        bench.offset_momentum(bodies[0], bodies)
        before = bench.report_energy(bodies, pairs)
        bench.advance(0.01, 1_000, bodies, pairs)
        results.add((before, bench.report_energy(bodies, pairs)))
    return results


def check(bench, start, results):
    return all(abs(a - BEFORE) < 1e-8 and abs(b - AFTER) < 1e-8 for a, b in results)
