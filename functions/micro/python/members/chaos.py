"""A fractal drawn by random moves along splines."""

# The splines of the benchmark's own command.
POINTS = [
    (
        [
            (1.597350, 3.304460),
            (1.575810, 4.123260),
            (1.313210, 5.288350),
            (1.618900, 5.329910),
            (2.889940, 5.502700),
            (2.373060, 4.381830),
            (1.662000, 4.360280),
        ],
        [0, 0, 0, 1, 1, 1, 2, 2, 2],
    ),
    (
        [(2.804500, 4.017350), (2.550500, 3.525230), (1.979010, 2.620360), (1.979010, 2.620360)],
        [0, 0, 0, 1, 1, 1],
    ),
    (
        [(2.001670, 4.011320), (2.335040, 3.312830), (2.366800, 3.233460), (2.366800, 3.233460)],
        [0, 0, 0, 1, 1, 1],
    ),
]
THICKNESS, ITERATIONS, SIZE = 0.25, 5_000, 256


def prepare(bench):
    splines = [
        bench.Spline([bench.GVector(x, y, 0) for x, y in points], 3, knots)
        for points, knots in POINTS
    ]
    return bench.Chaosgame(splines, THICKNESS)


def run(bench, repeat, game):
    images = set()
    # It shows its image to this function alone, in the place of one that writes a file.
    plain, bench.write_ppm = (
        bench.write_ppm,
        lambda image, _: images.add(b"".join(map(bytes, image))),
    )
    try:
        for _ in range(repeat):
            game.create_image_chaos(SIZE, SIZE, ITERATIONS, "image", 1234)
    finally:
        bench.write_ppm = plain
    return images


def check(bench, game, images):
    (image,) = images
    drawn = [
        (
            game.minx + (at // SIZE + 0.5) / SIZE * game.width,
            game.miny + (SIZE - at % SIZE - 0.5) / SIZE * game.height,
        )
        for at, value in enumerate(image)
        if not value
    ]
    # What is drawn is within half the thickness of a curve, by the Bezier form of each; and all
    # along the curves something is.
    curve = [
        at(points, t / 100) for points, _ in POINTS for t in range(100 * (len(points) // 3) + 1)
    ]
    return near(drawn, curve, THICKNESS / 2 + 0.05) and near(curve[::10], drawn, THICKNESS)


def near(points, others, distance):
    """Whether each point is within a distance of one of the others."""
    return all(any((x - a) ** 2 + (y - b) ** 2 < distance**2 for a, b in others) for x, y in points)


def at(points, t):
    """A point of the curve by de Casteljau's construction, piece by piece of four points."""
    piece = min(int(t), (len(points) - 1) // 3 - 1)
    t = min(t - piece, 1.0)
    level = points[3 * piece : 3 * piece + 4]
    while len(level) > 1:
        level = [
            (a[0] + (b[0] - a[0]) * t, a[1] + (b[1] - a[1]) * t) for a, b in zip(level, level[1:])
        ]
    return level[0]
