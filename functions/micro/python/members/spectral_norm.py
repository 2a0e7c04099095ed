"""The spectral norm of an infinite matrix, cut off."""

# Of the Computer Language Benchmarks Game, for 100 rows.
NORM = 1.274219991


def run(bench, repeat, prepared):
    bench.bench_spectral_norm(repeat)


def check(bench, prepared, result):
    u = [1] * 100
    for _ in range(10):
        v = bench.eval_AtA_times_u(u)
        u = bench.eval_AtA_times_u(v)
    norm = (sum(a * b for a, b in zip(u, v)) / sum(b * b for b in v)) ** 0.5
    return abs(norm - NORM) < 1e-9
