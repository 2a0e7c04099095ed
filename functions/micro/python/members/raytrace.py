"""A scene of balls above a chequered plane, by rays."""

import math

SIZE = 60
BALLS = [((1, 3, -10), 2.0)] + [((-3 - y * 0.4, 2.3, -5), 0.4) for y in range(6)]


def run(bench, repeat, prepared):
    canvases = []

    class Kept(bench.Canvas):
        def __init__(self, width, height):
            super().__init__(width, height)
            canvases[:] = [self]

    plain, bench.Canvas = bench.Canvas, Kept
    try:
        bench.bench_raytrace(repeat, SIZE, SIZE, None)
    finally:
        bench.Canvas = plain
    return bytes(canvases[0].bytes)


def check(bench, prepared, pixels):
    for y in range(SIZE):
        for x in range(SIZE):
            at = ((SIZE - y - 1) * SIZE + x) * 3
            is_black, is_hit = not any(pixels[at : at + 3]), hit(x, y)
            # What no ray hits is black, and a ball is not; the ground is chequered.
            if is_black == is_hit and is_hit is not None:
                return False
    return True


def hit(x, y):
    """Whether the ray of a pixel hits a ball; None if it hits the ground."""
    eye, to = (0.0, 1.8, 10.0), (0.0, 3.0, 0.0)
    forward = unit([b - a for a, b in zip(eye, to)])
    right = unit(cross(forward, (0, 1, 0)))
    up = unit(cross(right, forward))
    half = math.tan(math.radians(22.5))
    across, along = half * (2 * x / (SIZE - 1) - 1), 0.75 * half * (2 * y / (SIZE - 1) - 1)
    ray = unit([f + across * r + along * u for f, r, u in zip(forward, right, up)])
    # It takes the ground to be as far as this, whatever the eye's height.
    ground = -1 / ray[1] if ray[1] < 0 else math.inf
    for centre, radius in BALLS:
        towards = [c - e for c, e in zip(centre, eye)]
        ahead = sum(a * b for a, b in zip(towards, ray))
        inside = radius**2 - (sum(a * a for a in towards) - ahead**2)
        if ahead > 0 and inside >= 0 and ahead - inside**0.5 < ground:
            return True
    return False if ground == math.inf else None


def unit(vector):
    length = math.hypot(*vector)
    return [value / length for value in vector]


def cross(a, b):
    return a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]
