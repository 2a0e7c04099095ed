"""The engine's random numbers, recomputed in plain Python from the documented derivation alone, and
its dry run to compare with."""

import hashlib
import json
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.ipc

_MASK = 0xFFFFFFFF


def _quarter_round(words: list[int], a: int, b: int, c: int, d: int) -> None:
    for to, by, turned, bits in ((a, b, d, 16), (c, d, b, 12), (a, b, d, 8), (c, d, b, 7)):
        words[to] = (words[to] + words[by]) & _MASK
        mixed = words[turned] ^ words[to]
        words[turned] = ((mixed << bits) | (mixed >> (32 - bits))) & _MASK


def integers(seed: int, label: str) -> Iterator[int]:
    """The keystream of ChaCha8 as 64-bit integers."""
    key = hashlib.sha256(struct.pack("<Q", seed) + label.encode()).digest()
    counter = 0
    while True:
        block = struct.pack("<QQ", counter, 0)
        start = list(struct.unpack("<16I", b"expand 32-byte k" + key + block))
        words = start.copy()
        for _ in range(4):
            for column in range(4):
                _quarter_round(words, column, 4 + column, 8 + column, 12 + column)
            for column in range(4):
                _quarter_round(
                    words,
                    column,
                    4 + (column + 1) % 4,
                    8 + (column + 2) % 4,
                    12 + (column + 3) % 4,
                )
        mixed = [(word + first) & _MASK for word, first in zip(words, start, strict=True)]
        yield from struct.unpack("<8Q", struct.pack("<16I", *mixed))
        counter += 1


def dry_run(engine: Path, folder: Path, seed: int, streams: list[dict[str, Any]]) -> Any:
    """The schedule of a load that is not sent.

    A stream's `function` and `targets` are made up where it has none.
    """
    config = {
        "run": "r",
        "experiment": "e",
        "out": str(folder / "schedule.arrows"),
        "seed": seed,
        "dry_run": True,
        "streams": [
            {
                "function": f"f{index}",
                "targets": [
                    {"function": f"f{index}-{replica}", "url": "http://nowhere.invalid/"}
                    for replica in range(3)
                ],
                **stream,
            }
            for index, stream in enumerate(streams)
        ],
    }
    command = [str(engine), "load", "--config", "-"]
    done = subprocess.run(command, input=json.dumps(config), text=True, capture_output=True)
    assert done.returncode == 0, done.stderr
    with pa.OSFile(str(folder / "schedule.arrows"), "rb") as source:
        return pa.ipc.open_stream(source).read_all()
