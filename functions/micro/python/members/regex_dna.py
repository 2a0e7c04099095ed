"""Patterns in a genome."""


def prepare(bench):
    return bench.init_benchmarks(100_000, 42)


def run(bench, repeat, genome):
    results = (bench.run_benchmarks(genome) for _ in range(repeat))
    return {(tuple(counts), *lengths) for counts, *lengths in results}


def check(bench, genome, results):
    # Of the Computer Language Benchmarks Game, for a genome of this length.
    expected = ((6, 26, 86, 58, 113, 31, 31, 32, 43), 1_016_745, 1_000_000, 1_336_326)
    return results == {expected}
