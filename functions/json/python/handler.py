"""Reads points from a text of JSON and takes the means of their coordinates."""

import json

from uncia_envelope import Parameter, enveloped


@enveloped({"points": Parameter(1_000, 1, 100_000)})
def handler(points):
    text = json.dumps(
        {
            "coordinates": [
                {
                    "x": i / 8,
                    "y": 2 * i + 1,
                    "z": i * i,
                    "name": f"point {i}",
                    "opts": {"1": [1, True]},
                }
                for i in range(points)
            ],
            "info": "some info",
        }
    )
    read = json.loads(text)["coordinates"]
    x, y, z = (sum(point[axis] for point in read) / len(read) for axis in "xyz")
    # By the sums of the first numbers, odd numbers and squares.
    expected = (points - 1) / 16, points, (points - 1) * (2 * points - 1) / 6
    valid = len(read) == points
    valid = valid and all(abs(a - b) <= 1e-9 * b for a, b in zip((x, y, z), expected))
    return {"x": x, "y": y, "z": z, "bytes": len(text)}, valid
