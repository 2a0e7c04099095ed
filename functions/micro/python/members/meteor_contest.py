"""Ten pieces that cover a board."""


def prepare(bench):
    board, turned, pieces = bench.get_puzzle(bench.WIDTH, bench.HEIGHT)
    footprints = bench.get_footprints(board, turned, pieces)
    return board, pieces, footprints, bench.get_senh(board, turned)


def run(bench, repeat, prepared):
    board, pieces, footprints, edge = prepared
    # It compares its solutions with published ones, and raises where they differ.
    bench.bench_meteor_contest(repeat, board, pieces, bench.SOLVE_ARG, footprints, edge)


def check(bench, prepared, result):
    fifty = [bench.SOLUTIONS[0], bench.SOLUTIONS[-1]]
    return all(sorted(solution) == sorted("0123456789" * 5) for solution in fifty)
