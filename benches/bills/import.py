"""How fast request tables of Huawei's trace of 2025 become Parquet, and in how much memory.

    python benches/bills/import.py [--rows 4000000] [--files 4] [--gzip] [--folder DIR]
        [-- OPTION...]

Writes synthetic request tables (18 columns, numbers of the trace's form, 1 row in 10,000 broken),
imports them with `uncia trace import` in a process of its own, and prints rows and bytes a second
and the most memory that it held. Options after ``--`` go to the import.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyarrow import csv

FLAVOURS = ((300, 128), (400, 256), (600, 512), (800, 768), (1000, 1024), (1800, 2048))
BLOCK = 500_000
BROKEN = 10_000  # one row in so many
HEX = np.frombuffer(b"0123456789abcdef", dtype=np.uint8)


def decimals(numbers: np.ndarray, places: int) -> pa.Array:
    """Numbers divided by 10^places, as CSV has them."""
    halves = np.empty((len(numbers), 2), dtype="<i8")
    halves[:, 0], halves[:, 1] = numbers, numbers >> 63
    buffer = pa.py_buffer(halves.tobytes())
    return pa.Array.from_buffers(pa.decimal128(18, places), len(numbers), [None, buffer])


def hashes(chance: np.random.Generator, rows: int) -> pa.Array:
    letters = HEX[chance.integers(0, 16, (rows, 32), dtype=np.uint8)]
    offsets = pa.py_buffer(np.arange(0, 32 * rows + 1, 32, dtype=np.int32).tobytes())
    return pa.StringArray.from_buffers(rows, offsets, pa.py_buffer(letters.tobytes()))


def block(chance: np.random.Generator, rows: int, first: int) -> pa.Table:
    """Rows of a request table; functions follow a power law, and each has some pods."""
    function = np.minimum(chance.zipf(1.5, rows), 2000)
    flavour = function % len(FLAVOURS)
    pod = function * 50 + chance.integers(0, 50, rows)
    pods = [
        f"pool{22 + f}-{FLAVOURS[f][0]}-{FLAVOURS[f][1]}-{p:010}"
        for p, f in ((p, p // 50 % len(FLAVOURS)) for p in range(50 * 2001))
    ]
    micro = np.exp(chance.normal(9, 1.8, rows)).astype(np.int64)
    usage = np.where(chance.random(rows) < 0.3, 0, chance.integers(1, 400_000, rows))
    size = np.array([memory for _, memory in FLAVOURS])[flavour]
    memory = (size * chance.integers(200_000, 900_000, rows)).astype(np.int64)
    end = 2_592_000_000 + (first + np.arange(rows)) // 40

    def small(most: int) -> pa.Array:
        return decimals(chance.integers(1, most, rows), 6)

    return pa.table(
        {
            "time_worker": decimals(end, 3),
            "time_frontend": decimals(end + 1, 3),
            "requestID": hashes(chance, rows),
            "clusterName": pa.array(chance.integers(1, 5, rows)),
            "funcName": pa.array(function),
            "podID": pa.array(pods).take(pa.array(pod)),
            "userID": pa.array(function % 300),
            "totalCost_worker": decimals(micro + 200, 6),
            "workerCost": small(300),
            "runtimeCost": decimals(micro, 6),
            "totalCost_frontend": decimals(micro + 2000, 6),
            "frontendCost": small(900),
            "busCost": small(900),
            "readBodyCost": small(90),
            "writeRspCost": small(90),
            "cpu_usage": decimals(usage, 6),
            "memory_usage": decimals(memory, 6),
            "requestBodySize": decimals(chance.integers(0, 100_000, rows) * 10, 1),
        }
    )


def write(folder: Path, rows: int, files: int, *, packed: bool) -> int:
    """Write the trace; returns how many rows are broken."""
    chance = np.random.default_rng(7)
    broken = 0
    for index in range(files):
        (folder / "R2").mkdir(parents=True, exist_ok=True)
        path = folder / "R2" / f"part_{index:04}.csv{'.gz' if packed else ''}"
        left = rows * (index + 1) // files - rows * index // files
        first = rows * index // files
        with gzip.open(path, "wb", 4) if packed else path.open("wb") as file:
            header = True
            while left:
                many = min(left, BLOCK)
                table = block(chance, many, first)
                text = pa.BufferOutputStream()
                options = csv.WriteOptions(include_header=header, quoting_style="none")
                csv.write_csv(table, text, options)
                lines = text.getvalue().to_pybytes().split(b"\n")
                for at in range(BROKEN // 2, many, BROKEN):
                    lines[at] = lines[at].rpartition(b",")[0]
                    broken += 1
                file.write(b"\n".join(lines))
                header, left, first = False, left - many, first + many
    return broken


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=4_000_000)
    parser.add_argument("--files", type=int, default=4)
    parser.add_argument("--gzip", action="store_true")
    parser.add_argument("--folder", type=Path, help="where to write; kept if it is given")
    parser.add_argument("options", nargs="*")
    given = parser.parse_args()
    folder = given.folder or Path(tempfile.mkdtemp(prefix="uncia-import-"))
    try:
        raw, out = folder / "raw", folder / "out"
        count = folder / "broken.txt"
        if not count.exists():
            broken = write(raw, given.rows, given.files, packed=given.gzip)
            count.write_text(str(broken))
        broken = int(count.read_text())
        shutil.rmtree(out, ignore_errors=True)
        text = sum(file.stat().st_size for file in raw.rglob("*") if file.is_file())
        command = [sys.executable, "-m", "uncia", "trace", "import", "huawei2025", str(raw)]
        began = time.monotonic()
        process = subprocess.Popen(
            [*command, "--out", str(out), "--json", *given.options], stdout=subprocess.PIPE
        )
        assert process.stdout is not None
        imported = json.loads(process.stdout.read())
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.monotonic() - began
        assert status == 0
        assert imported["read"] == given.rows, imported
        assert sum(imported["rejected"].values()) == broken, imported
        written = sum(file.stat().st_size for file in out.rglob("*.parquet"))
        print(f"rows          {imported['read']:,} ({broken:,} rejected)")
        print(f"text          {text / 1e6:,.0f} MB, Parquet {written / 1e6:,.0f} MB")
        cpu = usage.ru_utime + usage.ru_stime
        print(f"time          {seconds:.2f} s, CPU {cpu:.2f} s")
        print(f"speed         {given.rows / seconds:,.0f} rows/s, {text / seconds / 1e6:,.0f} MB/s")
        print(f"peak memory   {usage.ru_maxrss / 1024:,.0f} MiB")
    finally:
        if given.folder is None:
            shutil.rmtree(folder)


if __name__ == "__main__":
    main()
