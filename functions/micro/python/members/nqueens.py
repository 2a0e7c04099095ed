"""Queens on a board that do not threaten each other."""


def run(bench, repeat, prepared):
    return {len(list(bench.n_queens(8))) for _ in range(repeat)}


def check(bench, prepared, counts):
    return counts == {92}  # known since 1850
