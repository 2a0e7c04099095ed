"""A puzzle of numbered hexagons: each number says how many neighbours a tile has."""

LEVEL = 25


def run(bench, repeat, prepared):
    # It compares its answer with the puzzle's published solution, and raises where they differ.
    bench.main(repeat, LEVEL)


def check(bench, prepared, result):
    rows = [row.split() for row in bench.LEVELS[LEVEL][1].strip("\n").splitlines()]
    tiles = {(x, y): text for y, row in enumerate(rows) for x, text in place(row, y, len(rows))}
    return all(text == "." or int(text) == neighbours(tiles, *at) for at, text in tiles.items())


def place(row, y, height):
    """The tiles of a row with their places in a grid whose axes are 120 degrees apart."""
    return enumerate(row, max(0, y - height // 2))


def neighbours(tiles, x, y):
    around = ((1, 0), (-1, 0), (0, 1), (0, -1), (1, 1), (-1, -1))
    return sum(tiles.get((x + dx, y + dy), ".") != "." for dx, dy in around)
