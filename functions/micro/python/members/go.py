"""A move in Go by Monte Carlo tree search."""


def run(bench, repeat, prepared):
    return {bench.versus_cpu() for _ in range(repeat)}


def check(bench, prepared, moves):
    # Which move is best is not known otherwise; that its games keep the rules can be seen.
    (move,) = moves
    board = bench.Board()
    if not 0 <= move < bench.SIZE**2:
        return False
    board.move(move)
    for _ in range(60):
        position = board.random_move()
        if position == bench.PASS:
            break
        board.move(position)
    return has_liberties([square.color for square in board.squares], bench.SIZE, bench.EMPTY)


def has_liberties(colors, size, empty):
    """Whether every group of stones touches an empty point, as the rules ask."""
    seen = set()
    for start, color in enumerate(colors):
        if color == empty or start in seen:
            continue
        waiting, free = [start], False
        seen.add(start)
        while waiting:
            at = waiting.pop()
            y, x = divmod(at, size)
            for dx, dy in ((1, 0), (-1, 0), (0, 1), (0, -1)):
                if 0 <= x + dx < size and 0 <= y + dy < size:
                    next_to = at + dx + size * dy
                    free = free or colors[next_to] == empty
                    if colors[next_to] == color and next_to not in seen:
                        seen.add(next_to)
                        waiting.append(next_to)
        if not free:
            return False
    return True
