"""Thumbnails of a video's frames, in as many invocations as one likes.

The state that a task goes on from is two numbers: the next frame, and the CRC-32 of all thumbnails
so far. They come in the event and leave in the answer, so that an instance need not remember
anything. A frame is a few tens of microseconds of CPU time: a task can be cut about anywhere.
"""

import zlib

from uncia_envelope import Parameter, enveloped

WIDTH, HEIGHT, SIDE = 32, 24, 8  # a pixel of the thumbnail is SIDE x SIDE pixels of the frame

# Brightness along a row, written twice so that every row of a frame is one slice of it.
WAVE = bytes(i * i % 251 for i in range(256)) * 2


def frame(number):
    """The rows of a frame: a pattern that moves down and to the left from frame to frame."""
    starts = [(number * 7 + y * 5) & 255 for y in range(HEIGHT)]
    return [WAVE[start : start + WIDTH] for start in starts]


def thumbnail(rows):
    """Sums of the blocks of SIDE x SIDE pixels, row by row."""
    sums = []
    for top in range(0, HEIGHT, SIDE):
        band = rows[top : top + SIDE]
        for left in range(0, WIDTH, SIDE):
            sums.append(sum([sum(row[left : left + SIDE]) for row in band]))
    return sums


@enveloped(
    {
        "first": Parameter(0, 0, 10**9),
        "frames": Parameter(100, 0, 10**6),
        "digest": Parameter(0, 0, 2**32 - 1),
        "expected": Parameter(-1, -1, 2**32 - 1),
    }
)
def handler(first, frames, digest, expected):
    valid = True
    for number in range(first, first + frames):
        rows = frame(number)
        sums = thumbnail(rows)
        valid = valid and sum(sums) == sum(b"".join(rows))
        means = bytes([total // (SIDE * SIDE) for total in sums])
        digest = zlib.crc32(means, digest)
    valid = valid and expected in (-1, digest)
    return {"next": first + frames, "digest": digest}, valid
